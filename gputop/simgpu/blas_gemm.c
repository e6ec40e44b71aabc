/* cuBLAS: products of matrices, one kernel each, as long as m, n, k and the type ask for. */
#include "blas_core.h"

#define PLAIN struct blas *h, int ta, int tb, int m, int n, int k

char blas_letter(int operation) { return operation == 0 ? 'n' : operation == 1 ? 't' : 'c'; }

int blas_gemm(struct blas *h, const struct gemm *g) {
  char name[192];
  if (h == NULL) return B_INIT;
  if (g->m < 0 || g->n < 0 || g->k < 0 || g->count < 0) return B_VALUE;
  if (g->m == 0 || g->n == 0 || g->count == 0) return B_OK;
  math_gemm_name(name, sizeof name, g);
  struct sg_work work = math_gemm_work(g);
  uint64_t blocks = sg_gemm_blocks((uint64_t)g->m, (uint64_t)g->n, (uint64_t)g->count);
  return math_launch(h->stream, name, blocks, &work) == 0 ? B_OK : B_EXECUTION;
}

static int gemm(PLAIN, int count, int a, int c, int fast) {
  if (h == NULL) return B_INIT;
  int tf32 = (a == R_32F || a == C_32F) && (fast || (h->math_mode & 15) == TF32_MATH);
  struct gemm g = {m, n, k, count, a, c, tf32, blas_letter(ta), blas_letter(tb)};
  return blas_gemm(h, &g);
}

/* cublasComputeType_t: 74 to 77 let fp32 operands lose digits. */
static int fast(int compute) { return compute >= 74 && compute <= 77; }

SG(cublasSgemm_v2)(PLAIN) { return gemm(h, ta, tb, m, n, k, 1, R_32F, R_32F, 0); }
SG(cublasDgemm_v2)(PLAIN) { return gemm(h, ta, tb, m, n, k, 1, R_64F, R_64F, 0); }
SG(cublasCgemm_v2)(PLAIN) { return gemm(h, ta, tb, m, n, k, 1, C_32F, C_32F, 0); }
SG(cublasZgemm_v2)(PLAIN) { return gemm(h, ta, tb, m, n, k, 1, C_64F, C_64F, 0); }
SG(cublasHgemm)(PLAIN) { return gemm(h, ta, tb, m, n, k, 1, R_16F, R_16F, 0); }

SG(cublasSgemmEx)(PLAIN, const void *alpha, const void *a, int type) {
  (void)alpha, (void)a;
  return gemm(h, ta, tb, m, n, k, 1, type, type, 0);
}

SG(cublasGemmEx)(PLAIN, const void *alpha, const void *a, int ta_, int lda, const void *b, int tb_, int ldb,
                 const void *beta, void *c, int tc, int ldc, int compute) {
  (void)alpha, (void)a, (void)lda, (void)b, (void)tb_, (void)ldb, (void)beta, (void)c, (void)ldc;
  return gemm(h, ta, tb, m, n, k, 1, ta_, tc, fast(compute));
}
SG(cublasGemmBatchedEx)(PLAIN, const void *alpha, const void *a, int ta_, int lda, const void *b, int tb_, int ldb,
                        const void *beta, void *c, int tc, int ldc, int count, int compute) {
  (void)alpha, (void)a, (void)lda, (void)b, (void)tb_, (void)ldb, (void)beta, (void)c, (void)ldc;
  return gemm(h, ta, tb, m, n, k, count, ta_, tc, fast(compute));
}
SG(cublasGemmStridedBatchedEx)(PLAIN, const void *alpha, const void *a, int ta_, int lda, long long sa, const void *b,
                               int tb_, int ldb, long long sb, const void *beta, void *c, int tc, int ldc,
                               long long sc, int count, int compute) {
  (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)tb_, (void)ldb, (void)sb, (void)beta, (void)c, (void)ldc;
  (void)sc;
  return gemm(h, ta, tb, m, n, k, count, ta_, tc, fast(compute));
}

#define STRIDED                                                                                                 \
  PLAIN, const void *alpha, const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const void *beta, void *c, \
      int ldc, long long sc, int count
#define UNUSED_STRIDED (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)ldb, (void)sb, (void)beta, (void)c, (void)ldc, (void)sc

SG(cublasSgemmStridedBatched)(STRIDED) {
  UNUSED_STRIDED;
  return gemm(h, ta, tb, m, n, k, count, R_32F, R_32F, 0);
}
SG(cublasDgemmStridedBatched)(STRIDED) {
  UNUSED_STRIDED;
  return gemm(h, ta, tb, m, n, k, count, R_64F, R_64F, 0);
}
SG(cublasCgemmStridedBatched)(STRIDED) {
  UNUSED_STRIDED;
  return gemm(h, ta, tb, m, n, k, count, C_32F, C_32F, 0);
}
SG(cublasZgemmStridedBatched)(STRIDED) {
  UNUSED_STRIDED;
  return gemm(h, ta, tb, m, n, k, count, C_64F, C_64F, 0);
}
SG(cublasHgemmStridedBatched)(STRIDED) {
  UNUSED_STRIDED;
  return gemm(h, ta, tb, m, n, k, count, R_16F, R_16F, 0);
}

#define BATCHED                                                                                              \
  PLAIN, const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc, \
      int count
#define UNUSED_BATCHED (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc

SG(cublasSgemmBatched)(BATCHED) {
  UNUSED_BATCHED;
  return gemm(h, ta, tb, m, n, k, count, R_32F, R_32F, 0);
}
SG(cublasDgemmBatched)(BATCHED) {
  UNUSED_BATCHED;
  return gemm(h, ta, tb, m, n, k, count, R_64F, R_64F, 0);
}
SG(cublasCgemmBatched)(BATCHED) {
  UNUSED_BATCHED;
  return gemm(h, ta, tb, m, n, k, count, C_32F, C_32F, 0);
}
SG(cublasZgemmBatched)(BATCHED) {
  UNUSED_BATCHED;
  return gemm(h, ta, tb, m, n, k, count, C_64F, C_64F, 0);
}
