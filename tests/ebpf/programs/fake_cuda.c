/* A stand-in for libcudart.so.12 (-DRUNTIME) and libcuda.so.1: functions that call back into the program, call each
 * other, and jump to each other. It has no GPU and no state, so the program alone decides what happens inside. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default"), noinline))

EXPORT void (*fake_hook)(void); /* called within cuMemAlloc */

#ifdef RUNTIME
int cuMemAlloc_v2(void **p, size_t n);

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
EXPORT int cuMemAlloc_v2(void **p, size_t n) {
  int code = 0;
  (void)p, (void)n;
  if (fake_hook != NULL) fake_hook();
  __asm__ volatile("" : "+r"(code));
  return code;
}
#endif
