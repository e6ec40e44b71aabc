/* Processes on the devices, and the facts that never change. */
#include "nvml_core.h"

#include <string.h>

struct process {
  unsigned pid;
  uint64_t memory;
  unsigned gpu_instance, compute_instance;
};

#define NONE (~0u)

/* Those of the whole device, or of one of its instances. Processes are on the first one. */
SG_ALIAS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3)
SG(nvmlDeviceGetComputeRunningProcesses_v3)(void *h, unsigned *count, struct process *out) {
  const struct handle *mig = nvml_instance(h);
  struct usage u;
  unsigned n = 0, room;
  int dev = mig != NULL ? mig->index : nvml_index(h);
  if (dev < 0 || dev >= nvml_device_count() || count == NULL) return N_ARGUMENT;
  int cut = nvml_state_of(dev).mig > 0;
  nvml_usage(dev, &u);
  room = out == NULL ? 0 : *count;
  for (int i = 0; i < u.users && (mig == NULL || mig->instance == 0); i++) {
    if (!u.user[i].alive) continue;
    if (n < room)
      out[n] = (struct process){u.user[i].pid, u.user[i].memory, cut ? nvml_instance_id(dev, 0) : NONE, cut ? 0 : NONE};
    n++;
  }
  *count = n;
  return n > room ? N_SIZE : N_OK;
}

SG_ALIAS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3)
SG_ALIAS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3)
SG(nvmlDeviceGetGraphicsRunningProcesses_v3)(void *h, unsigned *count) {
  if (count == NULL || (nvml_index(h) < 0 && nvml_instance(h) == NULL)) return N_ARGUMENT;
  *count = 0;
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
SG(nvmlSystemGetProcessName)(unsigned pid, char *out, unsigned size) {
  (void)pid;
  if (out == NULL || size == 0) return N_ARGUMENT;
  *out = '\0';
  return N_NOT_FOUND;
}
