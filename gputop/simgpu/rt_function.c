/* What is known of a kernel: its attributes, and how many of its blocks fit. */
#include "rt_core.h"

#include <string.h>

SG(cudaFuncGetAttributes)(void *out, const void *host) {
  void *kernel;
  int err = rt_enter(), values[] = {1024, 32, 90, 90, 0, 232448, -1};
  if (err == RT_OK) err = rt_kernel(host, &kernel);
  if (err != RT_OK) return rt_done(err);
  memset(out, 0, 144);
  memcpy((char *)out + 24, values, sizeof values);
  return RT_OK;
}
SG(cudaFuncSetAttribute)(const void *host, int attribute, int value) {
  void *kernel;
  int err = rt_enter();
  if (err == RT_OK) err = rt_kernel(host, &kernel);
  return rt_done(err != RT_OK ? err : DRV(cuFuncSetAttribute)(kernel, attribute, value));
}
SG_ALIAS(cudaFuncSetCacheConfig, cudaFuncSetAttribute)
SG_ALIAS(cudaFuncSetSharedMemConfig, cudaFuncSetAttribute)

/* A driver call about a kernel that stands after its result. */
#define OF_KERNEL(host, call)                  \
  do {                                         \
    void *kernel;                              \
    int err = rt_enter();                      \
    if (err == RT_OK) err = rt_kernel(host, &kernel); \
    return rt_done(err != RT_OK ? err : (call)); \
  } while (0)

SG_ALIAS(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessor)
SG(cudaOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, const void *host, int threads, size_t shared) {
  OF_KERNEL(host, DRV(cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, kernel, threads, shared));
}
SG(cudaOccupancyAvailableDynamicSMemPerBlock)(size_t *bytes, const void *host, int blocks, int threads) {
  OF_KERNEL(host, DRV(cuOccupancyAvailableDynamicSMemPerBlock)(bytes, kernel, blocks, threads));
}

struct cluster_config {
  struct dim3 grid, block;
  size_t shared;
  void *stream, *attributes;
  unsigned count;
};
struct driver_config {
  struct dim3 grid, block;
  unsigned shared;
  void *stream, *attributes;
  unsigned count;
};
static struct driver_config driver_config(const struct cluster_config *c) {
  return (struct driver_config){c->grid, c->block, (unsigned)c->shared, c->stream, c->attributes, c->count};
}

SG(cudaOccupancyMaxActiveClusters)(int *clusters, const void *host, const struct cluster_config *c) {
  if (c == NULL) return rt_done(RT_VALUE);
  struct driver_config d = driver_config(c);
  OF_KERNEL(host, DRV(cuOccupancyMaxActiveClusters)(clusters, kernel, &d));
}
SG(cudaOccupancyMaxPotentialClusterSize)(int *size, const void *host, const struct cluster_config *c) {
  if (c == NULL) return rt_done(RT_VALUE);
  struct driver_config d = driver_config(c);
  OF_KERNEL(host, DRV(cuOccupancyMaxPotentialClusterSize)(size, kernel, &d));
}
