/* Devices: who they are, and sensors that follow what the workloads do. */
#include "nvml_core.h"
#include "sg_private.h"

#include <stdio.h>
#include <string.h>

#define IDLE_MHZ 345
#define MEMORY_MHZ 2619
#define IDLE_MW 70000
#define LIMIT_MW 700000

static void uuid_text(int dev, char out[64]) {
  unsigned char u[16];
  char *at = out + sprintf(out, "GPU-");
  sg_uuid(u, dev);
  for (int i = 0; i < 16; i++) at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

SG_ALIAS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2)
SG(nvmlDeviceGetCount_v2)(unsigned *count) { return nvml_number(count, (unsigned)nvml_device_count()); }

static int give(int dev, void **out) {
  if (out == NULL || dev < 0 || dev >= nvml_device_count()) return N_ARGUMENT;
  *out = &nvml_handles[dev];
  return nvml_state_of(dev).error; /* lost */
}

SG_ALIAS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2)
SG(nvmlDeviceGetHandleByIndex_v2)(unsigned index, void **out) { return give(index < 64 ? (int)index : -1, out); }

SG(nvmlDeviceGetHandleByUUID)(const char *uuid, void **out) {
  char own[64];
  for (int i = 0; uuid != NULL && i < nvml_device_count(); i++) {
    uuid_text(i, own);
    if (strcmp(own, uuid) == 0) return give(i, out);
  }
  return N_NOT_FOUND;
}

SG_ALIAS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2)
SG(nvmlDeviceGetHandleByPciBusId_v2)(const char *id, void **out) {
  unsigned domain, bus;
  if (id == NULL || sscanf(id, "%x:%x:", &domain, &bus) != 2) return N_ARGUMENT;
  return bus >= 0x10 && (int)bus - 0x10 < nvml_device_count() ? give((int)bus - 0x10, out) : N_NOT_FOUND;
}

SG(nvmlDeviceGetIndex)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, (unsigned)dev);
}
SG(nvmlDeviceGetMinorNumber)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, (unsigned)dev);
}
SG(nvmlDeviceGetName)(void *h, char *out, unsigned size) {
  if (nvml_instance(h) != NULL) return nvml_instance_name(h, out, size);
  DEVICE(h);
  return nvml_text(out, size, SG_DEVICE_NAME);
}
SG(nvmlDeviceGetUUID)(void *h, char *out, unsigned size) {
  char uuid[64];
  if (nvml_instance(h) != NULL) return nvml_instance_uuid(h, out, size);
  DEVICE(h);
  uuid_text(dev, uuid);
  return nvml_text(out, size, uuid);
}
SG(nvmlSystemGetDriverVersion)(char *out, unsigned size) { return nvml_text(out, size, "580.00.01"); }
SG(nvmlSystemGetNVMLVersion)(char *out, unsigned size) { return nvml_text(out, size, "13.580.00.01"); }
SG_ALIAS(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2)
SG(nvmlSystemGetCudaDriverVersion_v2)(int *out) { return nvml_number((unsigned *)out, SG_DRIVER_VERSION); }

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};

SG(nvmlDeviceGetPciInfo_v3)(void *h, struct pci *out) {
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  memset(out, 0, sizeof *out);
  out->bus = 0x10 + (unsigned)dev;
  out->id = 0x233010de;
  snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus & 255);
  snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
  return N_OK;
}

/* Not of a device that is cut into instances: the real one does not tell it then. */
SG(nvmlDeviceGetUtilizationRates)(void *h, unsigned *out) {
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  if (nvml_state_of(dev).mig > 0) return N_UNSUPPORTED;
  struct usage u;
  nvml_usage(dev, &u);
  out[0] = nvml_share(u.busy_ns, &u);
  out[1] = nvml_share(u.used_ns[USE_DRAM], &u);
  return N_OK;
}

SG(nvmlDeviceGetMemoryInfo)(void *h, uint64_t *out) {
  struct usage u;
  if (nvml_instance(h) != NULL) return nvml_instance_memory(h, out);
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  nvml_usage(dev, &u);
  out[0] = nvml_memory_total();
  out[2] = u.memory > out[0] ? out[0] : u.memory;
  out[1] = out[0] - out[2];
  return N_OK;
}

struct memory_v2 {
  unsigned version;
  uint64_t total, reserved, available, used;
};
SG(nvmlDeviceGetMemoryInfo_v2)(void *h, struct memory_v2 *out) {
  uint64_t v1[3];
  int err = impl_nvmlDeviceGetMemoryInfo(h, v1);
  if (err != N_OK) return err;
  if (out == NULL) return N_ARGUMENT;
  *out = (struct memory_v2){out->version, v1[0], 0, v1[1], v1[2]};
  return N_OK;
}

SG(nvmlDeviceGetPowerUsage)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, IDLE_MW + nvml_percent(dev) * 5500);
}
SG_ALIAS(nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetEnforcedPowerLimit)
SG_ALIAS(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetEnforcedPowerLimit)
SG(nvmlDeviceGetEnforcedPowerLimit)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, LIMIT_MW);
}
SG(nvmlDeviceGetPowerManagementLimitConstraints)(void *h, unsigned *low, unsigned *high) {
  DEVICE(h);
  nvml_number(low, 200000);
  return nvml_number(high, LIMIT_MW);
}
SG(nvmlDeviceGetTemperature)(void *h, int sensor, unsigned *out) {
  DEVICE(h);
  return sensor != 0 ? N_ARGUMENT : nvml_number(out, 32 + nvml_percent(dev) * 38 / 100);
}
struct temperature_v1 {
  unsigned version;
  int sensor, value;
};
SG(nvmlDeviceGetTemperatureV)(void *h, struct temperature_v1 *out) {
  return out == NULL ? N_ARGUMENT : impl_nvmlDeviceGetTemperature(h, out->sensor, (unsigned *)&out->value);
}
SG(nvmlDeviceGetTemperatureThreshold)(void *h, int kind, unsigned *out) {
  static const unsigned values[] = {95, 90, 89, 87};
  DEVICE(h);
  return kind >= 0 && kind < 4 ? nvml_number(out, values[kind]) : N_UNSUPPORTED;
}

static unsigned clock_mhz(int dev, int kind) {
  struct faults f = nvml_state_of(dev);
  unsigned busy = nvml_percent(dev);
  if (kind == 2) return MEMORY_MHZ;
  if (busy == 0) return IDLE_MHZ;
  return f.throttle_mhz != 0 ? f.throttle_mhz : BUSY_MHZ;
}

SG(nvmlDeviceGetClockInfo)(void *h, int kind, unsigned *out) {
  DEVICE(h);
  return kind < 0 || kind > 3 ? N_ARGUMENT : nvml_number(out, clock_mhz(dev, kind));
}
SG_ALIAS(nvmlDeviceGetApplicationsClock, nvmlDeviceGetMaxClockInfo)
SG_ALIAS(nvmlDeviceGetMaxCustomerBoostClock, nvmlDeviceGetMaxClockInfo)
SG(nvmlDeviceGetMaxClockInfo)(void *h, int kind, unsigned *out) {
  DEVICE(h);
  return kind < 0 || kind > 3 ? N_ARGUMENT : nvml_number(out, kind == 2 ? MEMORY_MHZ : 1980);
}
SG(nvmlDeviceGetClock)(void *h, int kind, int id, unsigned *out) {
  return id == 3 ? impl_nvmlDeviceGetMaxClockInfo(h, kind, out) : impl_nvmlDeviceGetClockInfo(h, kind, out);
}
SG_ALIAS(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons)
SG(nvmlDeviceGetCurrentClocksEventReasons)(void *h, uint64_t *out) {
  DEVICE(h);
  struct faults f = nvml_state_of(dev);
  if (out == NULL) return N_ARGUMENT;
  *out = f.throttle != 0 ? f.throttle : (nvml_percent(dev) == 0 ? 1 : 0);
  return N_OK;
}
SG_ALIAS(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons)
SG(nvmlDeviceGetSupportedClocksEventReasons)(void *h, uint64_t *out) {
  DEVICE(h);
  *out = 0x1ff;
  return N_OK;
}
SG_ALIAS(nvmlDeviceGetPowerState, nvmlDeviceGetPerformanceState)
SG(nvmlDeviceGetPerformanceState)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, nvml_percent(dev) == 0 ? 8 : 0);
}
