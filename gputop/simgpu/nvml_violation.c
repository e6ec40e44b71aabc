/* How long the clocks were held down, by reason: counted by each monitor for itself, from call to call. */
#include "nvml_core.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BASE_MHZ 1590

enum policy { POWER, THERMAL, SYNC_BOOST, BOARD, LOW_USE, RELIABILITY, APP_CLOCKS = 10, BASE_CLOCKS = 11, POLICIES };

static uint64_t total[SG_MAX_DEVICES][POLICIES], last_look[SG_MAX_DEVICES];
static struct faults before[SG_MAX_DEVICES];
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

/* Before every function of a device. An idle device is not held down by anything. */
void nvml_look(int dev, const struct faults *f) {
  uint64_t now = sg_now(), from, to = now;
  pthread_mutex_lock(&mu);
  struct faults *past = &before[dev];
  from = last_look[dev] == 0 ? now : last_look[dev];
  if (f->throttle == 0 || past->throttle == 0) {
    uint64_t change = changed_at(now);
    if (change < from) change = from;
    if (f->throttle != 0) from = change; /* it began in between */
    if (past->throttle != 0) to = change;
  }
  const struct faults *held = f->throttle != 0 ? f : past;
  if (held->throttle != 0 && to > from && nvml_percent(dev) > 0) add(total[dev], held, to - from);
  *past = *f;
  last_look[dev] = now;
  pthread_mutex_unlock(&mu);
}

struct violation {
  uint64_t reference_us, violation_ns;
};

SG(nvmlDeviceGetViolationStatus)(void *handle, unsigned policy, struct violation *out) {
  DEVICE(handle);
  if (policy >= POLICIES || out == NULL) return N_ARGUMENT;
  *out = (struct violation){sg_now() / NS_PER_US, total[dev][policy]};
  return N_OK;
}

/* Fields 74 to 81. */
int nvml_violation_field(int dev, unsigned field, uint64_t *out) {
  static const enum policy policies[] = {POWER, THERMAL, SYNC_BOOST, BOARD, LOW_USE, RELIABILITY, APP_CLOCKS, BASE_CLOCKS};
  if (field < 74 || field > 81) return N_UNSUPPORTED;
  *out = total[dev][policies[field - 74]];
  return N_OK;
}
