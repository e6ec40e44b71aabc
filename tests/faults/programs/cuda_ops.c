/* Operations that call CUDA, through the runtime that the program is linked to by dlopen. */
#include "script.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "burn.h"

typedef struct {
  unsigned x, y, z;
} dim3;

static struct {
  int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
  int (*copy)(void *, const void *, size_t, int, void *);
  int (*copy_sync)(void *, const void *, size_t, int);
  int (*sync)(void *), (*query)(void *), (*device_sync)(void), (*flags)(unsigned), (*free)(void *), (*free_host)(void *);
  int (*malloc)(void **, size_t), (*host_alloc)(void **, size_t, unsigned);
  int (*stream)(void **, unsigned), (*event)(void **, unsigned), (*record)(void *, void *), (*wait_event)(void *, void *, unsigned);
  int (*event_sync)(void *), (*event_query)(void *);
  int (*capture)(void *, int), (*end_capture)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
  int (*exec_destroy)(void *), (*graph_destroy)(void *), (*graph_launch)(void *, void *);
  int (*host_function)(void *, void (*)(void *), void *);
  int (*hidden)(void *, size_t, unsigned char, size_t, size_t, void *);
} cuda;

static void *streams[MOST_HANDLES], *events[MOST_HANDLES], *device, *pinned;
static char *pageable;
static size_t size = 64 << 20;
static sigjmp_buf out_of_call;

static void *function(const char *name) {
  const char *file = strncmp(name, "cuda", 4) == 0 ? "libcudart.so.12" : "libcuda.so.1";
  void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL), *found = library ? dlsym(library, name) : NULL;
  must(found != NULL, name);
  return found;
}

static void check(int code, const char *what) {
  if (code != 0) fprintf(stderr, "%s returned %d\n", what, code), _exit(6);
}

static void load(void) {
  const struct {
    void *to;
    const char *name;
  } all[] = {{&cuda.launch, "cudaLaunchKernel"}, {&cuda.copy, "cudaMemcpyAsync"}, {&cuda.copy_sync, "cudaMemcpy"},
             {&cuda.sync, "cudaStreamSynchronize"}, {&cuda.query, "cudaStreamQuery"},
             {&cuda.device_sync, "cudaDeviceSynchronize"}, {&cuda.flags, "cudaSetDeviceFlags"},
             {&cuda.free, "cudaFree"}, {&cuda.free_host, "cudaFreeHost"}, {&cuda.malloc, "cudaMalloc"},
             {&cuda.host_alloc, "cudaHostAlloc"}, {&cuda.stream, "cudaStreamCreateWithFlags"},
             {&cuda.event, "cudaEventCreateWithFlags"}, {&cuda.record, "cudaEventRecord"},
             {&cuda.wait_event, "cudaStreamWaitEvent"}, {&cuda.event_sync, "cudaEventSynchronize"},
             {&cuda.event_query, "cudaEventQuery"}, {&cuda.capture, "cudaStreamBeginCapture"},
             {&cuda.end_capture, "cudaStreamEndCapture"}, {&cuda.instantiate, "cudaGraphInstantiateWithFlags"},
             {&cuda.exec_destroy, "cudaGraphExecDestroy"}, {&cuda.graph_destroy, "cudaGraphDestroy"},
             {&cuda.graph_launch, "cudaGraphLaunch"}, {&cuda.host_function, "cudaLaunchHostFunc"},
             {&cuda.hidden, "cuMemsetD2D8Async"}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    void *found = function(all[i].name);
    memcpy(all[i].to, &found, sizeof found);
  }
}

/* FAULTS_STREAMS: a letter a stream: l legacy default, b blocking, n non-blocking. FAULTS_BYTES: of each buffer. */
void cuda_begin(void) {
  const char *kinds = getenv("FAULTS_STREAMS"), *how = getenv("FAULTS_SYNC"), *bytes = getenv("FAULTS_BYTES");
  if (kinds == NULL) return;
  if (bytes != NULL) size = strtoul(bytes, NULL, 10);
  load();
  if (how != NULL) check(cuda.flags((unsigned)atoi(how)), "cudaSetDeviceFlags");
  for (int i = 0; kinds[i] != '\0'; i++)
    if (kinds[i] != 'l') check(cuda.stream(&streams[i], kinds[i] == 'n'), "cudaStreamCreateWithFlags");
  for (int i = 0; i < MOST_HANDLES; i++) check(cuda.event(&events[i], how != NULL && atoi(how) == 4 ? 3 : 2), "event");
  check(cuda.malloc(&device, size), "cudaMalloc");
  check(cuda.host_alloc(&pinned, size, 0), "cudaHostAlloc");
  pageable = malloc(size);
  must(pageable != NULL, "memory");
  memset(pageable, 1, size), memset(pinned, 1, size);
}

static void launch(void *stream, uint64_t ns, long count) {
  void *arguments[] = {&ns};
  dim3 one = {1, 1, 1};
  for (long i = 0; i < count; i++) check(cuda.launch((void *)launch, one, one, arguments, 0, stream), "cudaLaunchKernel");
}

static void *captured(void *stream) {
  void *graph;
  check(cuda.capture(stream, 0), "cudaStreamBeginCapture");
  launch(stream, 1000, 1);
  check(cuda.end_capture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

/* Makes a graph executable and runs it once; captures it again each time, or only the first time. */
static void instantiate(void *stream, int again) {
  static void *graph;
  void *exec;
  if (again || graph == NULL) graph = captured(stream);
  check(cuda.instantiate(&exec, graph, 0), "cudaGraphInstantiateWithFlags");
  check(cuda.graph_launch(exec, stream), "cudaGraphLaunch");
  check(cuda.exec_destroy(exec), "cudaGraphExecDestroy");
  if (again) check(cuda.graph_destroy(graph), "cudaGraphDestroy"), graph = NULL;
}

/* Work through an entry of the driver that nobody probes. */
static void hide(void *stream, long count) {
  for (long i = 0; i < count; i++) check(cuda.hidden(device, 1 << 20, 0, 1 << 20, 64, stream), "cuMemsetD2D8Async");
}

static void host_work(void *ns) {
  static uint64_t jumps[MOST_JUMPS][2];
  burn_cpu((uint64_t)(uintptr_t)ns, jumps);
}

static void leave_call(int number) {
  (void)number;
  siglongjmp(out_of_call, 1);
}

/* A signal handler leaves the waiting call by longjmp: it never returns. */
static void jump(void *stream, long after_us) {
  struct itimerval soon = {{0, 0}, {0, after_us}};
  signal(SIGALRM, leave_call);
  if (sigsetjmp(out_of_call, 1) == 0) {
    setitimer(ITIMER_REAL, &soon, NULL);
    check(cuda.sync(stream), "cudaStreamSynchronize");
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
  }
}

static void allocate(const char *name, size_t bytes) {
  void *p;
  if (strcmp(name, "malloc") == 0) {
    check(cuda.malloc(&p, bytes), "cudaMalloc");
    check(cuda.free(p), "cudaFree");
  } else {
    check(cuda.host_alloc(&p, bytes, 0), "cudaHostAlloc");
    check(cuda.free_host(p), "cudaFreeHost");
  }
}

static int waits(const struct op *op, void *stream) {
  const char *n = op->name;
  if (strcmp(n, "sync") == 0) check(cuda.sync(stream), n);
  else if (strcmp(n, "devsync") == 0) check(cuda.device_sync(), n);
  else if (strcmp(n, "evsync") == 0) check(cuda.event_sync(events[op->a[0]]), n);
  else if (strcmp(n, "query") == 0) cuda.query(stream);
  else if (strcmp(n, "evquery") == 0) cuda.event_query(events[op->a[0]]);
  else if (strcmp(n, "jump") == 0) jump(stream, op->a[1]);
  else return 0;
  return 1;
}

int cuda_op(const struct op *op) {
  const char *n = op->name;
  void *stream = op->a[0] >= 0 && op->a[0] < MOST_HANDLES ? streams[op->a[0]] : NULL;
  void *host = strcmp(op->text, "pin") == 0 ? pinned : pageable;
  if (strcmp(n, "launch") == 0) launch(stream, (uint64_t)op->a[1], op->a[2]);
  else if (strcmp(n, "h2d") == 0) check(cuda.copy(device, host, (size_t)op->a[1], 1, stream), n);
  else if (strcmp(n, "d2h") == 0) check(cuda.copy(host, device, (size_t)op->a[1], 2, stream), n);
  else if (strcmp(n, "copyback") == 0) check(cuda.copy_sync(host, device, (size_t)op->a[1], 2), n);
  else if (strcmp(n, "record") == 0) check(cuda.record(events[op->a[1]], stream), n);
  else if (strcmp(n, "waitev") == 0) check(cuda.wait_event(stream, events[op->a[1]], 0), n);
  else if (strcmp(n, "malloc") == 0 || strcmp(n, "hostalloc") == 0) allocate(n, (size_t)op->a[0]);
  else if (strcmp(n, "graph") == 0 || strcmp(n, "recapture") == 0) instantiate(stream, n[0] == 'r');
  else if (strcmp(n, "hidden") == 0) hide(stream, op->a[1]);
  else if (strcmp(n, "hostfn") == 0) check(cuda.host_function(stream, host_work, (void *)(uintptr_t)op->a[1]), n);
  else return waits(op, stream);
  return 1;
}
