/* MIG: a device cut into instances, as many as a test says. Processes use the first, as without a choice. */
#include "nvml_core.h"
#include "sg_private.h"

#include <stdio.h>
#include <string.h>

#define INSTANCES(dev) {{dev, 0}, {dev, 1}, {dev, 2}, {dev, 3}, {dev, 4}, {dev, 5}, {dev, 6}}

static struct handle handles[SG_MAX_DEVICES][MIG_MAX] = {INSTANCES(0), INSTANCES(1), INSTANCES(2), INSTANCES(3),
                                                         INSTANCES(4), INSTANCES(5), INSTANCES(6), INSTANCES(7)};

/* How a device is cut when there are so many instances. */
struct profile {
  unsigned slices, memory_eighths, multiprocessors, first_id;
};
static const struct profile profiles[MIG_MAX + 1] = {
    [1] = {7, 8, SG_SM_COUNT, 0}, [2] = {3, 4, 60, 1}, [3] = {2, 2, 32, 3}, [4] = {1, 1, 16, 7},
    [5] = {1, 1, 16, 7},          [6] = {1, 1, 16, 7}, [7] = {1, 1, 16, 7},
};

static const struct profile *profile_of(int dev) { return &profiles[nvml_state_of(dev).mig]; }

const struct handle *nvml_instance(const void *handle) {
  const struct handle *h = handle;
  if (h < &handles[0][0] || h >= &handles[0][0] + SG_MAX_DEVICES * MIG_MAX) return NULL;
  return h;
}

unsigned nvml_instance_id(int dev, int instance) { return profile_of(dev)->first_id + (unsigned)instance; }

int nvml_no_device(const void *handle) { return nvml_instance(handle) != NULL ? N_UNSUPPORTED : N_ARGUMENT; }

#define INSTANCE(of)                                      \
  const struct handle *mig = nvml_instance(of);           \
  if (mig == NULL) return N_ARGUMENT;                     \
  const struct profile *profile = profile_of(mig->index); \
  if (profile->slices == 0) return N_NOT_FOUND

int nvml_instance_name(const struct handle *h, char *out, unsigned size) {
  char name[96];
  INSTANCE(h);
  snprintf(name, sizeof name, SG_DEVICE_NAME " MIG %ug.%llugb", profile->slices,
           (unsigned long long)(nvml_memory_total() >> 30) * profile->memory_eighths / 8);
  return nvml_text(out, size, name);
}

int nvml_instance_uuid(const struct handle *h, char *out, unsigned size) {
  char text[64], *at = text + sprintf(text, "MIG-");
  unsigned char u[16];
  INSTANCE(h);
  (void)profile;
  sg_uuid(u, mig->index << 4 | (mig->instance + 1));
  for (int i = 0; i < 16; i++) at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
  return nvml_text(out, size, text);
}

int nvml_instance_memory(const struct handle *h, uint64_t *out) {
  struct usage u;
  INSTANCE(h);
  if (out == NULL) return N_ARGUMENT;
  nvml_usage(mig->index, &u);
  out[0] = nvml_memory_total() / 8 * profile->memory_eighths;
  out[2] = mig->instance == 0 ? u.memory : 0;
  if (out[2] > out[0]) out[2] = out[0];
  out[1] = out[0] - out[2];
  return N_OK;
}

SG(nvmlDeviceGetMigMode)(void *h, unsigned *now, unsigned *pending) {
  DEVICE(h);
  unsigned on = nvml_state_of(dev).mig > 0;
  int error = nvml_number(pending, on);
  return error != N_OK ? error : nvml_number(now, on);
}
SG(nvmlDeviceGetMaxMigDeviceCount)(void *h, unsigned *out) {
  DEVICE(h);
  return nvml_number(out, MIG_MAX);
}
SG(nvmlDeviceGetMigDeviceHandleByIndex)(void *h, unsigned index, void **out) {
  DEVICE(h);
  if (out == NULL) return N_ARGUMENT;
  if (index >= nvml_state_of(dev).mig) return N_NOT_FOUND;
  *out = &handles[dev][index];
  return N_OK;
}
SG(nvmlDeviceIsMigDeviceHandle)(void *h, unsigned *out) { return nvml_number(out, nvml_instance(h) != NULL); }
SG(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(void *h, void **out) {
  INSTANCE(h);
  (void)profile;
  if (out == NULL) return N_ARGUMENT;
  *out = &nvml_handles[mig->index];
  return N_OK;
}
SG(nvmlDeviceGetGpuInstanceId)(void *h, unsigned *out) {
  INSTANCE(h);
  return nvml_number(out, profile->first_id + (unsigned)mig->instance);
}
SG(nvmlDeviceGetComputeInstanceId)(void *h, unsigned *out) {
  INSTANCE(h);
  (void)profile;
  return nvml_number(out, 0);
}

struct attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, slices, compute_slices;
  uint64_t memory_mib;
};
SG(nvmlDeviceGetAttributes_v2)(void *h, struct attributes *out) {
  INSTANCE(h);
  if (out == NULL) return N_ARGUMENT;
  *out = (struct attributes){.multiprocessors = profile->multiprocessors,
                             .copy_engines = profile->slices,
                             .decoders = profile->slices > 1 ? 1 : 0,
                             .slices = profile->slices,
                             .compute_slices = profile->slices,
                             .memory_mib = (nvml_memory_total() >> 20) / 8 * profile->memory_eighths};
  return N_OK;
}
