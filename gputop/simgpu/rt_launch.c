/* What compiled programs register, and kernel launches. */
#include "rt_core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KERNELS 131072 /* a power of two */

struct module {
  void *fatbin;
  void *library;
};

struct variable {
  const void *host;
  size_t size;
  char *address;
  struct variable *next;
};

struct entry {
  const void *host;
  void *kernel;
  struct module *module;
  const char *name;
};

static struct entry *table;
static struct variable *variables;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* Finds or makes the entry of a host function; entries are never removed, so readers need no lock. */
static struct entry *entry_of(const void *host, int make) {
  uint64_t i = ((uint64_t)host * 0x9e3779b97f4a7c15ull) >> 40;
  struct entry *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
  if (t == NULL) {
    if (!make) return NULL;
    t = calloc(MAX_KERNELS, sizeof *t);
    if (t == NULL) return NULL;
    __atomic_store_n(&table, t, __ATOMIC_RELEASE);
  }
  for (unsigned tries = 0; tries < MAX_KERNELS; tries++, i++) {
    struct entry *e = &t[i % MAX_KERNELS];
    const void *key = __atomic_load_n(&e->host, __ATOMIC_ACQUIRE);
    if (key == host) return e;
    if (key == NULL) {
      if (!make) return NULL;
      __atomic_store_n(&e->host, host, __ATOMIC_RELEASE);
      return e;
    }
  }
  return NULL;
}

/* Code is loaded at the first launch of a kernel, as the real one does by default since 12.2. */
static int resolve(const void *host, void **kernel) {
  static struct module anonymous = {"anonymous", NULL};
  char name[40];
  int err = RT_OK;
  struct entry *e;
  pthread_mutex_lock(&mu);
  e = entry_of(host, 1);
  if (e == NULL) {
    err = RT_MEMORY;
  } else if (e->kernel == NULL) {
    struct module *m = e->module != NULL ? e->module : &anonymous;
    snprintf(name, sizeof name, "simgpu_kernel_%p", host);
    if (m->library == NULL) err = DRV(cuLibraryLoadData)(&m->library, m->fatbin, NULL, NULL, 0u, NULL, NULL, 0u);
    if (err == RT_OK) err = DRV(cuLibraryGetKernel)(kernel, m->library, e->name != NULL ? e->name : name);
    if (err == RT_OK) {
      struct entry *self = entry_of(*kernel, 1); /* a kernel handle may be launched like a function */
      if (self != NULL) __atomic_store_n(&self->kernel, *kernel, __ATOMIC_RELEASE);
      __atomic_store_n(&e->kernel, *kernel, __ATOMIC_RELEASE);
    }
  }
  if (err == RT_OK) *kernel = e->kernel;
  pthread_mutex_unlock(&mu);
  return err;
}

int rt_kernel(const void *host, void **kernel) {
  struct entry *e;
  if (host == NULL) return RT_FUNCTION;
  e = entry_of(host, 0);
  *kernel = e == NULL ? NULL : __atomic_load_n(&e->kernel, __ATOMIC_ACQUIRE);
  return *kernel != NULL ? RT_OK : resolve(host, kernel);
}

SG(cudaLaunchKernel)(const void *host, struct dim3 g, struct dim3 b, void **arguments, size_t shared, void *stream) {
  void *kernel;
  int err = rt_enter();
  if (err == RT_OK) err = rt_kernel(host, &kernel);
  if (err != RT_OK) return rt_done(err);
  return rt_done(DRVS(cuLaunchKernel)(kernel, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, arguments, NULL));
}
SG(__cudaLaunchKernel)(void) { return RT_UNSUPPORTED; } /* the exported entry jumps to cudaLaunchKernel's */

SG(cudaLaunchCooperativeKernel)(const void *host, struct dim3 g, struct dim3 b, void **arguments, size_t shared,
                                void *stream) {
  void *kernel;
  int err = rt_enter();
  if (err == RT_OK) err = rt_kernel(host, &kernel);
  if (err != RT_OK) return rt_done(err);
  return rt_done(
      DRVS(cuLaunchCooperativeKernel)(kernel, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, arguments));
}

struct launch_config {
  struct dim3 grid, block;
  size_t shared;
  void *stream;
};
struct driver_launch_config {
  struct dim3 grid, block;
  unsigned shared;
  void *stream, *attributes;
  unsigned count;
};

SG(cudaLaunchKernelExC)(const struct launch_config *c, const void *host, void **arguments) {
  void *kernel;
  int err = rt_enter();
  if (c == NULL) return rt_done(RT_VALUE);
  if (err == RT_OK) err = rt_kernel(host, &kernel);
  if (err != RT_OK) return rt_done(err);
  struct driver_launch_config d = {c->grid, c->block, (unsigned)c->shared, c->stream, NULL, 0};
  return rt_done(DRVS(cuLaunchKernelEx)(&d, kernel, arguments, NULL));
}

#define SG_OTHER(type, name) type impl_##name

SG_OTHER(void **, __cudaRegisterFatBinary)(void *fatbin) {
  struct module *m = calloc(1, sizeof *m);
  if (m != NULL) m->fatbin = fatbin;
  return (void **)m;
}
SG_OTHER(void, __cudaRegisterFatBinaryEnd)(void **handle) { (void)handle; }
SG_OTHER(void, __cudaUnregisterFatBinary)(void **handle) { (void)handle; }
SG_OTHER(char, __cudaInitModule)(void **handle) {
  (void)handle;
  return 1;
}

SG_OTHER(void, __cudaRegisterFunction)(void **handle, const char *host, char *device, const char *name) {
  (void)device;
  pthread_mutex_lock(&mu);
  struct entry *e = entry_of(host, 1);
  if (e != NULL) {
    e->module = (struct module *)handle;
    e->name = name;
  }
  pthread_mutex_unlock(&mu);
}

SG_OTHER(void, __cudaRegisterVar)(void **handle, char *host, char *device, const char *name, int ext, size_t size) {
  struct variable *v = calloc(1, sizeof *v);
  (void)handle, (void)device, (void)name, (void)ext;
  if (v == NULL) return;
  pthread_mutex_lock(&mu);
  *v = (struct variable){host, size, NULL, variables};
  variables = v;
  pthread_mutex_unlock(&mu);
}
SG_OTHER(void, __cudaRegisterManagedVar)(void **handle, void **host, char *device, const char *name, int ext,
                                         size_t size) {
  impl___cudaRegisterVar(handle, (char *)host, device, name, ext, size);
  *host = calloc(1, size);
}
SG_OTHER(void, __cudaRegisterHostVar)(void) {}
SG_OTHER(void, __cudaRegisterUnifiedTable)(void) {}

int rt_symbol(const void *host, char **address, size_t *size) {
  int err = RT_OK;
  struct variable *v;
  pthread_mutex_lock(&mu);
  for (v = variables; v != NULL && v->host != host; v = v->next) {}
  if (v == NULL)
    err = 13; /* cudaErrorInvalidSymbol */
  else if (v->address == NULL)
    err = DRV(cuMemAllocManaged)(&v->address, v->size, 1u);
  if (err == RT_OK) {
    *address = v->address;
    *size = v->size;
  }
  pthread_mutex_unlock(&mu);
  return err;
}

SG(__cudaGetKernel)(void **kernel, const void *host) {
  /* The real one resolves lazily as well: the host pointer serves as the handle. */
  *kernel = (void *)(uintptr_t)host;
  return RT_OK;
}
SG(cudaGetKernel)(void **kernel, const void *host) {
  int err = rt_enter();
  return rt_done(err != RT_OK ? err : rt_kernel(host, kernel));
}
SG_ALIAS(cudaGetFuncBySymbol, cudaGetKernel)

struct pushed {
  struct dim3 grid, block;
  size_t shared;
  void *stream;
};
static __thread struct pushed pushed[16];
static __thread int depth;

SG(__cudaPushCallConfiguration)(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
  if (depth >= 16) return 1;
  pushed[depth++] = (struct pushed){grid, block, shared, stream};
  return 0;
}
SG(__cudaPopCallConfiguration)(struct dim3 *grid, struct dim3 *block, size_t *shared, void **stream) {
  if (depth == 0) return 52; /* cudaErrorMissingConfiguration */
  struct pushed p = pushed[--depth];
  *grid = p.grid;
  *block = p.block;
  *shared = p.shared;
  *stream = p.stream;
  return RT_OK;
}
