/* Finding the driver, devices and their contexts, errors. */
#define DRV_NAMES
#include "rt_core.h"
#include "sg_private.h"
#include "log_layout.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

struct drv_table drv;
__thread unsigned char sg_ptds;

static uint64_t own_cell[8];
uint64_t *sg_cell = own_cell;
static const struct sg_private *private_table;
static char no_driver_counts[LOG_SIZE] __attribute__((aligned(8)));

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int loaded; /* 1: found, -1: not there */
static unsigned pending_flags[SG_MAX_DEVICES];
static __thread int device, ready, last_error;

static int load(void) {
  int (*export_table)(const void **, const void *);
  const void *table;
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (lib == NULL) return -1;
  *(void **)&export_table = dlsym(lib, "cuGetExportTable");
  if (export_table == NULL || export_table(&table, SG_PRIVATE_ID) != 0) return -1;
  for (size_t i = 0; i < sizeof drv_names / sizeof drv_names[0]; i++)
    for (int variant = 0; variant < 2; variant++) {
      void *f = dlsym(lib, drv_names[i][variant]);
      if (f == NULL) return -1;
      ((void **)&drv)[2 * i + (size_t)variant] = f;
    }
  private_table = table;
  sg_cell = private_table->cell();
  return 1;
}

int rt_driver(void) {
  if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE) == 0) {
    pthread_mutex_lock(&mu);
    if (loaded == 0) __atomic_store_n(&loaded, load(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mu);
  }
  return loaded == 1 ? RT_OK : RT_DRIVER;
}

/* The first call of a process, or of a child after fork, or every tenth one: counted by the driver. */
void sg_count_slow(uint32_t offset);
void sg_count_slow(uint32_t offset) {
  if (rt_driver() == RT_OK)
    private_table->count(offset);
  else
    own_cell[0] = (uint64_t)no_driver_counts; /* no driver, no log: counts go nowhere */
}

int rt_done(int error) {
  if (error != RT_OK && error != RT_NOT_READY) last_error = error;
  return error;
}

static int use_device(int dev) {
  void *context;
  int err = DRV(cuDevicePrimaryCtxRetain)(&context, dev);
  if (err == RT_OK && pending_flags[dev] != 0) DRV(cuDevicePrimaryCtxSetFlags_v2)(dev, pending_flags[dev]);
  return err == RT_OK ? DRV(cuCtxSetCurrent)(context) : err;
}

static int init(void) {
  int err = rt_driver();
  return err == RT_OK ? DRV(cuInit)(0) : err;
}

int rt_enter(void) {
  int err;
  if (ready) return RT_OK;
  err = init();
  if (err != RT_OK) return err;
  void *current = NULL;
  err = DRV(cuCtxGetCurrent)(&current); /* a context made with the driver interface is used as it is */
  if (err == RT_OK && current == NULL) err = use_device(device);
  ready = err == RT_OK;
  return err;
}

SG(cudaGetLastError)(void) {
  int error = last_error;
  last_error = RT_OK;
  return error;
}
SG(cudaPeekAtLastError)(void) { return last_error; }

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
#define ERROR(code, name, text) {code, "cuda" name, text},
#include "rt_errors.h"
#undef ERROR
};

static const char *error_text(int code, int name) {
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
    if (errors[i].code == code) return name ? errors[i].name : errors[i].text;
  return name ? "unrecognized error code" : "unrecognized error code";
}


#define SG_TEXT(name) const char *impl_##name
SG_TEXT(cudaGetErrorString)(int code) { return error_text(code, 0); }
SG_TEXT(cudaGetErrorName)(int code) { return error_text(code, 1); }

SG(cudaGetDeviceCount)(int *count) {
  int err = init();
  if (count == NULL) return rt_done(RT_VALUE);
  *count = 0;
  return rt_done(err != RT_OK ? err : DRV(cuDeviceGetCount)(count));
}

SG(cudaGetDevice)(int *out) {
  int err = init();
  if (err == RT_OK && out == NULL) err = RT_VALUE;
  if (err == RT_OK) *out = device;
  return rt_done(err);
}

SG(cudaSetDevice)(int dev) {
  int count = 0, err = init();
  if (err == RT_OK) err = DRV(cuDeviceGetCount)(&count);
  if (err == RT_OK && (dev < 0 || dev >= count)) err = RT_DEVICE;
  if (err != RT_OK) return rt_done(err);
  if (ready && device == dev) return RT_OK;
  device = dev;
  err = use_device(dev); /* since 12.0 setting the device makes its context */
  ready = err == RT_OK;
  return rt_done(err);
}
SG(cudaInitDevice)(int dev) { return impl_cudaSetDevice(dev); }
SG(cudaSetValidDevices)(void) { return RT_OK; }

SG(cudaSetDeviceFlags)(unsigned flags) {
  int err = init();
  if (err != RT_OK) return rt_done(err);
  pending_flags[device] = flags;
  return rt_done(DRV(cuDevicePrimaryCtxSetFlags_v2)(device, flags));
}
SG(cudaGetDeviceFlags)(unsigned *flags) {
  int active;
  PASS(DRV(cuDevicePrimaryCtxGetState)(device, flags, &active));
}

SG(cudaDeviceReset)(void) { PASS(DRV(cuDevicePrimaryCtxReset_v2)(device)); }
SG(cudaDeviceSynchronize)(void) { PASS(DRV(cuCtxSynchronize)()); }
SG_ALIAS(cudaThreadSynchronize, cudaDeviceSynchronize)
SG_ALIAS(cudaThreadExit, cudaDeviceReset)

SG(cudaRuntimeGetVersion)(int *version) {
  if (version == NULL) return rt_done(RT_VALUE);
  *version = RT_VERSION;
  return RT_OK;
}
SG(cudaDriverGetVersion)(int *version) {
  if (version == NULL) return rt_done(RT_VALUE);
  *version = 0; /* without a driver: 0 and success */
  return rt_driver() == RT_OK ? rt_done(DRV(cuDriverGetVersion)(version)) : RT_OK;
}

SG(cudaDeviceGetLimit)(size_t *value, int limit) { PASS(DRV(cuCtxGetLimit)(value, limit)); }
SG(cudaDeviceSetLimit)(int limit, size_t value) { PASS(DRV(cuCtxSetLimit)(limit, value)); }
SG(cudaDeviceGetCacheConfig)(int *config) { PASS(DRV(cuCtxGetCacheConfig)(config)); }
SG(cudaDeviceSetCacheConfig)(int config) { PASS(DRV(cuCtxSetCacheConfig)(config)); }
SG(cudaDeviceGetStreamPriorityRange)(int *least, int *greatest) {
  PASS(DRV(cuCtxGetStreamPriorityRange)(least, greatest));
}
SG(cudaDeviceCanAccessPeer)(int *can, int a, int b) { PASS(DRV(cuDeviceCanAccessPeer)(can, a, b)); }
SG(cudaDeviceEnablePeerAccess)(void) { return rt_done(rt_enter()); }
SG_ALIAS(cudaDeviceDisablePeerAccess, cudaDeviceEnablePeerAccess)
SG(cudaProfilerStart)(void) { PASS(DRV(cuProfilerStart)()); }
SG(cudaProfilerStop)(void) { PASS(DRV(cuProfilerStop)()); }
SG(cudaDeviceGetPCIBusId)(char *text, int size, int dev) { PASS(DRV(cuDeviceGetPCIBusId)(text, size, dev)); }
SG(cudaDeviceGetByPCIBusId)(int *dev, const char *text) { PASS(DRV(cuDeviceGetByPCIBusId)(dev, text)); }
SG(cudaDeviceGetAttribute)(int *value, int attribute, int dev) {
  int err = init();
  return rt_done(err != RT_OK ? err : DRV(cuDeviceGetAttribute)(value, attribute, dev));
}
SG(cudaGetDriverEntryPoint)(const char *name, void **out, unsigned long long flags, int *status) {
  PASS(DRV(cuGetProcAddress_v2)(name, out, RT_VERSION, (uint64_t)(sg_ptds ? flags | 2 : flags), status));
}
SG(cudaGetDriverEntryPointByVersion)(const char *name, void **out, unsigned v, unsigned long long flags, int *status) {
  PASS(DRV(cuGetProcAddress_v2)(name, out, (int)v, (uint64_t)flags, status));
}
