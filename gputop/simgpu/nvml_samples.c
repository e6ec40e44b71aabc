/* Figures with the time they are of: one for each window that is over, of the device or of its processes. */
#include "nvml_core.h"

#include <string.h>

#define MOST_SAMPLES 120 /* kept of a device */
#define UNSIGNED_INT 1

enum sampling { POWER_SAMPLES = 0, GPU_SAMPLES = 1, MEMORY_SAMPLES = 2 };

#define CLOCK_SET_NS 50000000 /* so far apart are two readings only where the clock was set */

/* Microseconds since 1970, as the real one's time stamps are. A window has the same one whenever it is asked for,
   until the clock is set. */
static uint64_t stamp(uint64_t monotonic_ns) {
  static _Atomic uint64_t offset;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  uint64_t now = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec - sg_now(), used = offset;
  uint64_t apart = now > used ? now - used : used - now;
  if (apart > CLOCK_SET_NS) offset = used = now;
  return (monotonic_ns + used) / NS_PER_US;
}

struct sample {
  uint64_t time_us;
  union {
    unsigned number;
    uint64_t wide;
  } value;
};

/* Of the windows that ended after a time, the oldest first. A buffer that is too small gets the oldest. */
SG(nvmlDeviceGetSamples)(void *h, unsigned kind, uint64_t since, unsigned *type, unsigned *count, struct sample *out) {
  DEVICE(h);
  if (type == NULL || count == NULL || kind > MEMORY_SAMPLES) return N_ARGUMENT;
  if (kind == POWER_SAMPLES || nvml_state_of(dev).mig > 0) return N_UNSUPPORTED;
  uint64_t window = nvml_window(), newest = sg_now() / window, depth = (STATE_PAST_NS - window) / window;
  unsigned n = 0;
  *type = UNSIGNED_INT;
  if (depth > MOST_SAMPLES) depth = MOST_SAMPLES;
  if (out == NULL) {
    *count = (unsigned)depth;
    return N_OK;
  }
  for (uint64_t k = newest - depth + 1; k <= newest && n < *count; k++) {
    struct usage u;
    if (stamp(k * window) <= since) continue;
    nvml_usage_in(dev, (k - 1) * window, k * window, &u);
    out[n].time_us = stamp(k * window);
    out[n].value.wide = 0;
    out[n++].value.number = nvml_share(kind == GPU_SAMPLES ? u.busy_ns : u.used_ns[USE_DRAM], &u);
  }
  *count = n;
  return n == 0 ? N_NOT_FOUND : N_OK;
}

struct process_sample {
  unsigned pid;
  uint64_t time_us;
  unsigned sm, memory, encoder, decoder;
};

/* Those that did something in the last window, if it ended after that time. */
static int newest_samples(int dev, uint64_t since, struct process_sample out[STATE_SLOTS], unsigned *count) {
  struct faults f = nvml_state_of(dev);
  struct usage u;
  *count = 0;
  if (f.mig > 0) return N_UNSUPPORTED;
  nvml_usage(dev, &u);
  uint64_t time_us = stamp(sg_now() / nvml_window() * nvml_window());
  for (int i = 0; i < u.users && time_us > since; i++) {
    unsigned sm = nvml_share(u.user[i].busy_ns, &u), memory = nvml_share(u.user[i].used_ns[USE_DRAM], &u);
    if (sm > 0) out[(*count)++] = (struct process_sample){u.user[i].pid, time_us, sm, memory, f.encoder, f.decoder};
  }
  return *count == 0 ? N_NOT_FOUND : N_OK;
}

SG(nvmlDeviceGetProcessUtilization)(void *h, struct process_sample *out, unsigned *count, uint64_t since) {
  struct process_sample found[STATE_SLOTS];
  unsigned n;
  DEVICE(h);
  if (count == NULL) return N_ARGUMENT;
  int err = newest_samples(dev, since, found, &n);
  if (err == N_UNSUPPORTED) return err;
  if (out == NULL || *count < n) {
    *count = STATE_SLOTS;
    return N_SIZE;
  }
  *count = n;
  memcpy(out, found, n * sizeof *out);
  return err;
}

struct process_info {
  uint64_t time_us;
  unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct processes_info {
  unsigned version, count;
  uint64_t since;
  struct process_info *out;
};

SG(nvmlDeviceGetProcessesUtilizationInfo)(void *h, struct processes_info *q) {
  struct process_sample found[STATE_SLOTS];
  unsigned n;
  DEVICE(h);
  if (q == NULL) return N_ARGUMENT;
  int err = newest_samples(dev, q->since, found, &n);
  if (err == N_UNSUPPORTED) return err;
  if (q->out == NULL || q->count < n) {
    q->count = STATE_SLOTS;
    return N_SIZE;
  }
  for (unsigned i = 0; i < n; i++)
    q->out[i] = (struct process_info){found[i].time_us, found[i].pid,     found[i].sm, found[i].memory,
                                      found[i].encoder, found[i].decoder, 0,           0};
  q->count = n;
  return err;
}
