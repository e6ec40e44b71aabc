/* What goes over PCIe and NVLink, and the values that NVML hands out by number (fields). */
#include "nvml_core.h"

#include <string.h>
#include <unistd.h>

#define LINKS 18 /* of NVLink; a field for all of them has this scope: */
#define ALL_LINKS 0xffffffffu

enum { LINK_COUNT = 91, LINK_TX = 138, LINK_RX = 139, LINK_RAW_TX = 140, LINK_RAW_RX = 141 };

/* Counters of bytes are sampled over 20 ms, in the call, as the real one does. */
SG(nvmlDeviceGetPcieThroughput)(void *h, int counter, unsigned *out) {
  struct traffic a, b;
  uint64_t begun = sg_now(), spent, bytes;
  DEVICE(h);
  if (counter < 0 || counter > 1) return N_ARGUMENT;
  a = nvml_traffic(dev);
  usleep(20000);
  b = nvml_traffic(dev);
  spent = sg_now() - begun;
  bytes = counter == 0 ? b.pcie_sent - a.pcie_sent : b.pcie_received - a.pcie_received;
  if ((int64_t)bytes < 0) bytes = 0;
  return nvml_number(out, (unsigned)((double)bytes * 1e6 / (double)spent));
}
SG_ALIAS(nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkGeneration)
SG(nvmlDeviceGetCurrPcieLinkGeneration)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, 5);
}
SG_ALIAS(nvmlDeviceGetMaxPcieLinkWidth, nvmlDeviceGetCurrPcieLinkWidth)
SG(nvmlDeviceGetCurrPcieLinkWidth)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, 16);
}

/* A device alone in its machine has nobody to be linked to. */
static int linked(void) { return nvml_device_count() > 1; }

SG(nvmlDeviceGetNvLinkState)(void *h, unsigned link, unsigned *out) {
  DEVICE(h);
  if (link >= LINKS) return N_ARGUMENT;
  return nvml_number(out, (unsigned)linked());
}

/* KiB since the start; the links share the load equally. */
static int link_field(int dev, unsigned field, unsigned scope, uint64_t *out) {
  struct traffic t = nvml_traffic(dev);
  uint64_t bytes = field == LINK_TX || field == LINK_RAW_TX ? t.nvlink_sent : t.nvlink_received;
  if (!linked()) return N_UNSUPPORTED;
  if (scope != ALL_LINKS && scope >= LINKS) return N_ARGUMENT;
  *out = bytes / 1024 / (scope == ALL_LINKS ? 1 : LINKS);
  return N_OK;
}

struct field_value {
  unsigned field, scope;
  int64_t timestamp_us, latency_us;
  unsigned type; /* 1: unsigned int, 3: unsigned long long */
  int error;
  uint64_t value;
};

SG(nvmlDeviceGetFieldValues)(void *handle, int count, struct field_value *values) {
  struct timespec t;
  DEVICE(handle);
  if (values == NULL || count < 1) return N_ARGUMENT;
  clock_gettime(CLOCK_REALTIME, &t);
  for (int i = 0; i < count; i++) {
    struct field_value *v = &values[i];
    v->timestamp_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    v->latency_us = 0;
    v->type = v->field == LINK_COUNT ? 1 : 3;
    if (v->field == LINK_COUNT) {
      v->value = linked() ? LINKS : 0;
      v->error = N_OK;
    } else if (v->field >= LINK_TX && v->field <= LINK_RAW_RX) {
      v->error = link_field(dev, v->field, v->scope, &v->value);
    } else {
      v->error = nvml_violation_field(dev, v->field, &v->value);
    }
  }
  return N_OK;
}
