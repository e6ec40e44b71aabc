// What makes "cuda" a device of this build: a guard (and with it autograd's threads) and its hooks.
#include "runtime.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace shim {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
constexpr auto kType = c10::DeviceType::CUDA;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device) const override { return Device(kType, 0); }
  Device getDevice() const override { return Device(kType, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return as_stream(current_stream()); }
  Stream getDefaultStream(Device) const override { return as_stream(nullptr); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return as_stream(stream_of_pool()); }
  Stream getNewStream(Device, int) const override { return as_stream(stream_of_pool()); }
  Stream exchangeStream(Stream stream) const override {
    Stream before = as_stream(current_stream());
    set_current_stream(as_handle(stream));
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return as_handle(stream); }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event != nullptr) runtime().destroy_event(event);
  }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    constexpr unsigned kDisableTiming = 2;
    unsigned flags = flag == c10::EventFlag::BACKEND_DEFAULT ? 0 : kDisableTiming;
    if (*event == nullptr) check(runtime().create_event(event, flags), "cudaEventCreateWithFlags");
    check(runtime().record(*event, as_handle(stream), 0), "cudaEventRecordWithFlags");
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) check(runtime().wait_event(as_handle(stream), event, 0), "cudaStreamWaitEvent");
  }
  bool queryEvent(void* event) const override { return event == nullptr || ready(runtime().query_event(event)); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const Stream& stream) const override { return ready(runtime().query_stream(as_handle(stream))); }
  void synchronizeStream(const Stream& stream) const override {
    check(runtime().sync_stream(as_handle(stream)), "cudaStreamSynchronize");
  }
  bool isStreamCapturing(const Stream&) const override { return capturing(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) check(runtime().sync_event(event), "cudaEventSynchronize");
  }
  void synchronizeDevice(const DeviceIndex) const override { check(runtime().sync_device(), "cudaDeviceSynchronize"); }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    float ms = 0;
    check(runtime().elapsed(&ms, from, to), "cudaEventElapsedTime");
    return ms;
  }

 private:
  static bool ready(int code) {
    if (code == 0) return true;
    runtime().last_error();
    return false;
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  Device getDeviceFromPtr(void*) const override { return Device(kType, 0); }
  void deviceSynchronize(DeviceIndex) const override { check(runtime().sync_device(), "cudaDeviceSynchronize"); }
  std::string showConfig() const override { return "simulated"; }
};

using at::CUDAHooksArgs;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)

} // namespace
} // namespace shim

// What torch._C offers of CUDA in a CUDA build, for bindings.py.
extern "C" {

using namespace shim;

void* shim_stream() { return current_stream(); }
void shim_set_stream(void* stream) { set_current_stream(stream); }
int shim_init() { // as torch.cuda does first: a context on the device
  int count = 0;
  if (runtime().device_count(&count) != 0 || count == 0) return 1;
  return runtime().set_device(0);
}
int shim_synchronize() { return runtime().sync_device(); }
void shim_empty_cache() { empty_cache(); }
int shim_begin_capture() {
  set_capturing(true);
  constexpr int kGlobal = 0;
  return runtime().begin_capture(current_stream(), kGlobal);
}
int shim_end_capture(void** graph, void** executable) {
  set_capturing(false);
  int code = runtime().end_capture(current_stream(), graph);
  return code != 0 ? code : runtime().instantiate(executable, *graph, 0);
}
int shim_replay(void* executable) { return runtime().launch_graph(executable, current_stream()); }
int shim_destroy(void* graph, void* executable) {
  int code = runtime().destroy_executable(executable);
  return code != 0 ? code : runtime().destroy_graph(graph);
}
int shim_elapsed(float* ms, void* from, void* to) { return runtime().elapsed(ms, from, to); }
int shim_memory(size_t* free, size_t* total) { return runtime().free_memory(free, total); }
}
