/* Device memory and pinned memory. */
#include "cu_core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPACE (1ull << 40)
#define GRAIN 4096ull

struct ranges {
  struct range *at;
  size_t count, room;
};

static pthread_mutex_t mem_mu = PTHREAD_MUTEX_INITIALIZER;
static struct ranges device_ranges, host_ranges;
static uint64_t space, space_size, rover;

static size_t position(const struct ranges *r, uint64_t p) {
  size_t low = 0, high = r->count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (r->at[mid].start <= p)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static struct range *find(const struct ranges *r, uint64_t p) {
  size_t i = position(r, p);
  return i > 0 && p - r->at[i - 1].start < r->at[i - 1].size ? &r->at[i - 1] : NULL;
}

static int insert(struct ranges *r, struct range x) {
  size_t i = position(r, x.start);
  if (r->count == r->room) {
    size_t room = r->room == 0 ? 256 : 2 * r->room;
    struct range *more = realloc(r->at, room * sizeof x);
    if (more == NULL) return E_MEMORY;
    r->at = more;
    r->room = room;
  }
  memmove(r->at + i + 1, r->at + i, (r->count - i) * sizeof x);
  r->at[i] = x;
  r->count++;
  return OK;
}

static void erase(struct ranges *r, struct range *x) {
  size_t i = (size_t)(x - r->at);
  memmove(x, x + 1, (r->count - i - 1) * sizeof *x);
  r->count--;
}

/* One reservation of address space, so that "device pointer?" is a comparison. */
static int reserve(void) {
  for (space_size = SPACE; space_size >= 1ull << 32; space_size /= 4) {
    void *p = mmap(NULL, space_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      madvise(p, space_size, MADV_DONTDUMP);
      space = rover = (uint64_t)p;
      return OK;
    }
  }
  return E_MEMORY;
}

static int place(uint64_t size, uint64_t *start) {
  size_t i;
  for (int round = 0; round < 2; round++) {
    uint64_t at = round == 0 ? rover : space;
    i = position(&device_ranges, at);
    if (i > 0 && device_ranges.at[i - 1].start + device_ranges.at[i - 1].size > at)
      at = device_ranges.at[i - 1].start + ((device_ranges.at[i - 1].size + GRAIN - 1) & ~(GRAIN - 1));
    for (;; i++) {
      uint64_t limit = i < device_ranges.count ? device_ranges.at[i].start : space + space_size;
      if (limit - at >= size) {
        *start = at;
        rover = at + size;
        return OK;
      }
      if (i >= device_ranges.count) break;
      at = device_ranges.at[i].start + ((device_ranges.at[i].size + GRAIN - 1) & ~(GRAIN - 1));
    }
  }
  return E_MEMORY;
}

/* Called with mem_mu held. */
static int has_room(int dev, uint64_t bytes) {
  uint64_t taken = SG_CONTEXT_BYTES + dev_table[dev].memory + st_memory_of_others(dev);
  return bytes <= cfg.memory && taken <= cfg.memory - bytes;
}

static void account(int dev, int64_t bytes) {
  dev_table[dev].memory += (uint64_t)bytes;
  st_set_memory(dev, SG_CONTEXT_BYTES + dev_table[dev].memory);
}

/* Takes or gives back memory that is not tied to an address. */
int mem_account(int dev, int64_t bytes) {
  int err = OK;
  pthread_mutex_lock(&mem_mu);
  if (bytes > 0 && !has_room(dev, (uint64_t)bytes))
    err = E_MEMORY;
  else
    account(dev, bytes);
  pthread_mutex_unlock(&mem_mu);
  return err;
}

static int allocate(void **out, uint64_t size, int dev, int flags) {
  uint64_t rounded = (size + GRAIN - 1) & ~(GRAIN - 1), start;
  int err = OK, counts = flags != R_RESERVED;
  if (out == NULL || size == 0) return E_VALUE;
  if (rounded < size) return E_MEMORY;
  pthread_mutex_lock(&mem_mu);
  if (counts && !has_room(dev, rounded))
    err = E_MEMORY;
  else if (space == 0)
    err = reserve();
  if (err == OK) err = place(rounded, &start);
  if (err == OK) {
    struct range x = {start, size, dev, flags};
    err = insert(&device_ranges, x);
    if (err == OK) {
      if (counts) account(dev, (int64_t)rounded);
      *out = (void *)start;
    }
  }
  pthread_mutex_unlock(&mem_mu);
  return err;
}

static int release(void *p) {
  int err = E_VALUE;
  struct range *r;
  pthread_mutex_lock(&mem_mu);
  r = find(&device_ranges, (uint64_t)p);
  if (r != NULL && r->start == (uint64_t)p) {
    uint64_t rounded = (r->size + GRAIN - 1) & ~(GRAIN - 1);
    data_forget(p, rounded);
    madvise(p, rounded, MADV_DONTNEED);
    if (r->flags != R_RESERVED) account(r->dev, -(int64_t)rounded);
    erase(&device_ranges, r);
    err = OK;
  }
  pthread_mutex_unlock(&mem_mu);
  return err;
}

static int lookup(const struct ranges *in, const void *p, struct range *out) {
  struct range *r;
  pthread_mutex_lock(&mem_mu);
  r = find(in, (uint64_t)p);
  if (r != NULL) *out = *r;
  pthread_mutex_unlock(&mem_mu);
  return r != NULL;
}

int mem_find(const void *p, struct range *out) {
  return lookup(&device_ranges, p, out) ? 1 : (lookup(&host_ranges, p, out) ? 2 : 0);
}

int mem_is_device(const void *p) { return space != 0 && (uint64_t)p - space < space_size; }

int mem_holds_no_data(const void *p) {
  struct range r;
  return mem_is_device(p) && !(lookup(&device_ranges, p, &r) && r.flags == R_MANAGED);
}

int mem_is_pinned(const void *p) {
  struct range r;
  return lookup(&host_ranges, p, &r);
}

SG(cuMemAlloc_v2)(void **out, size_t size) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  sg_spin_until(sg_now() + cfg.malloc_ns);
  return allocate(out, size, dev, R_DEVICE);
}

SG(cuMemAllocManaged)(void **out, size_t size, unsigned flags) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  (void)flags;
  sg_spin_until(sg_now() + cfg.malloc_ns);
  return allocate(out, size, dev, R_MANAGED);
}

SG(cuMemAllocPitch_v2)(void **out, size_t *pitch, size_t width, size_t height) {
  if (pitch == NULL) return E_VALUE;
  *pitch = (width + 511) & ~(size_t)511;
  return impl_cuMemAlloc_v2(out, *pitch * height);
}

/* Freeing waits for the device's work, as the real one does in practice. */
SG(cuMemFree_v2)(void *p) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK || p == NULL) return err;
  q_wait_device(dev, sync_how(dev));
  sg_spin_until(sg_now() + cfg.free_ns);
  return release(p);
}

SG(cuMemAllocAsync)(void **out, size_t size, void *stream) {
  struct stream *s;
  int err = stream_get(stream, &s);
  return err != OK ? err : allocate(out, size, s->dev, R_DEVICE);
}
SG(cuMemAllocFromPoolAsync)(void **out, size_t size, void *pool, void *stream) {
  (void)pool;
  return impl_cuMemAllocAsync(out, size, stream);
}
SG(cuMemFreeAsync)(void *p, void *stream) {
  struct stream *s;
  int err = stream_get(stream, &s);
  return err != OK ? err : release(p);
}

/* A kernel's variable: the CPU can see it, as the runtime's own can. */
int mem_variable(void **out, size_t size) {
  int dev, err = cu_enter_context(&dev);
  return err != OK ? err : allocate(out, size, dev, R_MANAGED);
}

static int add_host(void *p, size_t size, int flags) {
  int err;
  struct range x = {(uint64_t)p, size, 0, flags};
  pthread_mutex_lock(&mem_mu);
  err = find(&host_ranges, x.start) != NULL ? 712 : insert(&host_ranges, x);
  pthread_mutex_unlock(&mem_mu);
  return err;
}

static int drop_host(void *p, int flags) {
  struct range *r, copy;
  pthread_mutex_lock(&mem_mu);
  r = find(&host_ranges, (uint64_t)p);
  if (r == NULL || r->start != (uint64_t)p || r->flags != flags) r = NULL;
  if (r != NULL) {
    copy = *r;
    erase(&host_ranges, r);
  }
  pthread_mutex_unlock(&mem_mu);
  if (r != NULL && flags == R_HOST) munmap((void *)copy.start, copy.size);
  return r != NULL ? OK : (flags == R_HOST ? E_VALUE : 713);
}

SG(cuMemHostAlloc)(void **out, size_t size, unsigned flags) {
  int dev, err = cu_enter_context(&dev);
  void *p;
  (void)flags;
  if (err != OK) return err;
  if (out == NULL || size == 0) return E_VALUE;
  sg_spin_until(sg_now() + cfg.host_alloc_ns);
  p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED) return E_MEMORY;
  *out = p;
  return add_host(p, size, R_HOST);
}
SG_ALIAS(cuMemAllocHost, cuMemAllocHost_v2)
SG(cuMemAllocHost_v2)(void **out, size_t size) { return impl_cuMemHostAlloc(out, size, 0); }

/* Waits for the device as freeing its memory does. */
SG(cuMemFreeHost)(void *p) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK || p == NULL) return err;
  q_wait_device(dev, sync_how(dev));
  return drop_host(p, R_HOST);
}
SG_ALIAS(cuMemHostRegister, cuMemHostRegister_v2)
SG(cuMemHostRegister_v2)(void *p, size_t size, unsigned flags) {
  int err = cu_enter();
  (void)flags;
  if (err != OK) return err;
  sg_spin_until(sg_now() + cfg.host_alloc_ns);
  return p == NULL || size == 0 ? E_VALUE : add_host(p, size, R_REGISTERED);
}
SG(cuMemHostUnregister)(void *p) { return drop_host(p, R_REGISTERED); }
SG_ALIAS(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)
SG(cuMemHostGetDevicePointer_v2)(void **out, void *p) {
  *out = p;
  return mem_is_pinned(p) ? OK : E_VALUE;
}
SG(cuMemHostGetFlags)(unsigned *flags, void *p) {
  *flags = 3;
  return mem_is_pinned(p) ? OK : E_VALUE;
}

SG(cuMemGetInfo_v2)(size_t *available, size_t *total) {
  int dev, err = cu_enter_context(&dev);
  uint64_t taken;
  if (err != OK) return err;
  taken = SG_CONTEXT_BYTES + dev_table[dev].memory + st_memory_of_others(dev);
  if (total != NULL) *total = cfg.memory;
  if (available != NULL) *available = taken < cfg.memory ? cfg.memory - taken : 0;
  return OK;
}

SG(cuMemAddressReserve)(void **out, size_t size, size_t alignment, void *wanted, unsigned long long flags) {
  int dev, err = cu_enter_context(&dev);
  (void)alignment, (void)wanted, (void)flags;
  return err != OK ? err : allocate(out, size, dev, R_RESERVED);
}
SG(cuMemAddressFree)(void *p, size_t size) {
  int err = cu_enter();
  (void)size;
  return err != OK ? err : release(p);
}
