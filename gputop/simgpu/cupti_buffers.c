/* Buffers of activity records: asked of the program, filled on a thread of CUPTI's, given back full or at a flush.
 *
 * Records come late, when their work has ended, and in the wrong order by groups. Settings (README.md):
 * SIMGPU_CUPTI_LATE_MS, SIMGPU_CUPTI_MOST, SIMGPU_CUPTI_DRIFT_PPM, SIMGPU_CUPTI_FAULT. */
#include "cupti_core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

#define GROUP 16

uint8_t enabled[KINDS];
static uint8_t cbids[2][2048]; /* of the driver and of the runtime, each by itself */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER, giving = PTHREAD_MUTEX_INITIALIZER;
static request_fn request;
static complete_fn complete;
static struct sg_seen *waiting;
static size_t count, room, most, dropped;
static uint64_t late_ns, loaded_ns;
static int64_t base_shift;
static double drift;

static uint8_t *buffer;
static size_t buffer_size, filled, most_records, records;

static const struct sg_private *driver;

int64_t clock_shift(void) { return base_shift + (int64_t)(drift * (double)(sg_now() - loaded_ns)); }

static int64_t shift_at(uint64_t at) { return base_shift + (int64_t)(drift * (double)(int64_t)(at - loaded_ns)); }

static int fault(const char *function) {
  const char *at = getenv("SIMGPU_CUPTI_FAULT");
  size_t n = strlen(function);
  for (; at != NULL && *at != '\0'; at = strchr(at, ',') == NULL ? "" : strchr(at, ',') + 1)
    if (strncmp(at, function, n) == 0 && at[n] == ':') return atoi(at + n + 1);
  return OK;
}

__attribute__((constructor)) static void begin(void) {
  struct timespec t;
  version_choose();
  clock_gettime(CLOCK_REALTIME, &t);
  loaded_ns = sg_now();
  base_shift = (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec - (int64_t)loaded_ns;
  late_ns = sg_env_u64("SIMGPU_CUPTI_LATE_MS", 1) * NS_PER_MS;
  most = sg_env_u64("SIMGPU_CUPTI_MOST", 1u << 20);
  drift = (double)sg_env_u64("SIMGPU_CUPTI_DRIFT_PPM", 0) / 1e6;
}

static int wanted(const struct sg_seen *seen) {
  switch (seen->what) {
    case SEEN_CALL:
      return enabled[KIND_DRIVER] || cbids[0][seen->cbid % 2048];
    case SEEN_COPY:
      return enabled[KIND_COPY] && !(seen->node != 0 && enabled[KIND_GRAPH]);
    case SEEN_FILL:
      return enabled[KIND_FILL] && !(seen->node != 0 && enabled[KIND_GRAPH]);
    case SEEN_GRAPH:
      return enabled[KIND_GRAPH];
    default:
      return (enabled[KIND_KERNEL] || enabled[KIND_CONCURRENT_KERNEL]) && !(seen->node != 0 && enabled[KIND_GRAPH]);
  }
}

/* A graph whose nodes run one after another in the simulation is one record, too: from the first to the last. */
static int joined(const struct sg_seen *seen) {
  if (seen->node == 0 || !enabled[KIND_GRAPH]) return 0;
  for (size_t i = count; i > 0 && count - i < 4096; i--) {
    struct sg_seen *w = &waiting[i - 1];
    if (w->what != SEEN_GRAPH || w->correlation != seen->correlation) continue;
    if (seen->start < w->start) w->start = seen->start;
    if (seen->end > w->end) w->end = seen->end;
    return 1;
  }
  return 0;
}

static void keep(const struct sg_seen *seen) {
  if (count == room) {
    size_t larger = room == 0 ? 1024 : 2 * room;
    struct sg_seen *more = larger > most ? NULL : realloc(waiting, larger * sizeof *waiting);
    if (more == NULL) {
      dropped++;
      return;
    }
    waiting = more;
    room = larger;
  }
  waiting[count++] = *seen;
}

static void see(const struct sg_seen *seen) {
  pthread_mutex_lock(&mu);
  if (wanted(seen)) {
    keep(seen);
  } else if (seen->node != 0 && enabled[KIND_GRAPH] && !joined(seen)) {
    struct sg_seen whole = *seen;
    whole.what = SEEN_GRAPH;
    keep(&whole);
  }
  pthread_mutex_unlock(&mu);
}

static void give_back(void) {
  if (buffer == NULL || filled == 0) return;
  uint8_t *full = buffer;
  size_t n = filled;
  buffer = NULL;
  filled = records = 0;
  complete(NULL, 0, full, buffer_size, n);
}

static void put(const struct sg_seen *seen) {
  size_t size = record_size(seen);
  if (buffer != NULL && (filled + size > buffer_size || (most_records > 0 && records >= most_records))) give_back();
  if (buffer == NULL) request(&buffer, &buffer_size, &most_records);
  if (buffer == NULL || buffer_size < size) {
    pthread_mutex_lock(&mu);
    dropped++;
    pthread_mutex_unlock(&mu);
    return;
  }
  record_write(buffer + filled, seen, shift_at(seen->end));
  filled += size;
  records++;
}

/* Takes what has ended long enough ago, in the wrong order by groups. */
static size_t take(struct sg_seen **out, int all) {
  uint64_t now = sg_now(), until = all ? UINT64_MAX : now - late_ns;
  size_t n = 0, left = 0;
  pthread_mutex_lock(&mu);
  *out = malloc((count + 1) * sizeof **out);
  for (size_t i = 0; *out != NULL && i < count; i++) {
    if (waiting[i].end <= now && waiting[i].end <= until)
      (*out)[n++] = waiting[i];
    else
      waiting[left++] = waiting[i];
  }
  if (*out != NULL) count = left;
  pthread_mutex_unlock(&mu);
  for (size_t from = 0; from < n; from += GROUP)
    for (size_t a = from, b = (from + GROUP < n ? from + GROUP : n) - 1; a < b; a++, b--) {
      struct sg_seen first = (*out)[a];
      (*out)[a] = (*out)[b];
      (*out)[b] = first;
    }
  return n;
}

static void deliver(int flush) {
  struct sg_seen *taken = NULL;
  pthread_mutex_lock(&giving);
  size_t n = request == NULL ? 0 : take(&taken, flush);
  for (size_t i = 0; i < n; i++) put(&taken[i]);
  if (flush) give_back();
  free(taken);
  pthread_mutex_unlock(&giving);
}

static void *work(void *unused) {
  const struct timespec pause = {0, 5 * (long)NS_PER_MS};
  (void)unused;
  for (;;) {
    nanosleep(&pause, NULL);
    deliver(0);
  }
  return NULL;
}

/* The driver tells from the first kind on that is enabled. */
static int listen_once(void) {
  static int begun;
  pthread_t thread;
  if (begun) return OK;
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*table)(const void **, const void *) =
      library == NULL ? NULL : (int (*)(const void **, const void *))dlsym(library, "cuGetExportTable");
  if (table == NULL || table((const void **)&driver, SG_PRIVATE_ID) != 0) return E_UNINITIALISED;
  begun = 1;
  driver->observe(see);
  return pthread_create(&thread, NULL, work, NULL) == 0 ? OK : E_LIMIT;
}

SG(cuptiGetVersion)(uint32_t *number) {
  int err = fault("version");
  *number = err != OK ? (uint32_t)err : (uint32_t)version->number;
  return OK;
}
SG(cuptiGetTimestamp)(uint64_t *at) {
  uint64_t now = sg_now();
  *at = now + (uint64_t)shift_at(now);
  return OK;
}

static int switch_kind(uint32_t kind, uint8_t on) {
  int err = on ? fault("enable") : OK;
  if (err != OK) return err;
  if (kind >= KINDS) return E_KIND;
  err = listen_once();
  pthread_mutex_lock(&mu);
  if (err == OK) enabled[kind] = on;
  pthread_mutex_unlock(&mu);
  return err;
}
SG(cuptiActivityEnable)(uint32_t kind) { return switch_kind(kind, 1); }
SG(cuptiActivityDisable)(uint32_t kind) { return switch_kind(kind, 0); }

static int switch_call(int which, uint32_t cbid, uint8_t on) {
  int err = listen_once();
  if (cbid >= sizeof cbids[0]) return E_PARAMETER;
  cbids[which][cbid] = on;
  return err;
}
SG(cuptiActivityEnableDriverApi)(uint32_t cbid, uint8_t on) { return switch_call(0, cbid, on); }
SG(cuptiActivityEnableRuntimeApi)(uint32_t cbid, uint8_t on) { return switch_call(1, cbid, on); }

SG(cuptiActivityRegisterCallbacks)(request_fn requested, complete_fn completed) {
  if (requested == NULL || completed == NULL) return E_PARAMETER;
  pthread_mutex_lock(&giving);
  if (request != NULL) give_back(); /* to whom it was asked of */
  request = requested;
  complete = completed;
  pthread_mutex_unlock(&giving);
  return OK;
}

SG(cuptiActivityFlushAll)(uint32_t flag) {
  (void)flag; /* forced: no record is incomplete here, it is written when its work has ended */
  if (request == NULL) return 7; /* invalid operation */
  deliver(1);
  return OK;
}
SG(cuptiActivityFlushPeriod)(uint32_t ms) {
  (void)ms;
  return OK;
}

SG(cuptiActivityGetNextRecord)(uint8_t *from, size_t valid, uint8_t **record) {
  size_t at = *record == NULL ? 0 : (size_t)(*record - from);
  uint32_t kind;
  if (*record != NULL) {
    memcpy(&kind, *record, sizeof kind);
    at += size_of_kind(kind);
  }
  if (at >= valid) return E_LIMIT;
  *record = from + at;
  return OK;
}

SG(cuptiActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *out) {
  (void)context, (void)stream;
  pthread_mutex_lock(&mu);
  *out = dropped;
  dropped = 0;
  pthread_mutex_unlock(&mu);
  return OK;
}

static int subscribed;

SG(cuptiSubscribe)(void **handle, void *callback, void *data) {
  (void)callback, (void)data;
  int err = fault("subscribe");
  if (err != OK) return err;
  if (__atomic_exchange_n(&subscribed, 1, __ATOMIC_ACQ_REL)) return E_SUBSCRIBERS;
  *handle = &subscribed;
  return OK;
}
SG(cuptiUnsubscribe)(void *handle) {
  if (handle != &subscribed) return E_PARAMETER;
  __atomic_store_n(&subscribed, 0, __ATOMIC_RELEASE);
  return OK;
}

SG(cuptiFinalize)(void) {
  pthread_mutex_lock(&mu);
  memset(enabled, 0, sizeof enabled);
  memset(cbids, 0, sizeof cbids);
  pthread_mutex_unlock(&mu);
  return OK;
}

SG(cuptiDeviceVirtualizationMode)(int device, uint32_t *mode) {
  (void)device;
  *mode = (uint32_t)fault("virtualization"); /* 0: none, 1: pass through, 2: virtual */
  return OK;
}

SG(cuptiGetResultString)(int result, const char **text) {
  *text = result == OK ? "CUPTI_SUCCESS" : result == E_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                                   : "CUPTI_ERROR";
  return OK;
}

SG(cuptiSetThreadIdType)(int type) {
  (void)type; /* always the system's */
  return OK;
}
SG_ALIAS(cuptiGetLastError, cuptiFinishNothing)
SG_ALIAS(cuptiEnableCallback, cuptiFinishNothing)
SG_ALIAS(cuptiEnableDomain, cuptiFinishNothing)
SG_ALIAS(cuptiEnableAllDomains, cuptiFinishNothing)
SG_ALIAS(cuptiActivitySetAttribute, cuptiFinishNothing)
SG_ALIAS(cuptiActivityGetAttribute, cuptiFinishNothing)
SG_ALIAS(cuptiActivityPushExternalCorrelationId, cuptiFinishNothing)
SG_ALIAS(cuptiActivityPopExternalCorrelationId, cuptiFinishNothing)
SG(cuptiFinishNothing)(void) { return OK; }
