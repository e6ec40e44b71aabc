/* Finding the driver, and launching kernels of any name. */
#include "math_core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_KERNELS 512
#define NAME_SIZE 192

static struct {
  int (*cuInit)(unsigned);
  int (*cuCtxGetCurrent)(void **);
  int (*cuCtxSetCurrent)(void *);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuModuleLoadData)(void **, const void *);
  int (*cuModuleGetFunction)(void **, void *, const char *);
  int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
} drv;

static struct {
  char name[NAME_SIZE];
  void *function;
} kernels[MAX_KERNELS];
static unsigned used;
static const struct sg_private *private;
static void *module;
static int state; /* 1: the driver was found, -1: it is not there */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static int find_functions(void) {
  static const struct {
    const char *name;
    void *to;
  } wanted[] = {
      {"cuInit", &drv.cuInit},
      {"cuCtxGetCurrent", &drv.cuCtxGetCurrent},
      {"cuCtxSetCurrent", &drv.cuCtxSetCurrent},
      {"cuDevicePrimaryCtxRetain", &drv.cuDevicePrimaryCtxRetain},
      {"cuModuleLoadData", &drv.cuModuleLoadData},
      {"cuModuleGetFunction", &drv.cuModuleGetFunction},
      {"cuLaunchKernel", &drv.cuLaunchKernel},
  };
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (lib == NULL) return -1;
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *f = dlsym(lib, wanted[i].name);
    if (f == NULL) return -1;
    *(void **)wanted[i].to = f;
  }
  int (*export_table)(const void **, const void *) = NULL;
  const void *table;
  *(void **)&export_table = dlsym(lib, "cuGetExportTable");
  if (export_table == NULL || export_table(&table, SG_PRIVATE_ID) != 0) return -1;
  private = table;
  return drv.cuInit(0) == 0 ? 1 : -1;
}

/* Finds the driver and gives the thread a context if it has none, as the runtime inside the real ones does. */
int math_ready(void) {
  void *context = NULL;
  pthread_mutex_lock(&mu);
  if (state == 0) state = find_functions();
  pthread_mutex_unlock(&mu);
  if (state != 1) return -1;
  if (drv.cuCtxGetCurrent(&context) == 0 && context != NULL) return 0;
  return drv.cuDevicePrimaryCtxRetain(&context, 0) == 0 && drv.cuCtxSetCurrent(context) == 0 ? 0 : -1;
}

static void *kernel_named(const char *name) {
  static const char image[] = "gputop-simgpu";
  void *found = NULL;
  pthread_mutex_lock(&mu);
  for (unsigned i = 0; i < used && found == NULL; i++)
    if (strcmp(kernels[i].name, name) == 0) found = kernels[i].function;
  if (found == NULL && (module != NULL || drv.cuModuleLoadData(&module, image) == 0) &&
      drv.cuModuleGetFunction(&found, module, name) == 0 && used < MAX_KERNELS) {
    snprintf(kernels[used].name, NAME_SIZE, "%s", name);
    kernels[used++].function = found;
  }
  pthread_mutex_unlock(&mu);
  return found;
}

/* Launches a kernel of this name that lasts so long and uses so much; 0 or -1. */
int math_launch(void *stream, const char *name, uint64_t blocks, const struct sg_work *work) {
  void *kernel;
  unsigned grid = blocks < 1 ? 1 : blocks > 0x7fffffff ? 0x7fffffff : (unsigned)blocks;
  if (math_ready() != 0 || (kernel = kernel_named(name)) == NULL) return -1;
  private->next_work(work);
  return drv.cuLaunchKernel(kernel, grid, 1, 1, 256, 1, 1, 0, stream, NULL, NULL) == 0 ? 0 : -1;
}
