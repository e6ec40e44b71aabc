/* Copies and fills: each form calls the driver function that the real one calls. */
#include "rt_core.h"

#include <string.h>

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_POINTER };

static int copy(void *dst, const void *src, size_t n, int kind) {
  switch (kind) {
    case HOST_TO_DEVICE: return DRVS(cuMemcpyHtoD_v2)(dst, src, n);
    case DEVICE_TO_HOST: return DRVS(cuMemcpyDtoH_v2)(dst, src, n);
    case DEVICE_TO_DEVICE: return DRVS(cuMemcpyDtoD_v2)(dst, src, n);
    case HOST_TO_HOST:
    case BY_POINTER: return DRVS(cuMemcpy)(dst, src, n);
    default: return 21; /* cudaErrorInvalidMemcpyDirection */
  }
}

static int copy_async(void *dst, const void *src, size_t n, int kind, void *stream) {
  switch (kind) {
    case HOST_TO_DEVICE: return DRVS(cuMemcpyHtoDAsync_v2)(dst, src, n, stream);
    case DEVICE_TO_HOST: return DRVS(cuMemcpyDtoHAsync_v2)(dst, src, n, stream);
    case DEVICE_TO_DEVICE: return DRVS(cuMemcpyDtoDAsync_v2)(dst, src, n, stream);
    case HOST_TO_HOST:
    case BY_POINTER: return DRVS(cuMemcpyAsync)(dst, src, n, stream);
    default: return 21;
  }
}

SG(cudaMemcpy)(void *dst, const void *src, size_t n, int kind) { PASS(copy(dst, src, n, kind)); }
SG(cudaMemcpyAsync)(void *dst, const void *src, size_t n, int kind, void *stream) {
  PASS(copy_async(dst, src, n, kind, stream));
}
SG(cudaMemcpyPeer)(void *dst, int dd, const void *src, int sd, size_t n) {
  (void)dd, (void)sd;
  PASS(DRV(cuMemcpyPeer)(dst, NULL, src, NULL, n));
}
SG(cudaMemcpyPeerAsync)(void *dst, int dd, const void *src, int sd, size_t n, void *stream) {
  (void)dd, (void)sd;
  PASS(DRV(cuMemcpyPeerAsync)(dst, NULL, src, NULL, n, stream));
}

/* 13.0 dropped the index of the copy that failed. */
#if SG_MAJOR >= 13
SG(cudaMemcpyBatchAsync)(void **dst, void **src, size_t *sizes, size_t n, void *attributes, size_t *indices,
                         size_t count, void *stream) {
  PASS(DRVS(cuMemcpyBatchAsync_v2)(dst, src, sizes, n, attributes, indices, count, stream));
}
#else
SG(cudaMemcpyBatchAsync)(void **dst, void **src, size_t *sizes, size_t n, void *attributes, size_t *indices,
                         size_t count, size_t *failed, void *stream) {
  PASS(DRVS(cuMemcpyBatchAsync)(dst, src, sizes, n, attributes, indices, count, failed, stream));
}
#endif

static int symbol(const void *host, size_t n, size_t offset, char **address) {
  size_t size;
  int err = rt_enter();
  if (err == RT_OK) err = rt_symbol(host, address, &size);
  if (err == RT_OK && (offset > size || n > size - offset)) err = RT_VALUE;
  if (err == RT_OK) *address += offset;
  return err;
}

SG(cudaMemcpyToSymbol)(const void *host, const void *src, size_t n, size_t offset, int kind) {
  char *address;
  int err = symbol(host, n, offset, &address);
  return rt_done(err != RT_OK ? err : copy(address, src, n, kind));
}
SG(cudaMemcpyFromSymbol)(void *dst, const void *host, size_t n, size_t offset, int kind) {
  char *address;
  int err = symbol(host, n, offset, &address);
  return rt_done(err != RT_OK ? err : copy(dst, address, n, kind));
}
SG(cudaMemcpyToSymbolAsync)(const void *host, const void *src, size_t n, size_t offset, int kind, void *stream) {
  char *address;
  int err = symbol(host, n, offset, &address);
  return rt_done(err != RT_OK ? err : copy_async(address, src, n, kind, stream));
}
SG(cudaMemcpyFromSymbolAsync)(void *dst, const void *host, size_t n, size_t offset, int kind, void *stream) {
  char *address;
  int err = symbol(host, n, offset, &address);
  return rt_done(err != RT_OK ? err : copy_async(dst, address, n, kind, stream));
}

/* The driver's description of a copy of rows: the layouts are those of cuda.h. */
struct end_2d {
  size_t x, y;
  unsigned type;
  const void *host;
  const void *device;
  void *array;
  size_t pitch;
};
struct copy_2d {
  struct end_2d src, dst;
  size_t width, height;
};
struct end_3d {
  size_t x, y, z, lod;
  unsigned type;
  const void *host;
  const void *device;
  void *array, *reserved;
  size_t pitch, height;
};
struct copy_3d {
  struct end_3d src, dst;
  size_t width, height, depth;
};

static unsigned source_type(int kind) { return kind == BY_POINTER ? 4 : (kind <= HOST_TO_DEVICE ? 1 : 2); }
static unsigned target_type(int kind) {
  return kind == BY_POINTER ? 4 : (kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE ? 2 : 1);
}

static struct copy_2d rows(void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h, int kind) {
  return (struct copy_2d){{0, 0, source_type(kind), src, src, NULL, sp}, {0, 0, target_type(kind), dst, dst, NULL, dp},
                          w, h};
}

SG(cudaMemcpy2D)(void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h, int kind) {
  struct copy_2d c = rows(dst, dp, src, sp, w, h, kind);
  PASS(DRVS(cuMemcpy2DUnaligned_v2)(&c));
}
SG(cudaMemcpy2DAsync)(void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h, int kind, void *stream) {
  struct copy_2d c = rows(dst, dp, src, sp, w, h, kind);
  PASS(DRVS(cuMemcpy2DAsync_v2)(&c, stream));
}

struct parameters_3d {
  void *src_array;
  size_t src_pos[3];
  const void *src;
  size_t src_pitch, src_x, src_y;
  void *dst_array;
  size_t dst_pos[3];
  void *dst;
  size_t dst_pitch, dst_x, dst_y;
  size_t width, height, depth;
  int kind;
};

static int volume(const struct parameters_3d *p, struct copy_3d *c) {
  if (p == NULL) return RT_VALUE;
  if (p->src_array != NULL || p->dst_array != NULL) return RT_UNSUPPORTED;
  *c = (struct copy_3d){
      {p->src_pos[0], p->src_pos[1], p->src_pos[2], 0, source_type(p->kind), p->src, p->src, NULL, NULL, p->src_pitch,
       p->src_y},
      {p->dst_pos[0], p->dst_pos[1], p->dst_pos[2], 0, target_type(p->kind), p->dst, p->dst, NULL, NULL, p->dst_pitch,
       p->dst_y},
      p->width, p->height, p->depth};
  return RT_OK;
}

SG(cudaMemcpy3D)(const struct parameters_3d *p) {
  struct copy_3d c;
  int err = volume(p, &c);
  if (err != RT_OK) return rt_done(err);
  PASS(DRVS(cuMemcpy3D_v2)(&c));
}
SG(cudaMemcpy3DAsync)(const struct parameters_3d *p, void *stream) {
  struct copy_3d c;
  int err = volume(p, &c);
  if (err != RT_OK) return rt_done(err);
  PASS(DRVS(cuMemcpy3DAsync_v2)(&c, stream));
}

SG(cudaMemset)(void *p, int value, size_t n) { PASS(DRVS(cuMemsetD8_v2)(p, value & 255, n)); }
SG(cudaMemsetAsync)(void *p, int value, size_t n, void *stream) {
  PASS(DRVS(cuMemsetD8Async)(p, value & 255, n, stream));
}
SG(cudaMemset2D)(void *p, size_t pitch, int value, size_t w, size_t h) {
  PASS(DRVS(cuMemsetD2D8_v2)(p, pitch, value & 255, w, h));
}
SG(cudaMemset2DAsync)(void *p, size_t pitch, int value, size_t w, size_t h, void *stream) {
  PASS(DRVS(cuMemsetD2D8Async)(p, pitch, value & 255, w, h, stream));
}
