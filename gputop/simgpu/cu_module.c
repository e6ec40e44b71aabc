/* Modules: the kernels and variables that a program names, and what is known of a kernel. */
#include "cu_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_FUNCTIONS 65536
#define BINS 65536
#define DECLARES "simgpu_" /* in the name of a kernel whose first argument is its duration */
#define SPINS "11spin_kernelEl" /* PyTorch's torch.cuda._sleep: its first argument is a number of clock cycles */
#define VARIABLE_BYTES 65536

static struct function *pool, *bins[BINS];
static size_t used;

static uint32_t hash_of(const char *name) {
  uint32_t hash = 2166136261u;
  for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
  return hash;
}

static struct function *new_function(const char *name, uint32_t hash) {
  struct function *f;
  char *copy;
  if (pool == NULL) {
    pool = mmap(NULL, MAX_FUNCTIONS * sizeof *pool, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  copy = used < MAX_FUNCTIONS ? strdup(name) : NULL;
  if (copy == NULL) return NULL;
  f = &pool[used];
  f->name = copy;
  f->declares = strstr(name, DECLARES) != NULL;
  f->spins = strstr(name, SPINS) != NULL;
  f->rule = rule_for(name);
  f->first_ns = cfg.first_set ? cfg.first_ms * NS_PER_MS : 2 * NS_PER_MS + hash % (23 * NS_PER_MS);
  f->next = bins[hash % BINS];
  bins[hash % BINS] = f;
  __atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
  return f;
}

/* Kernels of one name are one function; the first launch of it loads its code. */
static struct function *function_named(const char *name) {
  uint32_t hash = hash_of(name);
  struct function *f;
  pthread_mutex_lock(&sg_mu);
  for (f = bins[hash % BINS]; f != NULL && strcmp(f->name, name) != 0; f = f->next) {}
  if (f == NULL) f = new_function(name, hash);
  pthread_mutex_unlock(&sg_mu);
  return f;
}

struct function *function_get(void *handle) {
  uintptr_t h = (uintptr_t)handle;
  size_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
  if (n == 0 || h < (uintptr_t)pool || h >= (uintptr_t)(pool + n)) return NULL;
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

/* Lazy, as it is since 11.7 unless the environment says otherwise. */
SG(cuModuleGetLoadingMode)(int *mode) {
  int err = cu_enter();
  if (err != OK) return err;
  if (mode == NULL) return E_VALUE;
  *mode = 2;
  return OK;
}

SG_ALIAS(cuLibraryGetKernel, cuModuleGetFunction)
SG(cuModuleGetFunction)(void **out, void *module, const char *name) {
  if (out == NULL || name == NULL) return E_VALUE;
  if (module == NULL) return E_HANDLE;
  *out = function_named(name);
  return *out == NULL ? E_MEMORY : OK;
}

struct variable {
  void *module, *address;
  char *name;
  struct variable *next;
};

/* Code is not read, so the size of a variable is not known: each has room for what constant memory holds. */
static int variable_named(void **out, size_t *size, void *module, const char *name) {
  static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
  static struct variable *variables;
  struct variable *v;
  int err = OK;
  pthread_mutex_lock(&mu);
  for (v = variables; v != NULL && (v->module != module || strcmp(v->name, name) != 0); v = v->next) {}
  if (v == NULL) {
    v = calloc(1, sizeof *v);
    err = v == NULL ? E_MEMORY : mem_variable(&v->address, VARIABLE_BYTES);
    if (err == OK) {
      v->module = module;
      v->name = strdup(name);
      v->next = variables;
      variables = v;
    }
  }
  if (err == OK && out != NULL) *out = v->address;
  if (err == OK && size != NULL) *size = VARIABLE_BYTES;
  pthread_mutex_unlock(&mu);
  return err;
}

SG(cuModuleGetGlobal_v2)(void **out, size_t *size, void *module, const char *name) {
  if (name == NULL || (out == NULL && size == NULL)) return E_VALUE;
  return module == NULL ? E_HANDLE : variable_named(out, size, module, name);
}
SG_ALIAS(cuLibraryGetManaged, cuLibraryGetGlobal)
SG(cuLibraryGetGlobal)(void **out, size_t *size, void *library, const char *name) {
  return impl_cuModuleGetGlobal_v2(out, size, library, name);
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
  static const int values[] = {1024, 0, 0, 0, 32, 90, 90, 0, SG_SHARED_A_BLOCK, -1};
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
SG_ALIAS(cuFuncLoad, cuFuncSetAttribute)
SG(cuFuncSetAttribute)(void *handle) { return function_get(handle) == NULL ? E_HANDLE : OK; }
SG(cuFuncIsLoaded)(int *state, void *handle) {
  struct function *f = function_get(handle);
  if (state == NULL) return E_VALUE;
  if (f == NULL) return E_HANDLE;
  *state = f->launched;
  return OK;
}
SG(cuKernelSetAttribute)(int attribute, int value, void *handle) {
  (void)attribute, (void)value;
  return function_get(handle) == NULL ? E_HANDLE : OK;
}
