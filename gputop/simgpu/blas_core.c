/* cuBLAS: the handle, its settings, and the functions on vectors, whose kernels last as short as kernels do. */
#include "blas_core.h"

#include <stdlib.h>

SG_ALIAS(cublasCreate, cublasCreate_v2)
SG(cublasCreate_v2)(struct blas **out) {
  if (out == NULL) return B_VALUE;
  if (math_ready() != 0) return B_INIT;
  *out = calloc(1, sizeof **out);
  return *out == NULL ? B_ALLOC : B_OK;
}
SG_ALIAS(cublasDestroy, cublasDestroy_v2)
SG(cublasDestroy_v2)(struct blas *h) {
  if (h == NULL) return B_INIT;
  free(h);
  return B_OK;
}

SG_ALIAS(cublasSetStream, cublasSetStream_v2)
SG(cublasSetStream_v2)(struct blas *h, void *stream) {
  if (h == NULL) return B_INIT;
  h->stream = stream;
  return B_OK;
}
SG(cublasGetStream_v2)(struct blas *h, void **stream) {
  if (h == NULL) return B_INIT;
  *stream = h->stream;
  return B_OK;
}
SG(cublasSetWorkspace_v2)(struct blas *h) { return h == NULL ? B_INIT : B_OK; }
SG_ALIAS(cublasSetSmCountTarget, cublasSetWorkspace_v2)
SG_ALIAS(cublasSetEmulationStrategy, cublasSetWorkspace_v2)

SG(cublasSetMathMode)(struct blas *h, int mode) {
  if (h == NULL) return B_INIT;
  h->math_mode = mode;
  return B_OK;
}
SG(cublasGetMathMode)(struct blas *h, int *mode) {
  if (h == NULL) return B_INIT;
  *mode = h->math_mode;
  return B_OK;
}
SG(cublasSetPointerMode_v2)(struct blas *h, int mode) {
  if (h == NULL) return B_INIT;
  h->pointer_mode = mode;
  return B_OK;
}
SG(cublasGetPointerMode_v2)(struct blas *h, int *mode) {
  if (h == NULL) return B_INIT;
  *mode = h->pointer_mode;
  return B_OK;
}
SG(cublasSetAtomicsMode)(struct blas *h, int mode) {
  if (h == NULL) return B_INIT;
  h->atomics = mode;
  return B_OK;
}
SG(cublasGetVersion_v2)(struct blas *h, int *version) {
  (void)h;
  *version = SG_MAJOR * 10000 + 400;
  return B_OK;
}
SG(cublasGetProperty)(int type, int *value) {
  *value = type == 0 ? SG_MAJOR : type == 1 ? 4 : 0;
  return B_OK;
}
SG(cublasGetCudartVersion)(void) { return SG_MAJOR * 1000; }
SG_TEXT(const char *, cublasGetStatusString)(int status) {
  return status == B_OK ? "success" : "an error of the simulated cuBLAS";
}
SG_TEXT(const char *, cublasGetStatusName)(int status) {
  return status == B_OK ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

/* Every function whose first argument is the handle and whose kernel is short. */
static int short_kernel(struct blas *h, const char *name) {
  struct sg_work work = math_work(0, 0, 1, R_32F, 0);
  if (h == NULL) return B_INIT;
  return math_launch(h->stream, name, 1, &work) == 0 ? B_OK : B_EXECUTION;
}

SG_ALIAS(cublasSdot_v2, cublasDotEx)
SG_ALIAS(cublasDdot_v2, cublasDotEx)
SG_ALIAS(cublasCdotu_v2, cublasDotEx)
SG_ALIAS(cublasCdotc_v2, cublasDotEx)
SG_ALIAS(cublasZdotu_v2, cublasDotEx)
SG_ALIAS(cublasZdotc_v2, cublasDotEx)
SG(cublasDotEx)(struct blas *h) { return short_kernel(h, "dot_kernel_cublas"); }

SG_ALIAS(cublasSaxpy_v2, cublasAxpyEx)
SG_ALIAS(cublasDaxpy_v2, cublasAxpyEx)
SG_ALIAS(cublasSscal_v2, cublasAxpyEx)
SG_ALIAS(cublasDscal_v2, cublasAxpyEx)
SG(cublasAxpyEx)(struct blas *h) { return short_kernel(h, "axpy_kernel_cublas"); }

SG_ALIAS(cublasSnrm2_v2, cublasNrm2Ex)
SG_ALIAS(cublasDnrm2_v2, cublasNrm2Ex)
SG(cublasNrm2Ex)(struct blas *h) { return short_kernel(h, "nrm2_kernel_cublas"); }

SG_ALIAS(cublasStrsm_v2, cublasDtrsm_v2)
SG_ALIAS(cublasStrsmBatched, cublasDtrsm_v2)
SG_ALIAS(cublasDtrsmBatched, cublasDtrsm_v2)
SG(cublasDtrsm_v2)(struct blas *h) { return short_kernel(h, "trsm_kernel_cublas"); }

static int gemv(struct blas *h, int m, int n, int type) {
  if (h == NULL) return B_INIT;
  uint64_t blocks = (uint64_t)n;
  struct sg_work work = math_work(0, (double)m * n * (double)math_type_bytes(type), blocks, type, 0);
  return math_launch(h->stream, "gemv2T_kernel_val_cublas", blocks, &work) == 0 ? B_OK : B_EXECUTION;
}
SG(cublasSgemv_v2)(struct blas *h, int t, int m, int n) { return (void)t, gemv(h, m, n, R_32F); }
SG(cublasDgemv_v2)(struct blas *h, int t, int m, int n) { return (void)t, gemv(h, m, n, R_64F); }
SG(cublasCgemv_v2)(struct blas *h, int t, int m, int n) { return (void)t, gemv(h, m, n, C_32F); }
SG(cublasZgemv_v2)(struct blas *h, int t, int m, int n) { return (void)t, gemv(h, m, n, C_64F); }
