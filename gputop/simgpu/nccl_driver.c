/* Finding the driver, and launching: the real one goes through the same exported name. */
#include "nccl_core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>

struct driver drv;

static uint64_t own_cell[8];
uint64_t *sg_cell = own_cell;
static char no_driver_counts[LOG_SIZE] __attribute__((aligned(8)));
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int state; /* 1: found, -1: not there */
static void *module;

static int find_functions(void) {
  static const struct {
    const char *name;
    void *to;
  } wanted[] = {
      {"cuInit", &drv.cuInit},
      {"cuCtxGetCurrent", &drv.cuCtxGetCurrent},
      {"cuCtxGetDevice", &drv.cuCtxGetDevice},
      {"cuCtxPushCurrent_v2", &drv.cuCtxPushCurrent},
      {"cuCtxPopCurrent_v2", &drv.cuCtxPopCurrent},
      {"cuDevicePrimaryCtxRetain", &drv.cuDevicePrimaryCtxRetain},
      {"cuModuleLoadData", &drv.cuModuleLoadData},
      {"cuModuleGetFunction", &drv.cuModuleGetFunction},
      {"cuLaunchKernelEx", &drv.cuLaunchKernelEx},
  };
  int (*export_table)(const void **, const void *);
  const void *table;
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (lib == NULL) return -1;
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *f = dlsym(lib, wanted[i].name);
    if (f == NULL) return -1;
    *(void **)wanted[i].to = f;
  }
  *(void **)&export_table = dlsym(lib, "cuGetExportTable");
  if (export_table == NULL || export_table(&table, SG_PRIVATE_ID) != 0) return -1;
  drv.private = table;
  sg_cell = drv.private->cell();
  return 1;
}

static int find(void) {
  pthread_mutex_lock(&mu);
  if (state == 0) __atomic_store_n(&state, find_functions(), __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mu);
  return state == 1 ? C_OK : C_CUDA;
}

/* The first call of a process, or of a child after fork, or every tenth one: counted by the driver. */
void sg_count_slow(uint32_t offset);
void sg_count_slow(uint32_t offset) {
  if (find() == C_OK)
    drv.private->count(offset);
  else
    own_cell[0] = (uint64_t)no_driver_counts; /* no driver, no log: counts go nowhere */
}

/* Looks after collectives that end while the program does something else, as NCCL's own threads do. */
static void *watch(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "NCCL Progress");
  for (;;) {
    uint32_t seen = __atomic_load_n(&shared->changes, __ATOMIC_ACQUIRE);
    drv.private->poll();
    shared_wait(seen, 100);
  }
  return NULL;
}

static int start_watching(void) {
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  int err = pthread_create(&thread, &attr, watch, NULL);
  pthread_attr_destroy(&attr);
  return err == 0 ? C_OK : C_SYSTEM;
}

/* The driver, a current context, the shared file and the kernels' module; once. */
int driver_ready(void) {
  static int ready;
  void *context = NULL;
  int err = find();
  if (err != C_OK || drv.cuInit(0) != 0) return C_CUDA;
  if (drv.cuCtxGetCurrent(&context) != 0) return C_CUDA;
  if (context == NULL && (drv.cuDevicePrimaryCtxRetain(&context, 0) != 0 || drv.cuCtxPushCurrent(context) != 0))
    return C_CUDA;
  pthread_mutex_lock(&mu);
  if (!ready) {
    err = shared_open();
    if (err == C_OK && drv.cuModuleLoadData(&module, "nccl") != 0) err = C_CUDA;
    if (err == C_OK) err = start_watching();
    ready = err == C_OK;
  }
  pthread_mutex_unlock(&mu);
  return err;
}

int driver_launch(const struct comm *c, const char *kernel, void *stream, struct sg_joint *joint) {
  struct launch_config config = {{1, 1, 1}, {512, 1, 1}, 0, stream, NULL, 0};
  void *function, *old;
  int err;
  if (drv.cuModuleGetFunction(&function, module, kernel) != 0 || drv.cuCtxPushCurrent(c->context) != 0) return C_CUDA;
  drv.private->next_launch(joint);
  err = drv.cuLaunchKernelEx(&config, function, NULL, NULL);
  drv.private->next_launch(NULL);
  drv.cuCtxPopCurrent(&old);
  return err == 0 ? C_OK : C_CUDA;
}
