/* Fans, memory errors and the video engines: the last two only as a test sets them. */
#include "nvml_core.h"

#define MEMORY_CELLS 2 /* location: device memory */
#define BAR1_BYTES (128ull << 30)

/* A fan of a third at rest, faster the more the device does. */
SG(nvmlDeviceGetFanSpeed)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, 30 + nvml_percent(dev) / 2);
}
SG(nvmlDeviceGetFanSpeed_v2)(void *h, unsigned fan, unsigned *out) {
  DEVICE(h);
  return fan > 0 ? N_ARGUMENT : nvml_number(out, 30 + nvml_percent(dev) / 2);
}
SG(nvmlDeviceGetNumFans)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, 1);
}

SG(nvmlDeviceGetEccMode)(void *h, unsigned *now, unsigned *pending) {
  DEVICE(h);
  int error = nvml_number(pending, 1);
  return error != N_OK ? error : nvml_number(now, 1);
}

/* Kind 0: corrected, 1: not. The counters since the last start and those of its whole life are the same. */
SG(nvmlDeviceGetTotalEccErrors)(void *h, int kind, int counter, uint64_t *out) {
  DEVICE(h);
  struct faults f = nvml_state_of(dev);
  if (out == NULL || kind < 0 || kind > 1 || counter < 0 || counter > 1) return N_ARGUMENT;
  *out = kind == 0 ? f.ecc_corrected : f.ecc_uncorrected;
  return N_OK;
}
SG(nvmlDeviceGetMemoryErrorCounter)(void *h, int kind, int counter, int location, uint64_t *out) {
  int error = impl_nvmlDeviceGetTotalEccErrors(h, kind, counter, out);
  if (error == N_OK && location != MEMORY_CELLS) *out = 0;
  return error;
}

static int engine(int dev, unsigned percent, unsigned *out, unsigned *period_us) {
  if (out == NULL || period_us == NULL) return N_ARGUMENT;
  if (nvml_state_of(dev).mig > 0) return N_UNSUPPORTED;
  *out = percent;
  *period_us = 167000;
  return N_OK;
}
SG(nvmlDeviceGetEncoderUtilization)(void *h, unsigned *out, unsigned *period_us) {
  DEVICE(h);
  return engine(dev, nvml_state_of(dev).encoder, out, period_us);
}
SG(nvmlDeviceGetDecoderUtilization)(void *h, unsigned *out, unsigned *period_us) {
  DEVICE(h);
  return engine(dev, nvml_state_of(dev).decoder, out, period_us);
}
SG_ALIAS(nvmlDeviceGetOfaUtilization, nvmlDeviceGetJpgUtilization)
SG(nvmlDeviceGetJpgUtilization)(void *h, unsigned *out, unsigned *period_us) {
  DEVICE(h);
  return engine(dev, 0, out, period_us);
}

/* Total, free, used: the window through which the CPU sees the device's memory, or that of an instance. */
SG(nvmlDeviceGetBAR1MemoryInfo)(void *h, uint64_t *out) {
  int whole = nvml_index(h) >= 0;
  if (out == NULL || (!whole && nvml_instance(h) == NULL)) return N_ARGUMENT;
  out[0] = whole ? BAR1_BYTES : BAR1_BYTES / 8;
  out[2] = 2ull << 20;
  out[1] = out[0] - out[2];
  return N_OK;
}
