/* cuBLASLt: descriptions of matrices and products, one algorithm, one kernel a product. */
#include "blas_core.h"

#include <stdlib.h>
#include <string.h>

enum { LAYOUT_TYPE = 0, LAYOUT_ROWS = 2, LAYOUT_COLUMNS = 3, LAYOUT_COUNT = 5 };
enum { DESC_COMPUTE = 0, DESC_TRANSA = 3, DESC_TRANSB = 4 };

struct layout {
  int32_t type, count;
  uint64_t rows, columns, ignored[4];
}; /* 8 words, as the program's own room for it */

struct product {
  int32_t compute, scale, ta, tb;
  uint64_t ignored[12];
};

struct heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

SG(cublasLtCreate)(void **handle) {
  if (math_ready() != 0) return B_INIT;
  *handle = calloc(1, sizeof(struct blas));
  return *handle == NULL ? B_ALLOC : B_OK;
}
SG(cublasLtDestroy)(void *handle) {
  free(handle);
  return B_OK;
}
SG_TEXT(size_t, cublasLtGetVersion)(void) { return SG_MAJOR * 10000 + 400; }
SG_TEXT(size_t, cublasLtGetCudartVersion)(void) { return SG_MAJOR * 1000; }

SG(cublasLtMatrixLayoutInit_internal)(struct layout *l, size_t size, int type, uint64_t rows, uint64_t columns) {
  if (l == NULL || size < sizeof *l) return B_VALUE;
  *l = (struct layout){.type = type, .count = 1, .rows = rows, .columns = columns};
  return B_OK;
}
SG(cublasLtMatrixLayoutCreate)(struct layout **out, int type, uint64_t rows, uint64_t columns) {
  *out = malloc(sizeof **out);
  return *out == NULL ? B_ALLOC : impl_cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, columns);
}
SG(cublasLtMatrixLayoutDestroy)(struct layout *l) {
  free(l);
  return B_OK;
}
SG(cublasLtMatrixLayoutSetAttribute)(struct layout *l, int attribute, const void *value, size_t size) {
  if (l == NULL || value == NULL) return B_VALUE;
  if (attribute == LAYOUT_TYPE && size >= 4) memcpy(&l->type, value, 4);
  if (attribute == LAYOUT_COUNT && size >= 4) memcpy(&l->count, value, 4);
  if (attribute == LAYOUT_ROWS && size >= 8) memcpy(&l->rows, value, 8);
  if (attribute == LAYOUT_COLUMNS && size >= 8) memcpy(&l->columns, value, 8);
  return B_OK;
}

SG(cublasLtMatmulDescInit_internal)(struct product *p, size_t size, int compute, int scale) {
  if (p == NULL || size < 16) return B_VALUE;
  p->compute = compute;
  p->scale = scale;
  p->ta = p->tb = 0;
  return B_OK;
}
SG(cublasLtMatmulDescCreate)(struct product **out, int compute, int scale) {
  *out = calloc(1, sizeof **out);
  return *out == NULL ? B_ALLOC : impl_cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale);
}
SG(cublasLtMatmulDescDestroy)(struct product *p) {
  free(p);
  return B_OK;
}
SG(cublasLtMatmulDescSetAttribute)(struct product *p, int attribute, const void *value, size_t size) {
  if (p == NULL || value == NULL) return B_VALUE;
  if (attribute == DESC_COMPUTE && size >= 4) memcpy(&p->compute, value, 4);
  if (attribute == DESC_TRANSA && size >= 4) memcpy(&p->ta, value, 4);
  if (attribute == DESC_TRANSB && size >= 4) memcpy(&p->tb, value, 4);
  return B_OK;
}

SG(cublasLtMatmulPreferenceCreate)(void **out) {
  *out = calloc(1, 80);
  return *out == NULL ? B_ALLOC : B_OK;
}
SG(cublasLtMatmulPreferenceDestroy)(void *preference) {
  free(preference);
  return B_OK;
}
SG_ALIAS(cublasLtMatmulPreferenceInit_internal, cublasLtMatmulPreferenceSetAttribute)
SG_ALIAS(cublasLtMatmulAlgoConfigSetAttribute, cublasLtMatmulPreferenceSetAttribute)
SG(cublasLtMatmulPreferenceSetAttribute)(void) { return B_OK; }

static void offer(struct heuristic *result) {
  memset(result, 0, sizeof *result);
  result->algorithm[0] = 1;
  result->waves = 1;
}

SG(cublasLtMatmulAlgoGetHeuristic)(void *handle, const struct product *p, const void *a, const void *b, const void *c,
                                   const void *d, const void *preference, int wanted, struct heuristic *results,
                                   int *returned) {
  (void)handle, (void)p, (void)a, (void)b, (void)c, (void)d, (void)preference;
  if (wanted < 1 || results == NULL || returned == NULL) return B_VALUE;
  offer(results);
  *returned = 1;
  return B_OK;
}
SG(cublasLtMatmulAlgoInit)(void *handle, int compute, int scale, int a, int b, int c, int d, int id,
                           uint64_t *algorithm) {
  (void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d, (void)id;
  memset(algorithm, 0, 64);
  algorithm[0] = 1;
  return B_OK;
}
SG(cublasLtMatmulAlgoCheck)(void *handle, const struct product *p, const void *a, const void *b, const void *c,
                            const void *d, const void *algorithm, struct heuristic *result) {
  (void)handle, (void)p, (void)a, (void)b, (void)c, (void)d, (void)algorithm;
  offer(result);
  return B_OK;
}

/* Layouts describe the matrices as they are stored: the inner length is A's other side. */
SG(cublasLtMatmul)(void *handle, const struct product *p, const void *alpha, const void *a, const struct layout *la,
                   const void *b, const struct layout *lb, const void *beta, const void *c, const struct layout *lc,
                   void *d, const struct layout *ld, const void *algorithm, void *workspace, size_t size,
                   void *stream) {
  (void)handle, (void)alpha, (void)a, (void)b, (void)lb, (void)beta, (void)c, (void)lc, (void)d, (void)algorithm;
  (void)workspace, (void)size;
  if (p == NULL || la == NULL || ld == NULL) return B_VALUE;
  struct blas h = {.stream = stream};
  struct gemm g = {.m = (int64_t)ld->rows,
                   .n = (int64_t)ld->columns,
                   .k = (int64_t)(p->ta != 0 ? la->rows : la->columns),
                   .count = ld->count,
                   .a = la->type,
                   .c = ld->type,
                   .tf32 = la->type == R_32F && p->compute >= 74 && p->compute <= 77,
                   .ta = blas_letter(p->ta),
                   .tb = blas_letter(p->tb)};
  return blas_gemm(&h, &g);
}
