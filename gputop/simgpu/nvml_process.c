/* Processes on the devices, and the facts that never change. */
#include "nvml_core.h"

#include <string.h>

#define DEVICE(handle)             \
  int dev = nvml_index(handle);    \
  if (dev < 0 || dev >= nvml_device_count()) return N_ARGUMENT

struct process {
  unsigned pid;
  uint64_t memory;
  unsigned gpu_instance, compute_instance;
};

SG_ALIAS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3)
SG(nvmlDeviceGetComputeRunningProcesses_v3)(void *h, unsigned *count, struct process *out) {
  struct usage u;
  unsigned n = 0, room;
  DEVICE(h);
  if (count == NULL) return N_ARGUMENT;
  nvml_usage(dev, &u);
  room = out == NULL ? 0 : *count;
  for (int i = 0; i < u.users; i++) {
    if (!u.user[i].alive) continue;
    if (n < room) out[n] = (struct process){u.user[i].pid, u.user[i].memory, ~0u, ~0u};
    n++;
  }
  *count = n;
  return n > room ? N_SIZE : N_OK;
}

SG_ALIAS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3)
SG_ALIAS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3)
SG(nvmlDeviceGetGraphicsRunningProcesses_v3)(void *h, unsigned *count) {
  DEVICE(h);
  if (count == NULL) return N_ARGUMENT;
  *count = 0;
  return N_OK;
}

struct sample {
  unsigned pid;
  uint64_t time_us;
  unsigned sm, memory, encoder, decoder;
};

SG(nvmlDeviceGetProcessUtilization)(void *h, struct sample *out, unsigned *count, uint64_t since) {
  struct usage u;
  struct timespec t;
  unsigned n = 0, room;
  (void)since;
  DEVICE(h);
  if (count == NULL) return N_ARGUMENT;
  nvml_usage(dev, &u);
  clock_gettime(CLOCK_REALTIME, &t);
  room = out == NULL ? 0 : *count;
  for (int i = 0; i < u.users; i++) {
    unsigned sm = (unsigned)(u.user[i].busy_ns * 100 / u.window_ns);
    uint64_t us = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    if (sm == 0) continue; /* the real one lists only who did something */
    if (n < room) out[n] = (struct sample){u.user[i].pid, us, sm > 100 ? 100 : sm, sm / 3, 0, 0};
    n++;
  }
  *count = n;
  if (n == 0) return N_NOT_FOUND;
  return n > room ? N_SIZE : N_OK;
}

SG_ALIAS(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization)
SG(nvmlDeviceGetEncoderUtilization)(void *h, unsigned *out, unsigned *period_us) {
  DEVICE(h);
  if (out == NULL || period_us == NULL) return N_ARGUMENT;
  *out = 0;
  *period_us = 167000;
  return N_OK;
}

SG(nvmlDeviceGetCudaComputeCapability)(void *h, int *major, int *minor) {
  DEVICE(h);
  *major = SG_MAJOR_CC;
  *minor = SG_MINOR_CC;
  return N_OK;
}

static int constant(void *h, unsigned *out, unsigned value) {
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  *out = value;
  return N_OK;
}

SG(nvmlDeviceGetBrand)(void *h, unsigned *out) { return constant(h, out, 14); }
SG(nvmlDeviceGetArchitecture)(void *h, unsigned *out) { return constant(h, out, 9); }
SG(nvmlDeviceGetNumGpuCores)(void *h, unsigned *out) { return constant(h, out, SG_SM_COUNT * 128); }
SG(nvmlDeviceGetMemoryBusWidth)(void *h, unsigned *out) { return constant(h, out, 5120); }
SG(nvmlDeviceGetComputeMode)(void *h, unsigned *out) { return constant(h, out, 0); }
SG(nvmlDeviceGetPersistenceMode)(void *h, unsigned *out) { return constant(h, out, 1); }
SG(nvmlDeviceGetDisplayActive)(void *h, unsigned *out) { return constant(h, out, 0); }
SG(nvmlDeviceGetDisplayMode)(void *h, unsigned *out) { return constant(h, out, 0); }
SG(nvmlDeviceGetPcieReplayCounter)(void *h, unsigned *out) { return constant(h, out, 0); }
SG(nvmlDeviceGetMaxMigDeviceCount)(void *h, unsigned *out) { return constant(h, out, 0); }
SG(nvmlDeviceGetEccMode)(void *h, unsigned *now, unsigned *pending) {
  constant(h, pending, 1);
  return constant(h, now, 1);
}
SG(nvmlDeviceGetTotalEccErrors)(void *h, int kind, int counter, uint64_t *out) {
  DEVICE(h);
  (void)kind, (void)counter;
  if (out == NULL) return N_ARGUMENT;
  *out = 0;
  return N_OK;
}
SG(nvmlSystemGetProcessName)(unsigned pid, char *out, unsigned size) {
  (void)pid;
  if (out == NULL || size == 0) return N_ARGUMENT;
  *out = '\0';
  return N_NOT_FOUND;
}
