/* What the simulated mathematical libraries (cuBLAS, cuBLASLt, cuDNN) share: a kernel of a name, a length and a use. */
#ifndef MATH_CORE_H
#define MATH_CORE_H

#include "sg_gemm.h"

#define SG_TEXT(type, name) type impl_##name

/* cudaDataType_t, of those that occur */
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, C_16F = 6, R_32I = 10, R_16BF = 14, C_16BF = 15,
       R_8F_E4M3 = 28, R_8F_E5M2 = 29, R_4F = 33 };

/* math_core.c */
int math_ready(void);
int math_launch(void *stream, const char *name, uint64_t blocks, const struct sg_work *work);

/* math_cost.c */
struct gemm {
  int64_t m, n, k, count;
  int a, c; /* types of the operands and of the result */
  int tf32; /* fp32 operands may lose digits */
  char ta, tb;
};
void math_gemm_name(char *out, size_t size, const struct gemm *g);
struct sg_work math_gemm_work(const struct gemm *g);
struct sg_work math_work(double flops, double bytes, uint64_t blocks, int type, int tf32);
size_t math_type_bytes(int type);

#endif
