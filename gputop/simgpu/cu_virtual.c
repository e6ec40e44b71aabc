/* Physical memory apart from addresses, as expandable segments use it. */
#include "cu_core.h"

#include <stdlib.h>

#define GRANULARITY (2ull << 20)
#define HANDLES 65536

struct physical {
  uint64_t size;
  int dev, users; /* the creator and each mapping */
};

struct mapping {
  uint64_t start, size;
  struct physical *memory;
  struct mapping *next;
};

static struct physical *table;
static size_t used;
static struct mapping *mappings;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

SG(cuMemGetAllocationGranularity)(size_t *out, const void *properties, int option) {
  (void)properties, (void)option;
  if (out == NULL) return E_VALUE;
  *out = GRANULARITY;
  return OK;
}

static struct physical *handle_get(uint64_t handle) {
  if (handle == 0 || handle > used || table[handle - 1].users <= 0) return NULL;
  return &table[handle - 1];
}

static void drop(struct physical *m) {
  if (--m->users == 0) mem_account(m->dev, -(int64_t)m->size);
}

SG(cuMemCreate)(uint64_t *out, size_t size, const void *properties, unsigned long long flags) {
  int dev, err = cu_enter_context(&dev);
  size_t i = 0;
  (void)properties, (void)flags;
  if (err != OK) return err;
  if (out == NULL || size == 0 || size % GRANULARITY != 0) return E_VALUE;
  pthread_mutex_lock(&mu);
  if (table == NULL) table = calloc(HANDLES, sizeof *table);
  while (table != NULL && i < used && table[i].users > 0) i++;
  err = table == NULL || i == HANDLES ? E_MEMORY : mem_account(dev, (int64_t)size);
  if (err == OK) {
    table[i] = (struct physical){size, dev, 1};
    if (i == used) used++;
    *out = i + 1;
  }
  pthread_mutex_unlock(&mu);
  return err;
}

SG(cuMemRelease)(uint64_t handle) {
  struct physical *m;
  pthread_mutex_lock(&mu);
  m = handle_get(handle);
  if (m != NULL) drop(m);
  pthread_mutex_unlock(&mu);
  return m == NULL ? E_VALUE : OK;
}

SG(cuMemMap)(uint64_t start, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  struct physical *m;
  struct mapping *at = malloc(sizeof *at);
  (void)offset, (void)flags;
  if (at == NULL) return E_MEMORY;
  pthread_mutex_lock(&mu);
  m = handle_get(handle);
  if (m != NULL) {
    m->users++;
    *at = (struct mapping){start, size, m, mappings};
    mappings = at;
  }
  pthread_mutex_unlock(&mu);
  if (m != NULL) return OK;
  free(at);
  return E_VALUE;
}

SG(cuMemUnmap)(uint64_t start, size_t size) {
  int found = 0;
  pthread_mutex_lock(&mu);
  for (struct mapping **at = &mappings; *at != NULL;) {
    struct mapping *m = *at;
    if (m->start >= start && m->start + m->size <= start + size) {
      *at = m->next;
      drop(m->memory);
      free(m);
      found = 1;
    } else {
      at = &m->next;
    }
  }
  pthread_mutex_unlock(&mu);
  return found ? OK : E_VALUE;
}

SG(cuMemSetAccess)(void) { return cu_enter(); }
