/* static_runtime CALLS [TRACED]: has CUDA runtime functions inside, as nvcc links them in by default, and loads
 * the driver. At its very beginning it frees nothing, once. Then it waits for the file TRACED;
 * call number i allocates i bytes. */
#include "support.h"

#define HIDDEN __attribute__((visibility("hidden"), noinline))

static int (*driver_allocate)(void **, size_t), (*driver_free)(void *);

HIDDEN int cudaMalloc(void **p, size_t size) {
  int code = driver_allocate(p, size);
  __asm__ volatile("" : "+r"(code)); /* a call, no jump */
  return code;
}

HIDDEN int cudaFree(void *p) {
  int code = p == NULL ? 0 : driver_free(p);
  __asm__ volatile("" : "+r"(code));
  return code;
}

/* the texts of the real function stay in a stripped program */
HIDDEN const char *cudaGetErrorName(int code) {
  static const char *const names[] = {"cudaSuccess", "cudaErrorInvalidValue", "cudaErrorMemoryAllocation"};
  return code < 3 ? names[code] : "unrecognized error code";
}

int main(int argc, char **argv) {
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
  void *context, *memory;
  cudaFree(NULL); /* the first thing that the program does */
  if (argc < 2) return 2;
  *(void **)&init = function("libcuda.so.1", "cuInit");
  *(void **)&retain = function("libcuda.so.1", "cuDevicePrimaryCtxRetain");
  *(void **)&set = function("libcuda.so.1", "cuCtxSetCurrent");
  *(void **)&driver_allocate = function("libcuda.so.1", "cuMemAlloc_v2");
  *(void **)&driver_free = function("libcuda.so.1", "cuMemFree_v2");
  must(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0, "context");
  say("{\"pid\": %d, \"state\": \"ready\"}\n", getpid());
  if (argc > 2) await(argv[2]);
  for (long i = 1; i <= atol(argv[1]); i++) {
    int code = cudaMalloc(&memory, (size_t)i);
    if (code != 0) fprintf(stderr, "%s\n", cudaGetErrorName(code));
    must(code == 0 && cudaFree(memory) == 0, "malloc and free");
  }
  say("{\"pid\": %d, \"state\": \"done\"}\n", getpid());
  return 0;
}
