/* Initialisation, devices, contexts. */
#include "cu_core.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config cfg;
struct device dev_table[SG_MAX_DEVICES];
__thread unsigned char sg_ptds;

static int initialised;
static pthread_mutex_t init_mu = PTHREAD_MUTEX_INITIALIZER;
static __thread struct context *stack[16];
static __thread int depth;

static uint64_t read_set(const char *name, int *set) {
  *set = getenv(name) != NULL;
  return sg_env_u64(name, 0);
}

static double read_rate(const char *name, double fallback) {
  const char *text = getenv(name);
  double value = text == NULL ? 0 : atof(text);
  return value > 0 ? value : fallback;
}

/* CUDA_VISIBLE_DEVICES in its plain form: numbers, in order, up to the first that does not exist. */
static void read_visible(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  int n = 0, all = cfg.devices;
  for (int i = 0; i < all; i++) cfg.visible[i] = i;
  if (text == NULL) return;
  while (n < all && *text >= '0' && *text <= '9') {
    char *end;
    long i = strtol(text, &end, 10);
    if (i >= all) break;
    cfg.visible[n++] = (int)i;
    text = *end == ',' ? end + 1 : end;
  }
  cfg.devices = n;
}

void cfg_read(void) {
  const char *d2h = getenv("SIMGPU_D2H"), *sync = getenv("SIMGPU_SYNC");
  cfg.devices = (int)sg_env_u64("SIMGPU_DEVICES", 1);
  if (cfg.devices > SG_MAX_DEVICES) cfg.devices = SG_MAX_DEVICES;
  cfg.memory = sg_env_u64("SIMGPU_MEMORY_MIB", 81920) << 20;
  cfg.kernel_ns = sg_env_u64("SIMGPU_KERNEL_NS", 5000);
  cfg.launch_ns = read_set("SIMGPU_LAUNCH_NS", &cfg.launch_set);
  cfg.latency_ns = read_set("SIMGPU_LATENCY_NS", &cfg.latency_set);
  cfg.first_ms = read_set("SIMGPU_FIRST_LAUNCH_MS", &cfg.first_set);
  cfg.init_ms = sg_env_u64("SIMGPU_INIT_MS", 150);
  cfg.malloc_ns = sg_env_u64("SIMGPU_MALLOC_NS", 20000);
  cfg.free_ns = sg_env_u64("SIMGPU_FREE_NS", 10000);
  cfg.host_alloc_ns = sg_env_u64("SIMGPU_HOST_ALLOC_NS", 20000);
  cfg.instantiate_ns = read_set("SIMGPU_GRAPH_INSTANTIATE_NS", &cfg.instantiate_set);
  cfg.module_ns = sg_env_u64("SIMGPU_MODULE_LOAD_NS", 100000);
  cfg.may_throttle = getenv("SIMGPU_NVML_FAULT") != NULL || getenv("SIMGPU_NVML_FAULT_FILE") != NULL;
  cfg.data_limit = sg_env_u64("SIMGPU_DATA_KIB", 64) << 10;
  cfg.sync_default = sync != NULL && strcmp(sync, "block") == 0 ? SCHED_BLOCK : SCHED_SPIN;
  cfg.d2h_in_sync = d2h != NULL && strcmp(d2h, "sync") == 0;
  cfg.pcie = read_rate("SIMGPU_PCIE_GBPS", 12);
  cfg.device_memory = 1500;
  fault_read();
}

/* In the child of a process that used CUDA nothing works, as in reality. The mark lies in the wiped page. */
static int forked(void) { return sg_cell[2] == 0; }

int cu_enter(void) {
  if (!initialised) return E_INIT;
  return forked() ? E_INIT : OK;
}

/* As the real driver does: a library that the environment names is loaded, and starts; what it returns is ignored. */
static void inject(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *library = path == NULL || *path == '\0' ? NULL : dlopen(path, RTLD_NOW);
  void (*start)(void) = library == NULL ? NULL : (void (*)(void))dlsym(library, "InitializeInjection");
  if (start != NULL) start();
}

SG(cuInit)(unsigned flags) {
  if (flags != 0) return E_VALUE;
  if (initialised) return forked() ? E_INIT : OK;
  pthread_mutex_lock(&init_mu);
  if (!initialised) {

    cfg_read();
    st_open();
    read_visible();
    sg_cell[2] = 1;
    for (int i = 0; i < cfg.devices; i++)
      dev_table[i].context = (struct context){.live = 1, .dev = i, .primary = 1};
    inject();
    __atomic_store_n(&initialised, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&init_mu);
  return cfg.devices == 0 ? E_NO_DEVICE : OK;
}

/* Creating a process's context takes long: a third of it computes, the rest waits for the device. */
static void make_context(int dev) {
  static int paid;
  struct device *d = &dev_table[dev];
  pthread_mutex_lock(&init_mu);
  if (!d->context_made) {
    uint64_t ns = paid ? 0 : cfg.init_ms * NS_PER_MS, now = sg_now();
    paid = 1;
    sg_spin_until(now + ns / 3);
    q_wait_until(now + ns, SCHED_BLOCK);
    pthread_mutex_lock(&sg_mu);
    d->legacy = stream_new(dev, 0, 0);
    d->memory = 0;
    st_set_memory(dev, SG_CONTEXT_BYTES);
    pthread_mutex_unlock(&sg_mu);
    d->context_made = 1;
  }
  pthread_mutex_unlock(&init_mu);
}

int cu_enter_context(int *dev) {
  struct context *c = depth > 0 ? stack[depth - 1] : NULL;
  if (!initialised || forked()) return E_INIT;
  if (c == NULL) return E_CONTEXT;
  *dev = c->dev;
  return fault_now();
}

SG(cuDriverGetVersion)(int *version) {
  if (version == NULL) return E_VALUE;
  *version = SG_DRIVER_VERSION;
  return OK;
}

static int device_ok(int dev) {
  int err = cu_enter();
  return err != OK ? err : (dev >= 0 && dev < cfg.devices ? OK : E_DEVICE);
}

SG(cuDeviceGetCount)(int *count) {
  int err = cu_enter();
  if (err == OK) *count = cfg.devices;
  return err;
}

SG(cuDeviceGet)(int *dev, int ordinal) {
  int err = device_ok(ordinal);
  if (err == OK) *dev = ordinal;
  return err;
}

SG_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)
SG_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxRelease_v2)
SG_ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRelease_v2)
SG(cuDevicePrimaryCtxRelease_v2)(int dev) { return device_ok(dev); }

SG(cuDevicePrimaryCtxRetain)(void **ctx, int dev) {
  int err = device_ok(dev);
  if (err != OK) return err;
  make_context(dev);
  dev_table[dev].retained++;
  *ctx = &dev_table[dev].context;
  return OK;
}

SG_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)
SG(cuDevicePrimaryCtxSetFlags_v2)(int dev, unsigned flags) {
  int err = device_ok(dev);
  if (err == OK) dev_table[dev].flags = flags;
  return err;
}

SG(cuDevicePrimaryCtxGetState)(int dev, unsigned *flags, int *active) {
  int err = device_ok(dev);
  if (err != OK) return err;
  *flags = dev_table[dev].flags;
  *active = dev_table[dev].retained > 0;
  return OK;
}

static int context_ok(struct context *c) {
  for (int i = 0; i < cfg.devices; i++)
    if (c == &dev_table[i].context) return 1;
  return 0;
}

SG(cuCtxSetCurrent)(struct context *c) {
  int err = cu_enter();
  if (err != OK) return err;
  if (c == NULL) {
    depth = 0;
    return OK;
  }
  if (!context_ok(c)) return E_CONTEXT;
  if (depth == 0) depth = 1;
  stack[depth - 1] = c;
  return OK;
}

SG(cuCtxGetCurrent)(void **out) {
  int err = cu_enter();
  if (err == OK) *out = depth > 0 ? stack[depth - 1] : NULL;
  return err;
}

SG_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2)
SG(cuCtxPushCurrent_v2)(struct context *c) {
  int err = cu_enter();
  if (err != OK) return err;
  if (!context_ok(c) || depth >= 16) return E_CONTEXT;
  stack[depth++] = c;
  return OK;
}

SG_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2)
SG(cuCtxPopCurrent_v2)(void **out) {
  if (depth == 0) return E_CONTEXT;
  depth--;
  if (out != NULL) *out = stack[depth];
  return OK;
}

/* Every context of a device is its primary one: streams and memory are per device here. */
static int create(void **out, unsigned flags, int dev) {
  int err = device_ok(dev);
  if (err != OK) return err;
  make_context(dev);
  dev_table[dev].flags = flags;
  dev_table[dev].retained++;
  *out = &dev_table[dev].context;
  return impl_cuCtxPushCurrent_v2(&dev_table[dev].context);
}

SG_ALIAS(cuCtxCreate, cuCtxCreate_v2)
SG(cuCtxCreate_v2)(void **out, unsigned flags, int dev) { return create(out, flags, dev); }
SG(cuCtxCreate_v3)(void **out, void *params, int n, unsigned flags, int dev) {
  (void)params, (void)n;
  return create(out, flags, dev);
}
SG(cuCtxCreate_v4)(void **out, void *params, unsigned flags, int dev) {
  (void)params;
  return create(out, flags, dev);
}

SG_ALIAS(cuCtxDestroy, cuCtxDestroy_v2)
SG(cuCtxDestroy_v2)(struct context *c) {
  if (!context_ok(c)) return E_CONTEXT;
  if (depth > 0 && stack[depth - 1] == c) depth--;
  return OK;
}

SG(cuCtxGetDevice)(int *dev) { return cu_enter_context(dev); }
SG(cuCtxGetDevice_v2)(int *dev, struct context *c) {
  int err = cu_enter();
  if (err != OK) return err;
  if (dev == NULL) return E_VALUE;
  if (c == NULL) return cu_enter_context(dev);
  if (!context_ok(c)) return E_CONTEXT;
  *dev = c->dev;
  return OK;
}

SG(cuCtxGetFlags)(unsigned *flags) {
  int dev, err = cu_enter_context(&dev);
  if (err == OK) *flags = dev_table[dev].flags;
  return err;
}

SG(cuCtxSetFlags)(unsigned flags) {
  int dev, err = cu_enter_context(&dev);
  if (err == OK) dev_table[dev].flags = flags;
  return err;
}

SG(cuCtxGetApiVersion)(void *ctx, unsigned *version) {
  (void)ctx;
  *version = 3020;
  return OK;
}

SG(cuCtxGetLimit)(size_t *value, int limit) {
  static const size_t values[] = {1024, 1 << 20, 8 << 20, 2, 2048};
  if (value == NULL || limit < 0) return E_VALUE;
  *value = limit < 5 ? values[limit] : 128;
  return OK;
}
SG(cuCtxSetLimit)(void) { return OK; }
SG_ALIAS(cuCtxSetCacheConfig, cuCtxSetLimit)
SG_ALIAS(cuCtxResetPersistingL2Cache, cuCtxSetLimit)
SG_ALIAS(cuCtxEnablePeerAccess, cuCtxSetLimit)
SG_ALIAS(cuCtxDisablePeerAccess, cuCtxSetLimit)
SG_ALIAS(cuProfilerStart, cuCtxSetLimit)
SG_ALIAS(cuProfilerStop, cuCtxSetLimit)
SG(cuCtxGetCacheConfig)(int *config) {
  *config = 0;
  return OK;
}
