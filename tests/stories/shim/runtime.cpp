// The runtime by its soname, as PyTorch finds it.
#include "runtime.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace shim {
namespace {

constexpr unsigned kNonBlocking = 1;
constexpr size_t kPool = 32; // streams that PyTorch makes and hands out in turn

template <typename F>
void find(void* library, const char* name, F& out) {
  out = reinterpret_cast<F>(dlsym(library, name));
  TORCH_CHECK(out != nullptr, "no ", name);
}

void* open(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  TORCH_CHECK(library != nullptr, dlerror());
  return library;
}

Runtime load() {
  void* l = open("libcudart.so.12");
  Runtime r{};
  find(l, "cudaLaunchKernel", r.launch);
  find(l, "cudaMemcpyAsync", r.copy);
  find(l, "cudaMemsetAsync", r.fill);
  find(l, "cudaStreamSynchronize", r.sync_stream);
  find(l, "cudaStreamQuery", r.query_stream);
  find(l, "cudaDeviceSynchronize", r.sync_device);
  find(l, "cudaStreamCreateWithPriority", r.create_stream);
  find(l, "cudaStreamWaitEvent", r.wait_event);
  find(l, "cudaEventCreateWithFlags", r.create_event);
  find(l, "cudaEventDestroy", r.destroy_event);
  find(l, "cudaEventRecordWithFlags", r.record);
  find(l, "cudaEventQuery", r.query_event);
  find(l, "cudaEventSynchronize", r.sync_event);
  find(l, "cudaEventElapsedTime", r.elapsed);
  find(l, "cudaMalloc", r.allocate);
  find(l, "cudaFree", r.release);
  find(l, "cudaHostAlloc", r.host_allocate);
  find(l, "cudaFreeHost", r.host_release);
  find(l, "cudaPointerGetAttributes", r.attributes);
  find(l, "cudaMemGetInfo", r.free_memory);
  find(l, "cudaGetDeviceCount", r.device_count);
  find(l, "cudaGetDevice", r.get_device);
  find(l, "cudaSetDevice", r.set_device);
  find(l, "cudaGetLastError", r.last_error);
  find(l, "cudaStreamBeginCapture", r.begin_capture);
  find(l, "cudaStreamEndCapture", r.end_capture);
  find(l, "cudaGraphInstantiateWithFlags", r.instantiate);
  find(l, "cudaGraphLaunch", r.launch_graph);
  find(l, "cudaGraphDestroy", r.destroy_graph);
  find(l, "cudaGraphExecDestroy", r.destroy_executable);
  return r;
}

thread_local void* stream_now = nullptr;
thread_local bool capture_now = false;

// Kernels that are PyTorch's own are registered with the runtime by name, as nvcc's code does.
const void* registered(const char* name) {
  static std::mutex mutex;
  static std::unordered_map<const char*, char*> known;
  static void** module = nullptr;
  static void** (*module_of)(void*);
  static void (*add)(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
  std::lock_guard<std::mutex> lock(mutex);
  if (module == nullptr) {
    static char binary[64];
    void* l = open("libcudart.so.12");
    find(l, "__cudaRegisterFatBinary", module_of);
    find(l, "__cudaRegisterFunction", add);
    module = module_of(binary);
  }
  char*& host = known[name];
  if (host == nullptr) {
    host = new char[16];
    add(module, host, host, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  return host;
}

// cuBLAS holds a runtime of its own, of which only the driver's calls are seen.
void* of_library(const char* name) {
  static std::mutex mutex;
  static std::unordered_map<const char*, void*> known;
  static void* module = nullptr;
  static int (*load_data)(void**, const void*);
  static int (*get)(void**, void*, const char*);
  std::lock_guard<std::mutex> lock(mutex);
  if (module == nullptr) {
    static char image[64];
    void* l = open("libcuda.so.1");
    find(l, "cuModuleLoadData", load_data);
    find(l, "cuModuleGetFunction", get);
    check(load_data(&module, image), "cuModuleLoadData");
  }
  void*& function = known[name];
  if (function == nullptr) check(get(&function, module, name), "cuModuleGetFunction");
  return function;
}

// The simulated driver is told how long the thread's next launch lasts: there is no code that it could run.
void next_work(const sg_work* work) {
  static const sg_private* table = [] {
    int (*get)(const void**, const void*);
    const void* found = nullptr;
    find(open("libcuda.so.1"), "cuGetExportTable", get);
    check(get(&found, SG_PRIVATE_ID), "cuGetExportTable");
    return static_cast<const sg_private*>(found);
  }();
  table->next_work(work);
}

} // namespace

const Runtime& runtime() {
  static const Runtime loaded = load();
  return loaded;
}

void check(int code, const char* what) {
  TORCH_CHECK(code == 0, "CUDA error: ", what, " returned ", code);
}

const char* interned(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  std::lock_guard<std::mutex> lock(mutex);
  return names.insert(name).first->c_str();
}

void* current_stream() { return stream_now; }
void set_current_stream(void* stream) { stream_now = stream; }
bool capturing() { return capture_now; }
void set_capturing(bool on) { capture_now = on; }

c10::Stream as_stream(void* handle) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, 0), reinterpret_cast<int64_t>(handle));
}
void* as_handle(const c10::Stream& stream) { return reinterpret_cast<void*>(stream.id()); }

void* stream_of_pool() {
  static std::mutex mutex;
  static std::vector<void*> pool;
  static size_t next = 0;
  std::lock_guard<std::mutex> lock(mutex);
  while (pool.size() < kPool) {
    void* made = nullptr;
    check(runtime().create_stream(&made, kNonBlocking, 0), "cudaStreamCreateWithPriority");
    pool.push_back(made);
  }
  return pool[next++ % kPool];
}

Work passing(const char* name, double bytes, double fixed_ns) {
  constexpr double kPeak = 3350, kReached = 2700; // bytes a ns
  double ns = fixed_ns + bytes / kReached;
  double part = bytes / kPeak / ns;
  auto of = [part](double most) { return static_cast<uint16_t>(most * std::min(1.0, part / 0.8)); };
  return {name, false, {static_cast<uint64_t>(ns), {of(950), of(800), 0, static_cast<uint16_t>(1000 * part)}}};
}

void launch(const Work& work) {
  if (work.clears) {
    c10::DataPtr counters = device_allocator()->allocate(512);
    check(runtime().fill(counters.get(), 0, 512, current_stream()), "cudaMemsetAsync");
  }
  next_work(&work.work);
  if (work.library) {
    using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
    static Launch call = [] {
      Launch found;
      find(open("libcuda.so.1"), "cuLaunchKernel", found);
      return found;
    }();
    thread_local const int context = runtime().set_device(0); // the library's own runtime makes it current
    check(context, "cudaSetDevice");
    check(call(of_library(work.name), 132, 1, 1, 256, 1, 1, 0, current_stream(), nullptr, nullptr), "cuLaunchKernel");
    return;
  }
  constexpr uint64_t kGrid = 132ull | 1ull << 32, kBlock = 256ull | 1ull << 32; // dim3 in registers
  check(runtime().launch(registered(work.name), kGrid, 1, kBlock, 1, nullptr, 0, current_stream()), "cudaLaunchKernel");
}

void memcpy_and_sync(void* dst, const void* src, size_t bytes, Kind kind) {
  check(runtime().copy(dst, src, bytes, kind, current_stream()), "cudaMemcpyAsync");
  check(runtime().sync_stream(current_stream()), "cudaStreamSynchronize");
}

} // namespace shim
