/* How long the clocks were held down, by reason: counted by each monitor for itself, from call to call. */
#include "nvml_core.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BASE_MHZ 1590

enum policy { POWER, THERMAL, SYNC_BOOST, BOARD, LOW_USE, RELIABILITY, APP_CLOCKS = 10, BASE_CLOCKS = 11, POLICIES };

static uint64_t total[SG_MAX_DEVICES][POLICIES], last_look;
static struct faults before;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* When the fault file was written, which is when the clocks changed; now where there is none. */
static uint64_t changed_at(uint64_t now) {
  const char *path = getenv("SIMGPU_NVML_FAULT_FILE");
  struct stat st;
  struct timespec t;
  if (path == NULL || stat(path, &st) != 0) return now;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t age = (int64_t)(t.tv_sec - st.st_mtim.tv_sec) * (int64_t)NS_PER_S + t.tv_nsec - st.st_mtim.tv_nsec;
  return age < 0 || (uint64_t)age > now ? now : now - (uint64_t)age;
}

static void add(uint64_t *of, const struct faults *f, uint64_t ns) {
  if (f->throttle & 0x84) of[POWER] += ns;
  if (f->throttle & 0x60) of[THERMAL] += ns;
  if (f->throttle & 0x10) of[SYNC_BOOST] += ns;
  if (f->throttle & 0x08) of[BOARD] += ns;
  of[APP_CLOCKS] += ns;
  if (f->throttle_mhz != 0 && f->throttle_mhz < BASE_MHZ) of[BASE_CLOCKS] += ns;
}

/* Before every function. An idle device is not held down by anything. */
void nvml_look(const struct faults *f) {
  uint64_t now = sg_now(), from, to = now;
  pthread_mutex_lock(&mu);
  from = last_look == 0 ? now : last_look;
  if (f->throttle == 0 || before.throttle == 0) {
    uint64_t change = changed_at(now);
    if (change < from) change = from;
    if (f->throttle != 0) from = change; /* it began in between */
    if (before.throttle != 0) to = change;
  }
  const struct faults *held = f->throttle != 0 ? f : &before;
  for (int dev = 0; held->throttle != 0 && to > from && dev < nvml_device_count(); dev++)
    if (nvml_percent(dev) > 0) add(total[dev], held, to - from);
  before = *f;
  last_look = now;
  pthread_mutex_unlock(&mu);
}

struct violation {
  uint64_t reference_us, violation_ns;
};

SG(nvmlDeviceGetViolationStatus)(void *handle, unsigned policy, struct violation *out) {
  int dev = nvml_index(handle);
  if (dev < 0 || dev >= nvml_device_count() || policy >= POLICIES || out == NULL) return N_ARGUMENT;
  *out = (struct violation){sg_now() / NS_PER_US, total[dev][policy]};
  return N_OK;
}

struct field_value {
  unsigned field, scope;
  int64_t timestamp_us, latency_us;
  unsigned type; /* 3: unsigned long long */
  int error;
  uint64_t value;
};

/* Of all fields only the counters of violations, 74 to 81. */
SG(nvmlDeviceGetFieldValues)(void *handle, int count, struct field_value *values) {
  static const enum policy policies[] = {POWER, THERMAL, SYNC_BOOST, BOARD, LOW_USE, RELIABILITY, APP_CLOCKS, BASE_CLOCKS};
  int dev = nvml_index(handle);
  struct timespec t;
  if (dev < 0 || dev >= nvml_device_count() || values == NULL || count < 1) return N_ARGUMENT;
  clock_gettime(CLOCK_REALTIME, &t);
  for (int i = 0; i < count; i++) {
    struct field_value *v = &values[i];
    v->error = v->field < 74 || v->field > 81 ? N_UNSUPPORTED : N_OK;
    if (v->error != N_OK) continue;
    v->timestamp_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    v->latency_us = 0;
    v->type = 3;
    v->value = total[dev][policies[v->field - 74]];
  }
  return N_OK;
}
