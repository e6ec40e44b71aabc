/* cuDNN: the handle, tensors and what small facts are asked for. */
#include "dnn_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SG(cudnnCreate)(struct dnn **out) {
  if (out == NULL) return D_PARAM;
  if (math_ready() != 0) return D_INIT;
  *out = calloc(1, sizeof **out);
  return *out == NULL ? D_ALLOC : D_OK;
}
SG(cudnnDestroy)(struct dnn *h) {
  free(h);
  return D_OK;
}
SG(cudnnSetStream)(struct dnn *h, void *stream) {
  if (h == NULL) return D_PARAM;
  h->stream = stream;
  return D_OK;
}
SG(cudnnGetStream)(struct dnn *h, void **stream) {
  if (h == NULL) return D_PARAM;
  *stream = h->stream;
  return D_OK;
}
SG_TEXT(size_t, cudnnGetVersion)(void) { return 92600; }
SG_TEXT(size_t, cudnnGetCudartVersion)(void) { return 13020; }
SG(cudnnGetProperty)(int type, int *value) {
  *value = type == 0 ? 9 : type == 1 ? 26 : 0;
  return D_OK;
}
SG_TEXT(const char *, cudnnGetErrorString)(int status) {
  switch (status) {
    case D_OK: return "CUDNN_STATUS_SUCCESS";
    case D_INIT: return "CUDNN_STATUS_NOT_INITIALIZED";
    case D_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case D_UNSUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}
SG_TEXT(void, cudnnGetLastErrorString)(char *message, size_t size) {
  if (message != NULL && size != 0) snprintf(message, size, "the simulated cuDNN refused");
}

SG_ALIAS(cudnnCreateFilterDescriptor, cudnnCreateTensorDescriptor)
SG(cudnnCreateTensorDescriptor)(struct tensor **out) {
  *out = calloc(1, sizeof **out);
  return *out == NULL ? D_ALLOC : D_OK;
}
SG_ALIAS(cudnnDestroyFilterDescriptor, cudnnDestroyTensorDescriptor)
SG(cudnnDestroyTensorDescriptor)(struct tensor *t) {
  free(t);
  return D_OK;
}
SG(cudnnSetTensorNdDescriptor)(struct tensor *t, int type, int rank, const int *dims, const int *strides) {
  if (t == NULL || rank < 0 || rank > MAX_DIMS) return D_PARAM;
  *t = (struct tensor){.type = type, .rank = rank};
  memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  memcpy(t->strides, strides, (size_t)rank * sizeof *strides);
  return D_OK;
}
SG(cudnnGetTensorNdDescriptor)(const struct tensor *t, int wanted, int *type, int *rank, int *dims, int *strides) {
  if (t == NULL || wanted < 0) return D_PARAM;
  *type = t->type;
  *rank = t->rank;
  for (int i = 0; i < wanted && i < t->rank; i++) dims[i] = t->dims[i], strides[i] = t->strides[i];
  return D_OK;
}
SG(cudnnSetFilterNdDescriptor)(struct tensor *t, int type, int format, int rank, const int *dims) {
  if (t == NULL || rank < 0 || rank > MAX_DIMS) return D_PARAM;
  *t = (struct tensor){.type = type, .format = format, .rank = rank};
  memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  return D_OK;
}
SG(cudnnGetFilterNdDescriptor)(const struct tensor *t, int wanted, int *type, int *format, int *rank, int *dims) {
  if (t == NULL || wanted < 0) return D_PARAM;
  *type = t->type;
  *format = t->format;
  *rank = t->rank;
  for (int i = 0; i < wanted && i < t->rank; i++) dims[i] = t->dims[i];
  return D_OK;
}

int dnn_data_type(int type) {
  static const int types[] = {R_32F, R_64F, R_16F, R_8I, R_32I, R_8I, R_8I, R_8I, R_8I, R_16BF, R_64F, R_8I,
                              R_8F_E4M3, R_8F_E5M2};
  return type >= 0 && (size_t)type < sizeof types / sizeof types[0] ? types[type] : R_32F;
}

const char *dnn_type_name(int type) {
  static const char *const names[] = {"f32", "f64", "f16", "i8"};
  return type >= 0 && type < 4 ? names[type] : type == 9 ? "bf16" : type == 12 ? "e4m3" : type == 13 ? "e5m2" : "f32";
}

double dnn_bytes(const struct tensor *t) {
  double bytes = t == NULL ? 0 : (double)math_type_bytes(dnn_data_type(t->type));
  for (int i = 0; t != NULL && i < t->rank; i++) bytes *= t->dims[i];
  return bytes;
}

int dnn_run(struct dnn *h, const char *name, uint64_t blocks, const struct sg_work *work) {
  if (h == NULL) return D_PARAM;
  return math_launch(h->stream, name, blocks, work) == 0 ? D_OK : D_EXECUTION;
}

/* A kernel that only reads and writes: so many bytes, 16 KB a block. */
int dnn_pass(struct dnn *h, const char *name, double bytes) {
  uint64_t blocks = 1 + (uint64_t)(bytes / 16384);
  struct sg_work work = math_work(0, bytes, blocks, R_32F, 0);
  return dnn_run(h, name, blocks, &work);
}
