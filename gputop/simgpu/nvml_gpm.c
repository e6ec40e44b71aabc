/* GPM: what the device did between two samples. The shares follow from the kernels that ran. */
#include "nvml_core.h"

#include <stdlib.h>

#define ANYWHERE (-1)

enum metric_id {
  GRAPHICS_UTIL = 1, SM_UTIL = 2, SM_OCCUPANCY = 3, ANY_TENSOR_UTIL = 5, HMMA_TENSOR_UTIL = 7, DRAM_BW_UTIL = 10,
  PCIE_TX = 20, PCIE_RX = 21, NVLINK_RX = 60, NVLINK_TX = 61, /* MiB a second */
};

struct sample {
  int dev, instance; /* instance: NVML's number of a GPU instance, or ANYWHERE */
  uint64_t time;
  struct traffic traffic;
};

struct support {
  unsigned version, supported;
};
SG(nvmlGpmQueryDeviceSupport)(void *h, struct support *out) {
  DEVICE(h);
  (void)dev;
  if (out == NULL) return N_ARGUMENT;
  out->supported = 1;
  return N_OK;
}

SG(nvmlGpmSampleAlloc)(struct sample **out) {
  if (out == NULL) return N_ARGUMENT;
  *out = calloc(1, sizeof **out);
  return *out == NULL ? N_UNKNOWN : N_OK;
}
SG(nvmlGpmSampleFree)(struct sample *s) {
  free(s);
  return N_OK;
}
SG(nvmlGpmSampleGet)(void *h, struct sample *out) {
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  *out = (struct sample){dev, ANYWHERE, sg_now(), nvml_traffic(dev)};
  return N_OK;
}
SG(nvmlGpmMigSampleGet)(void *h, unsigned instance, struct sample *out) {
  DEVICE(h);
  unsigned count = nvml_state_of(dev).mig;
  if (out == NULL || count == 0 || instance - nvml_instance_id(dev, 0) >= count) return N_ARGUMENT;
  *out = (struct sample){dev, (int)instance, sg_now(), nvml_traffic(dev)};
  return N_OK;
}

struct metric {
  unsigned id;
  int error;
  double value;
  const char *short_name, *long_name, *unit;
};
struct query {
  unsigned version, count;
  const struct sample *first, *second;
  struct metric metric[];
};

static double mib_a_second(uint64_t before, uint64_t after, double seconds) {
  return after > before ? (double)(after - before) / seconds / (1 << 20) : 0;
}

static int answer(const struct query *q, const struct usage *u, struct metric *m) {
  const struct traffic *a = &q->first->traffic, *b = &q->second->traffic;
  double seconds = (double)(q->second->time - q->first->time) / NS_PER_S, percent = 100 / (double)(u->to - u->from);
  switch ((enum metric_id)m->id) {
    case GRAPHICS_UTIL: m->value = percent * (double)u->busy_ns; break;
    case SM_UTIL: m->value = percent * (double)u->used_ns[USE_SM]; break;
    case SM_OCCUPANCY: m->value = percent * (double)u->used_ns[USE_OCCUPANCY]; break;
    case ANY_TENSOR_UTIL:
    case HMMA_TENSOR_UTIL: m->value = percent * (double)u->used_ns[USE_TENSOR]; break;
    case DRAM_BW_UTIL: m->value = percent * (double)u->used_ns[USE_DRAM]; break;
    case PCIE_TX: m->value = mib_a_second(a->pcie_sent, b->pcie_sent, seconds); break;
    case PCIE_RX: m->value = mib_a_second(a->pcie_received, b->pcie_received, seconds); break;
    case NVLINK_TX: m->value = mib_a_second(a->nvlink_sent, b->nvlink_sent, seconds); break;
    case NVLINK_RX: m->value = mib_a_second(a->nvlink_received, b->nvlink_received, seconds); break;
    default: return N_UNSUPPORTED;
  }
  return N_OK;
}

SG(nvmlGpmMetricsGet)(struct query *q) {
  struct usage u = {.to = 1};
  if (q == NULL || q->first == NULL || q->second == NULL || q->second->time <= q->first->time) return N_ARGUMENT;
  const struct sample *s = q->second;
  if (q->first->dev != s->dev || q->first->instance != s->instance) return N_ARGUMENT;
  int idle = s->instance != ANYWHERE && (unsigned)s->instance != nvml_instance_id(s->dev, 0);
  if (!idle) nvml_usage_in(s->dev, q->first->time, s->time, &u);
  for (unsigned i = 0; i < q->count; i++) q->metric[i].error = answer(q, &u, &q->metric[i]);
  return N_OK;
}
