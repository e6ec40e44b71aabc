/* Modules, functions and kernel launches. */
#include "cu_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FUNCTIONS 65536
#define LONGEST_KERNEL (60 * NS_PER_S)
#define FUNCTION_LIVE 0x46554e43u

static struct function *pool;
static size_t used;

/* Kernels of one name are one function; the first launch of it loads its code. */
static struct function *function_named(const char *name) {
  struct function *f = NULL;
  size_t i;
  uint32_t hash = 2166136261u;
  for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
  pthread_mutex_lock(&sg_mu);
  if (pool == NULL) {
    pool = mmap(NULL, MAX_FUNCTIONS * sizeof *pool, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  for (i = 0; i < used && strncmp(pool[i].name, name, sizeof pool[i].name - 1) != 0; i++) {}
  if (i < used) {
    f = &pool[i];
  } else if (used < MAX_FUNCTIONS) {
    f = &pool[used++];
    f->live = FUNCTION_LIVE;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->first_ns = cfg.first_set ? cfg.first_ms * NS_PER_MS : 2 * NS_PER_MS + hash % (23 * NS_PER_MS);
  }
  pthread_mutex_unlock(&sg_mu);
  return f;
}

static struct function *function_get(void *handle) {
  uintptr_t h = (uintptr_t)handle;
  if (pool == NULL || h < (uintptr_t)pool || h >= (uintptr_t)(pool + used)) return NULL;
  return (h - (uintptr_t)pool) % sizeof *pool == 0 ? handle : NULL;
}

SG_ALIAS(cuModuleLoadDataEx, cuModuleLoadData)
SG_ALIAS(cuModuleLoadFatBinary, cuModuleLoadData)
SG_ALIAS(cuModuleLoad, cuModuleLoadData)
SG_ALIAS(cuLibraryLoadData, cuModuleLoadData)
SG_ALIAS(cuLibraryLoadFromFile, cuModuleLoadData)
SG(cuModuleLoadData)(void **module, const void *image) {
  static uint64_t modules;
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  if (module == NULL || image == NULL) return E_VALUE;
  sg_spin_until(sg_now() + cfg.module_ns);
  *module = (void *)(uintptr_t)(0x6d000000ull + 16 * __atomic_add_fetch(&modules, 1, __ATOMIC_RELAXED));
  return OK;
}

SG_ALIAS(cuLibraryUnload, cuModuleUnload)
SG(cuModuleUnload)(void *module) { return module == NULL ? E_HANDLE : OK; }

SG_ALIAS(cuLibraryGetKernel, cuModuleGetFunction)
SG(cuModuleGetFunction)(void **out, void *module, const char *name) {
  if (out == NULL || name == NULL) return E_VALUE;
  if (module == NULL) return E_HANDLE;
  *out = function_named(name);
  return *out == NULL ? E_MEMORY : OK;
}

SG(cuKernelGetFunction)(void **out, void *kernel) {
  *out = kernel;
  return function_get(kernel) == NULL ? E_HANDLE : OK;
}

SG(cuLibraryGetModule)(void **out, void *library) {
  *out = library;
  return OK;
}

SG_ALIAS(cuKernelGetName, cuFuncGetName)
SG(cuFuncGetName)(const char **name, void *handle) {
  struct function *f = function_get(handle);
  if (f == NULL || name == NULL) return E_HANDLE;
  *name = f->name;
  return OK;
}

SG(cuFuncGetAttribute)(int *value, int attribute, void *handle) {
  static const int values[] = {1024, 0, 0, 0, 32, 90, 90, 0, 232448, -1};
  if (value == NULL || attribute < 0) return E_VALUE;
  if (function_get(handle) == NULL) return E_HANDLE;
  *value = attribute < 10 ? values[attribute] : 0;
  return OK;
}
SG(cuKernelGetAttribute)(int *value, int attribute, void *handle, int dev) {
  (void)dev;
  return impl_cuFuncGetAttribute(value, attribute, handle);
}
SG_ALIAS(cuFuncSetCacheConfig, cuFuncSetAttribute)
SG_ALIAS(cuFuncSetSharedMemConfig, cuFuncSetAttribute)
SG_ALIAS(cuKernelSetCacheConfig, cuFuncSetAttribute)
SG(cuFuncSetAttribute)(void *handle) { return function_get(handle) == NULL ? E_HANDLE : OK; }
SG(cuKernelSetAttribute)(int attribute, int value, void *handle) {
  (void)attribute, (void)value;
  return function_get(handle) == NULL ? E_HANDLE : OK;
}

static int on_own_stack(const void *p) {
  static __thread uintptr_t top;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0), at = (uintptr_t)p;
  if (top == 0) {
    pthread_attr_t attr;
    void *low;
    size_t size;
    top = 1;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
      if (pthread_attr_getstack(&attr, &low, &size) == 0) top = (uintptr_t)low + size;
      pthread_attr_destroy(&attr);
    }
  }
  return at >= here && top >= 8 && at <= top - 8;
}

/* Reads eight bytes that may not be there; a program's stack is, anything else is asked of the kernel. */
static int read_word(const void *p, uint64_t *value) {
  if (on_own_stack(p)) {
    memcpy(value, p, 8);
    return 1;
  }
  struct iovec to = {value, 8}, from = {(void *)(uintptr_t)p, 8};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 8;
}

/* The duration a workload asks for stands in the kernel's first argument. */
uint64_t kernel_duration(void **arguments) {
  uint64_t pointer, value;
  if (!cfg.read_argument || arguments == NULL || !read_word(arguments, &pointer)) return cfg.kernel_ns;
  if (pointer < 4096 || !read_word((const void *)pointer, &value)) return cfg.kernel_ns;
  return value != 0 && value <= LONGEST_KERNEL ? value : cfg.kernel_ns;
}

static __thread struct sg_joint *next_joint;

void cu_next_launch(struct sg_joint *joint) { next_joint = joint; }

/* The CPU time of a launch. */
void cu_launch_cost(uint64_t entered) {
  if (!cfg.launch_set)
    sg_spin_until(entered + sg_jitter(3 * NS_PER_US, 6 * NS_PER_US));
  else if (cfg.launch_ns != 0)
    sg_spin_until(entered + cfg.launch_ns);
}

static int launch(void *handle, void *stream, void **arguments) {
  struct function *f = function_get(handle);
  struct stream *s;
  struct op op = {.type = next_joint != NULL ? OP_JOINT : OP_WORK, .kind = K_KERNEL, .joint = next_joint};
  int err = stream_get(stream, &s);
  uint64_t from = sg_entered;
  next_joint = NULL;
  if (err != OK) return err;
  if (f == NULL) return E_HANDLE;
  op.duration = kernel_duration(arguments);
  if (!f->launched && !__atomic_exchange_n(&f->launched, 1, __ATOMIC_RELAXED)) {
    sg_spin_until(sg_now() + f->first_ns);
    from = sg_now();
  }
  if (op.joint != NULL && s->capture != NULL) return E_CAPTURE; /* a captured collective is not simulated */
  if (s->capture == NULL) q_wait_room(s);
  cu_launch_cost(from);
  pthread_mutex_lock(&sg_mu);
  err = s->capture != NULL ? capture_add(s, op) : (q_put(s, op), OK);
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG(cuLaunchKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  (void)shared, (void)extra;
  if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || (uint64_t)bx * by * bz > 1024) return E_VALUE;
  return launch(f, stream, arguments);
}

SG(cuLaunchCooperativeKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *stream, void **arguments) {
  return impl_cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, NULL);
}

struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
};

SG(cuLaunchKernelEx)(const struct launch_config *c, void *f, void **arguments, void **extra) {
  if (c == NULL) return E_VALUE;
  return impl_cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                             c->stream, arguments, extra);
}

SG(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, void *f, int threads, size_t shared) {
  (void)f, (void)shared;
  if (blocks == NULL || threads <= 0) return E_VALUE;
  *blocks = threads > 1024 ? 0 : 2048 / (threads < 64 ? 64 : threads);
  return OK;
}
SG_ALIAS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessor)
SG(cuOccupancyMaxPotentialBlockSize)(int *grid, int *block) {
  *grid = 2 * SG_SM_COUNT;
  *block = 1024;
  return OK;
}
SG_ALIAS(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSize)
