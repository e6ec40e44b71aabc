/* How many blocks and clusters of a kernel fit on the device at once: by its threads and shared memory. */
#include "cu_core.h"

#define SM_THREADS 2048
#define SM_BLOCKS 32
#define SM_SHARED 233472   /* bytes */
#define BLOCK_RESERVED 1024 /* bytes of it that each block takes for the driver */
#define CLUSTER_DIMENSION 4 /* the launch attribute */
#define LARGEST_CLUSTER 16

/* Multiprocessors of each of the eight GPCs: a cluster lies within one. */
static const int gpc[] = {18, 18, 16, 16, 16, 16, 16, 16};

static int blocks_on_sm(uint64_t threads, size_t shared) {
  uint64_t n;
  if (threads == 0 || threads > 1024 || shared > SG_SHARED_A_BLOCK) return 0;
  n = SM_THREADS / ((threads + 31) / 32 * 32);
  if (n > SM_BLOCKS) n = SM_BLOCKS;
  if (n > SM_SHARED / (shared + BLOCK_RESERVED)) n = SM_SHARED / (shared + BLOCK_RESERVED);
  return (int)n;
}

SG_ALIAS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessor)
SG(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, void *f, int threads, size_t shared) {
  (void)f;
  if (blocks == NULL || threads <= 0) return E_VALUE;
  *blocks = blocks_on_sm((uint64_t)threads, shared);
  return OK;
}

SG(cuOccupancyAvailableDynamicSMemPerBlock)(size_t *bytes, void *f, int blocks, int threads) {
  size_t each;
  if (bytes == NULL || blocks <= 0 || threads <= 0) return E_VALUE;
  if (function_get(f) == NULL) return E_HANDLE;
  if (blocks > blocks_on_sm((uint64_t)threads, 0)) return E_VALUE;
  each = SM_SHARED / (size_t)blocks - BLOCK_RESERVED;
  *bytes = each > SG_SHARED_A_BLOCK ? SG_SHARED_A_BLOCK : each;
  return OK;
}

SG_ALIAS(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSize)
SG(cuOccupancyMaxPotentialBlockSize)(int *grid, int *block) {
  *grid = 2 * SG_SM_COUNT;
  *block = 1024;
  return OK;
}

struct attribute { /* its value has 64 bytes; a cluster's three dimensions come first */
  int id, reserved;
  unsigned value[16];
};
struct cluster_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct attribute *attributes;
  unsigned count;
};

/* Clusters of so many blocks in all GPCs together; fewer the larger they are. */
static int clusters_of(const struct cluster_config *c, uint64_t size) {
  int blocks = blocks_on_sm((uint64_t)c->block[0] * c->block[1] * c->block[2], c->shared), sum = 0;
  for (unsigned i = 0; size > 0 && i < sizeof gpc / sizeof gpc[0]; i++) sum += (int)((uint64_t)(gpc[i] * blocks) / size);
  return sum;
}

SG(cuOccupancyMaxActiveClusters)(int *clusters, void *f, const struct cluster_config *c) {
  uint64_t size = 1;
  if (clusters == NULL || c == NULL) return E_VALUE;
  if (function_get(f) == NULL) return E_HANDLE;
  for (unsigned i = 0; c->attributes != NULL && i < c->count; i++)
    if (c->attributes[i].id == CLUSTER_DIMENSION)
      size = (uint64_t)c->attributes[i].value[0] * c->attributes[i].value[1] * c->attributes[i].value[2];
  if (size == 0 || size > LARGEST_CLUSTER) return E_VALUE;
  *clusters = clusters_of(c, size);
  return OK;
}

/* The portable limit, which every kernel may use unless it asks for more. */
SG(cuOccupancyMaxPotentialClusterSize)(int *size, void *f, const struct cluster_config *c) {
  if (size == NULL || c == NULL) return E_VALUE;
  if (function_get(f) == NULL) return E_HANDLE;
  for (*size = 8; *size > 0 && clusters_of(c, (uint64_t)*size) == 0; *size /= 2) {}
  return OK;
}
