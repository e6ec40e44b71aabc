/* cuDNN: the handle. */
#include "math_core.h"

#include <stdlib.h>

struct dnn {
  void *stream;
};

SG(cudnnCreate)(struct dnn **out) {
  if (math_ready() != 0) return 1001;
  *out = calloc(1, sizeof **out);
  return *out == NULL ? 2003 : 0;
}
SG(cudnnDestroy)(struct dnn *h) {
  free(h);
  return 0;
}
SG(cudnnSetStream)(struct dnn *h, void *stream) {
  h->stream = stream;
  return 0;
}
SG(cudnnGetStream)(struct dnn *h, void **stream) {
  *stream = h->stream;
  return 0;
}
SG_TEXT(size_t, cudnnGetVersion)(void) { return 92600; }
SG_TEXT(size_t, cudnnGetCudartVersion)(void) { return 13020; }
SG(cudnnGetProperty)(int type, int *value) {
  *value = type == 0 ? 9 : type == 1 ? 26 : 0;
  return 0;
}
SG_TEXT(const char *, cudnnGetErrorString)(int status) {
  return status == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
