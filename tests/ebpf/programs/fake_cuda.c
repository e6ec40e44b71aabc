/* A stand-in for libcudart.so.12 (-DRUNTIME) and libcuda.so.1: functions that call back into the program, call each
 * other, and jump to each other. It has no GPU and no state, so the program alone decides what happens inside. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default"), noinline))

EXPORT void (*fake_hook)(void); /* called within cuMemAlloc and cuLaunchKernel */

#ifdef RUNTIME
int cuMemAlloc_v2(void **p, size_t n);

#ifdef LAUNCHES
typedef struct {
  unsigned x, y, z;
} dim3;
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* as many launches of the driver as `function` says */
EXPORT int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
  int code = 0;
  for (size_t i = 0; i < (size_t)function; i++)
    code = cuLaunchKernel((void *)(i + 1), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, 0);
  __asm__ volatile("" : "+r"(code));
  return code;
}
#endif

EXPORT int cudaMalloc(void **p, size_t n) {
  int code = cuMemAlloc_v2(p, n);
  __asm__ volatile("" : "+r"(code)); /* a call, no jump */
  return code;
}
EXPORT int cudaFree(void *p) {
  __asm__ volatile("" : "+r"(p));
  return 0;
}
EXPORT int cudaEventQuery(void *event) {
  __asm__ volatile("" : "+r"(event));
  return 600;
}
EXPORT int cudaStreamQuery(void *stream);
/* the real library has such jumps from one exported function to another */
__asm__(".text\n.globl cudaStreamQuery\n.type cudaStreamQuery, @function\ncudaStreamQuery:\n  nop\n  jmp cudaEventQuery@PLT\n");
#else
#ifdef LAUNCHES
EXPORT int fake_result; /* of cuLaunchKernel, and so of cudaLaunchKernel */

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **arguments, void **extra) {
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
  (void)arguments, (void)extra;
  if (fake_hook != NULL) fake_hook();
  return fake_result;
}
#endif

EXPORT int cuMemAlloc_v2(void **p, size_t n) {
  int code = 0;
  (void)p, (void)n;
  if (fake_hook != NULL) fake_hook();
  __asm__ volatile("" : "+r"(code));
  return code;
}
#endif
