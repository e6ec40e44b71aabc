/* A cuBLAS handle of the simulation. */
#ifndef BLAS_CORE_H
#define BLAS_CORE_H

#include "math_core.h"

enum { B_OK = 0, B_INIT = 1, B_ALLOC = 3, B_VALUE = 7, B_EXECUTION = 13, B_UNSUPPORTED = 15 };
#define TF32_MATH 3

struct blas {
  void *stream;
  int pointer_mode, math_mode, atomics;
};

int blas_gemm(struct blas *h, const struct gemm *g);
char blas_letter(int operation);

#endif
