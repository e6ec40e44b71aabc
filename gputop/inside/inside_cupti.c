/* What the GPU did, by CUPTI's activity API. The driver loads this as CUDA_INJECTION64_PATH says.
 *
 * The places in records are those of cupti_activity.h of CUDA 11.8 to 13.5: what is read lies in the part that all
 * versions have; records are stepped through by CUPTI itself, which knows how long they are. */
#define _GNU_SOURCE
#include "hand.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)
#define FLUSH_MS 50
#define LOOKS 20 /* flushes between two looks at who else has CUPTI */
#define DEVICES 64
#define QUIET_NS 500000000ull /* without a probe, until nothing is recorded any more */
#define READINGS 8            /* of both clocks: the quickest counts */

enum { SUCCESS = 0, VIRTUALIZED = 33, PRIVILEGES = 35, SUBSCRIBERS = 39, CONFIDENTIAL = 41 };
enum { MPS_ENABLED = 133 }; /* CU_DEVICE_ATTRIBUTE_MPS_ENABLED of cuda.h 12.5 and later */
enum { COPY = 1, FILL = 2, DRIVER = 4, RUNTIME = 5, CONCURRENT_KERNEL = 10, OVERHEAD = 17, GRAPH = 51 };

static struct {
  int (*GetVersion)(uint32_t *);
  int (*GetTimestamp)(uint64_t *);
  int (*ActivityEnable)(uint32_t);
  int (*ActivityDisable)(uint32_t);
  int (*ActivityRegisterCallbacks)(void (*)(uint8_t **, size_t *, size_t *),
                                   void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
  int (*ActivityFlushAll)(uint32_t);
  int (*ActivityGetNextRecord)(uint8_t *, size_t, uint8_t **);
  int (*ActivityGetNumDroppedRecords)(void *, uint32_t, size_t *);
  int (*Subscribe)(void **, void *, void *);
  int (*Unsubscribe)(void *);
  int (*SetThreadIdType)(int);                    /* these may be missing */
  int (*ActivityEnableDriverApi)(uint32_t, uint8_t);
  int (*ActivityEnableRuntimeApi)(uint32_t, uint8_t);
} cupti;

static const struct {
  const char *name;
  size_t place;
  int needed;
} functions[] = {
#define FUNCTION(name, needed) {"cupti" #name, offsetof(__typeof__(cupti), name), needed}
    FUNCTION(GetVersion, 1), FUNCTION(GetTimestamp, 1), FUNCTION(ActivityEnable, 1), FUNCTION(ActivityDisable, 1),
    FUNCTION(ActivityRegisterCallbacks, 1), FUNCTION(ActivityFlushAll, 1), FUNCTION(ActivityGetNextRecord, 1),
    FUNCTION(ActivityGetNumDroppedRecords, 1), FUNCTION(Subscribe, 1), FUNCTION(Unsubscribe, 1),
    FUNCTION(SetThreadIdType, 0), FUNCTION(ActivityEnableDriverApi, 0), FUNCTION(ActivityEnableRuntimeApi, 0),
};

/* Calls that give the GPU work (cupti_driver_cbid.h, cupti_runtime_cbid.h of CUDA 13.5), where they can be chosen. */
static const uint16_t driver_calls[][2] = {{43, 47}, {56, 58}, {60, 64}, {68, 69}, {71, 82}, {216, 226}, {249, 254},
                                           {276, 281}, {287, 293}, {305, 307}, {318, 321}, {397, 433}, {442, 442},
                                           {477, 477}, {514, 515}, {652, 653}, {776, 779}, {796, 799}, {837, 840}};
static const uint16_t runtime_calls[][2] = {{31, 52}, {142, 145}, {160, 163}, {211, 250}, {269, 270}, {311, 312},
                                            {430, 431}, {482, 485}, {505, 506}, {509, 512}, {554, 557}};

static const uint32_t kinds[] = {CONCURRENT_KERNEL, COPY, FILL, GRAPH, OVERHEAD};

static pthread_t worker;
static sem_t over;
static int running, ended;
static uint64_t dropped, devices_seen, devices_told;

static uint64_t read64(const uint8_t *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}
static uint32_t read32(const uint8_t *at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = aligned_alloc(8, BUFFER_BYTES);
  *size = *buffer == NULL ? 0 : BUFFER_BYTES;
  *most = 0;
}

static void moved(const uint8_t *at, struct row *row) {
  row->bytes = read64(at + 8);
  row->begin = read64(at + 16);
  row->end = read64(at + 24);
  row->device = read32(at + 32);
  row->stream = read32(at + 40);
  row->correlation = read32(at + 44);
  row->graph = read32(at + 72);
}

/* 0: a record of no interest. */
static int row_of(const uint8_t *at, struct row *row) {
  memset(row, 0, sizeof *row);
  switch (read32(at)) {
    case CONCURRENT_KERNEL: {
      const char *name;
      memcpy(&name, at + 104, sizeof name);
      row->what = WHAT_KERNEL;
      row->begin = read64(at + 16);
      row->end = read64(at + 24);
      row->device = read32(at + 40);
      row->stream = read32(at + 48);
      row->correlation = read32(at + 92);
      row->name = text_of(name);
      row->graph = read32(at + 156);
      break;
    }
    case COPY:
      moved(at, row);
      row->what = WHAT_COPY;
      row->detail = (uint32_t)at[4] | (uint32_t)at[5] << 8 | (uint32_t)at[6] << 16;
      break;
    case FILL:
      moved(at, row);
      row->what = WHAT_FILL;
      break;
    case GRAPH:
      row->what = WHAT_GRAPH;
      row->correlation = read32(at + 4);
      row->begin = read64(at + 8);
      row->end = read64(at + 16);
      row->device = read32(at + 24);
      row->graph = read32(at + 28);
      row->stream = read32(at + 36);
      break;
    case DRIVER:
    case RUNTIME:
      row->what = WHAT_CALL;
      row->begin = read64(at + 8);
      row->end = read64(at + 16);
      row->thread = read32(at + 28);
      row->correlation = read32(at + 32);
      break;
    case OVERHEAD:
      row->what = WHAT_OVERHEAD;
      row->begin = read64(at + 24);
      row->end = read64(at + 32);
      row->detail = read32(at + 4);
      break;
    default:
      return 0;
  }
  if (row->what >= WHAT_KERNEL && row->what <= WHAT_GRAPH) devices_seen |= 1ull << (row->device % DEVICES);
  return row->begin != 0 && row->end >= row->begin;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  uint8_t *record = NULL;
  struct row row;
  (void)context, (void)stream, (void)size;
  while (cupti.ActivityGetNextRecord(buffer, valid, &record) == SUCCESS)
    if (row_of(record, &row)) hand_row(&row);
  free(buffer);
}

/* One moment on both clocks: CUPTI's lies between two readings of the other, so the error is half of that. */
static void tell_clock(void) {
  uint64_t best = UINT64_MAX, at = 0, there = 0;
  for (int i = 0; i < READINGS; i++) {
    uint64_t before = now_ns(), between;
    if (cupti.GetTimestamp(&between) != SUCCESS) return;
    uint64_t after = now_ns();
    if (after - before >= best) continue;
    best = after - before;
    at = before + best / 2;
    there = between;
  }
  hand_moment(at, there, best / 2 + 1);
}

static int shared; /* a GPU of this process runs the work of several by MPS */

/* CUDA's numbers of devices are the process's own; their UUIDs are the machine's. */
static void tell_devices(void) {
  static int (*uuid_of)(uint8_t *, int);
  static int (*attribute_of)(int *, int, int);
  static void *driver;
  if (devices_told == devices_seen) return;
  if (driver == NULL && (driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) != NULL) {
    uuid_of = (int (*)(uint8_t *, int))dlsym(driver, "cuDeviceGetUuid_v2");
    if (uuid_of == NULL) uuid_of = (int (*)(uint8_t *, int))dlsym(driver, "cuDeviceGetUuid");
    attribute_of = (int (*)(int *, int, int))dlsym(driver, "cuDeviceGetAttribute");
  }
  for (int device = 0; uuid_of != NULL && device < DEVICES; device++) {
    uint8_t uuid[16];
    char text[33];
    int mps = 0;
    if (!((devices_seen & ~devices_told) >> device & 1) || uuid_of(uuid, device) != SUCCESS) continue;
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", uuid[i]);
    hand_words(MESSAGE_DEVICE, (uint32_t)device, text);
    if (attribute_of != NULL && attribute_of(&mps, MPS_ENABLED, device) == SUCCESS && mps == 1) shared = 1;
  }
  devices_told = devices_seen;
}

static void flush(void) {
  size_t lost = 0;
  uint64_t from = now_ns();
  cupti.ActivityFlushAll(0);
  if (cupti.ActivityGetNumDroppedRecords(NULL, 0, &lost) == SUCCESS) dropped += lost;
  tell_clock();
  tell_devices();
  hand_rest(from, dropped);
}

static void disable(void) {
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) cupti.ActivityDisable(kinds[i]);
  cupti.ActivityDisable(DRIVER);
  cupti.ActivityDisable(RUNTIME);
}

static void choose_calls(int (*choose)(uint32_t, uint8_t), const uint16_t (*spans)[2], size_t count, uint32_t kind) {
  for (size_t i = 0; choose != NULL && i < count; i++)
    for (uint32_t one = spans[i][0]; one <= spans[i][1]; one++)
      if (choose(one, 1) != SUCCESS) choose = NULL; /* all of them then */
  if (choose == NULL) cupti.ActivityEnable(kind);
}

/* Whether somebody else has CUPTI now, as torch.profiler has it while it runs. */
static int is_taken(void) {
  void *handle = NULL;
  int err = cupti.Subscribe(&handle, (void *)(uintptr_t)is_taken, NULL);
  if (err == SUCCESS) cupti.Unsubscribe(handle);
  return err == SUBSCRIBERS;
}

/* CUPTI's rows of a context that several processes share have not been verified. */
static void give_up_shared(void) {
  disable();
  hand_state(STATE_DISPLACED, "its GPU is shared by MPS, under which CUPTI's times have not been tried");
}

/* Records until nobody listens: a probe that has gone says that gputop has. */
static void *work(void *unused) {
  uint64_t heard = now_ns();
  (void)unused;
  pthread_setname_np(pthread_self(), "gputop-inside");
  for (unsigned turn = 1;; turn++) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += FLUSH_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    sem_timedwait(&over, &until);
    if (__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) return NULL;
    if (probed()) {
      heard = now_ns();
    } else if (now_ns() - heard > QUIET_NS) {
      disable();
      break;
    }
    if (turn % LOOKS == 0 && is_taken()) {
      hand_state(STATE_DISPLACED, "another CUPTI client, such as torch.profiler, has taken over");
      break;
    }
    flush();
    if (shared) {
      give_up_shared();
      break;
    }
  }
  __atomic_store_n(&running, 0, __ATOMIC_RELEASE);
  return NULL;
}

static void at_exit(void) {
  if (!__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
    return;
  }
  __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
  sem_post(&over);
  pthread_join(worker, NULL);
  if (!probed() || is_taken()) return;
  flush();
  if (shared) give_up_shared();
  else hand_state(STATE_ENDED, "");
}

static void *library(void);

static int refuse(const char *sentence) {
  hand_state(STATE_REFUSED, sentence);
  return 1;
}

static int refuse_code(const char *what, int err) {
  char sentence[200];
  const char *why = err == SUBSCRIBERS    ? "another CUPTI client has it, such as a profiler (nsys, torch.profiler)"
                    : err == VIRTUALIZED  ? "the GPU is virtual, and its hypervisor does not allow profiling"
                    : err == PRIVILEGES   ? "the driver lets only root use it (NVreg_RestrictProfilingToAdminUsers)"
                    : err == CONFIDENTIAL ? "the GPU is in confidential mode"
                                          : NULL;
  if (why != NULL) snprintf(sentence, sizeof sentence, "%s", why);
  else snprintf(sentence, sizeof sentence, "%s failed with error %d of CUPTI", what, err);
  return refuse(sentence);
}

static void in_child(void) { running = 0; } /* the worker is the parent's, and CUPTI with it */

int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void) {
  uint32_t version = 0;
  char sentence[100];
  if (!probed()) return 1; /* gputop has gone: nothing is loaded, nothing recorded */
  void *found = library();
  if (found == NULL) return refuse("no libcupti.so was found: PyTorch's wheel and the CUDA toolkit have one");
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    void *function = dlsym(found, functions[i].name);
    if (function == NULL && functions[i].needed) return refuse("this libcupti.so is older than that of CUDA 11.8");
    memcpy((char *)&cupti + functions[i].place, &function, sizeof function);
  }
  if (cupti.GetVersion(&version) != SUCCESS || version < 18) {
    snprintf(sentence, sizeof sentence, "this libcupti.so has version %u: CUDA 11.8 or later has 18", version);
    return refuse(sentence);
  }
  if (is_taken()) return refuse_code("", SUBSCRIBERS);
  if (cupti.SetThreadIdType != NULL) cupti.SetThreadIdType(1); /* the kernel's numbers */
  int err = cupti.ActivityRegisterCallbacks(requested, completed);
  if (err != SUCCESS) return refuse_code("cuptiActivityRegisterCallbacks", err);
  int nodes = getenv("GPUTOP_INSIDE_GRAPHS") != NULL && strcmp(getenv("GPUTOP_INSIDE_GRAPHS"), "nodes") == 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (kinds[i] == GRAPH && nodes) continue;
    err = cupti.ActivityEnable(kinds[i]);
    if (err == SUCCESS || kinds[i] == OVERHEAD || kinds[i] == GRAPH) continue; /* an older one tells nodes instead */
    disable();
    return refuse_code("cuptiActivityEnable", err);
  }
  choose_calls(cupti.ActivityEnableDriverApi, driver_calls, sizeof driver_calls / sizeof driver_calls[0], DRIVER);
  choose_calls(cupti.ActivityEnableRuntimeApi, runtime_calls, sizeof runtime_calls / sizeof runtime_calls[0], RUNTIME);
  tell_clock();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before); /* the program's signals go to the program's threads */
  running = sem_init(&over, 0, 0) == 0;
  err = pthread_create(&worker, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (err != 0) {
    running = 0;
    disable();
    return refuse("the program may not start another thread");
  }
  pthread_atfork(NULL, NULL, in_child);
  atexit(at_exit);
  snprintf(sentence, sizeof sentence, "%u", version);
  hand_state(STATE_ON, sentence);
  return 1;
}

/* The program's own libcupti: loaded already, found by its name, or beside a library of CUDA's that is loaded. */
static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
static const char *const beside[] = {"/../../cuda_cupti/lib/", "/../lib/", "/../extras/CUPTI/lib64/",
                                     "/../../nvidia/cuda_cupti/lib/", "/../../nvidia/cu13/lib/"};

static int look_beside(struct dl_phdr_info *info, size_t size, void *out) {
  (void)size;
  const char *base = strrchr(info->dlpi_name, '/');
  if (base == NULL || (strstr(base, "libcudart") == NULL && strstr(base, "libtorch_cuda") == NULL &&
                       strstr(base, "libcublas") == NULL))
    return 0;
  for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
      char path[PATH_MAX];
      int length = snprintf(path, sizeof path, "%.*s%s%s", (int)(base - info->dlpi_name), info->dlpi_name, beside[i],
                            names[n]);
      if (length <= 0 || length >= (int)sizeof path || access(path, R_OK) != 0) continue;
      snprintf(out, PATH_MAX, "%s", path);
      return 1;
    }
  return 0;
}

static void *library(void) {
  char path[PATH_MAX] = "";
  void *found = NULL;
  for (int load = 0; load < 2 && found == NULL; load++)
    for (size_t n = 0; n < sizeof names / sizeof names[0] && found == NULL; n++)
      found = dlopen(names[n], RTLD_NOW | (load ? 0 : RTLD_NOLOAD));
  if (found == NULL && dl_iterate_phdr(look_beside, path)) found = dlopen(path, RTLD_NOW);
  return found;
}
