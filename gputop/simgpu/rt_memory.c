/* Allocation and facts about pointers. */
#include "rt_core.h"

#include <string.h>

SG(cudaMalloc)(void **out, size_t size) { PASS(DRV(cuMemAlloc_v2)(out, size)); }
SG(cudaFree)(void *p) { PASS(DRV(cuMemFree_v2)(p)); }
SG(cudaMallocManaged)(void **out, size_t size, unsigned flags) { PASS(DRV(cuMemAllocManaged)(out, size, flags)); }
SG(cudaMallocPitch)(void **out, size_t *pitch, size_t width, size_t height) {
  PASS(DRV(cuMemAllocPitch_v2)(out, pitch, width, height, 4u));
}
SG(cudaMallocHost)(void **out, size_t size) { PASS(DRV(cuMemHostAlloc)(out, size, 0u)); }
SG(cudaHostAlloc)(void **out, size_t size, unsigned flags) { PASS(DRV(cuMemHostAlloc)(out, size, flags)); }
SG(cudaFreeHost)(void *p) { PASS(DRV(cuMemFreeHost)(p)); }
SG(cudaHostRegister)(void *p, size_t size, unsigned flags) { PASS(DRV(cuMemHostRegister_v2)(p, size, flags)); }
SG(cudaHostUnregister)(void *p) { PASS(DRV(cuMemHostUnregister)(p)); }
SG(cudaHostGetDevicePointer)(void **out, void *p, unsigned flags) {
  PASS(DRV(cuMemHostGetDevicePointer_v2)(out, p, flags));
}
SG(cudaHostGetFlags)(unsigned *flags, void *p) { PASS(DRV(cuMemHostGetFlags)(flags, p)); }
SG(cudaMemGetInfo)(size_t *available, size_t *total) { PASS(DRV(cuMemGetInfo_v2)(available, total)); }

SG(cudaMallocAsync)(void **out, size_t size, void *stream) { PASS(DRVS(cuMemAllocAsync)(out, size, stream)); }
SG(cudaMallocFromPoolAsync)(void **out, size_t size, void *pool, void *stream) {
  PASS(DRVS(cuMemAllocFromPoolAsync)(out, size, pool, stream));
}
SG(cudaFreeAsync)(void *p, void *stream) { PASS(DRVS(cuMemFreeAsync)(p, stream)); }
SG(cudaDeviceGetDefaultMemPool)(void **pool, int dev) { PASS(DRV(cuDeviceGetDefaultMemPool)(pool, dev)); }
SG_ALIAS(cudaDeviceGetMemPool, cudaDeviceGetDefaultMemPool)
SG(cudaMemPoolSetAttribute)(void *pool, int a, void *v) { PASS(DRV(cuMemPoolSetAttribute)(pool, a, v)); }
SG(cudaMemPoolGetAttribute)(void *pool, int a, void *v) { PASS(DRV(cuMemPoolGetAttribute)(pool, a, v)); }
SG(cudaMemPoolSetAccess)(void *pool, void *d, size_t n) { PASS(DRV(cuMemPoolSetAccess)(pool, d, n)); }
SG(cudaMemPoolTrimTo)(void *pool, size_t n) { PASS(DRV(cuMemPoolTrimTo)(pool, n)); }
SG(cudaMemPoolCreate)(void **pool, void *p) { PASS(DRV(cuMemPoolCreate)(pool, p)); }
SG(cudaMemPoolDestroy)(void *pool) { PASS(DRV(cuMemPoolDestroy)(pool)); }

struct extent {
  size_t width, height, depth;
};
struct pitched {
  void *p;
  size_t pitch, xsize, ysize;
};

SG(cudaMalloc3D)(struct pitched *out, struct extent e) {
  size_t pitch = (e.width + 511) & ~(size_t)511;
  if (out == NULL) return rt_done(RT_VALUE);
  out->pitch = pitch;
  out->xsize = e.width;
  out->ysize = e.height;
  PASS(DRV(cuMemAlloc_v2)(&out->p, pitch * e.height * e.depth));
}

struct pointer_attributes {
  int type, device;
  const void *device_pointer, *host_pointer;
};

SG(cudaPointerGetAttributes)(struct pointer_attributes *out, const void *p) {
  unsigned type = 0, managed = 0;
  int err = rt_enter(), dev = 0;
  if (err != RT_OK) return rt_done(err);
  if (out == NULL) return rt_done(RT_VALUE);
  *out = (struct pointer_attributes){0, -2, NULL, p};
  if (DRV(cuPointerGetAttribute)(&type, 2, p) != RT_OK) return RT_OK; /* unregistered */
  DRV(cuPointerGetAttribute)(&managed, 8, p);
  DRV(cuPointerGetAttribute)(&dev, 9, p);
  *out = (struct pointer_attributes){managed ? 3 : (type == 2 ? 2 : 1), dev, p, managed || type != 2 ? p : NULL};
  return RT_OK;
}

SG(cudaMemAdvise)(const void *p, size_t n) { PASS(DRV(cuMemAdvise)(p, n, 0, 0)); }
SG_ALIAS(cudaMemAdvise_v2, cudaMemAdvise)
SG(cudaMemPrefetchAsync)(const void *p, size_t n) { PASS(DRVS(cuMemPrefetchAsync)(p, n, 0, NULL)); }
SG_ALIAS(cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync)

SG(cudaGetSymbolAddress)(void **out, const void *symbol) {
  size_t size;
  int err = rt_enter();
  return rt_done(err != RT_OK ? err : rt_symbol(symbol, (char **)out, &size));
}
SG(cudaGetSymbolSize)(size_t *size, const void *symbol) {
  char *address;
  int err = rt_enter();
  return rt_done(err != RT_OK ? err : rt_symbol(symbol, &address, size));
}
