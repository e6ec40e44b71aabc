/* Names of errors, the private table for the simulated runtime; device facts. */
#include <stdlib.h>
#include "cu_core.h"

#include <stdio.h>
#include <string.h>

/* The trampolines come here at the first call, after a fork, and at every tenth count. */
void sg_count_slow(uint32_t offset);
void sg_count_slow(uint32_t offset) { sg_count(offset); }

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
#define ERROR(code, name, text) {code, name, text},
#include "sg_errors.h"
#undef ERROR
};

SG(cuGetErrorString)(int code, const char **out) {
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
    if (errors[i].code == code) {
      *out = errors[i].text;
      return OK;
    }
  *out = NULL;
  return E_VALUE;
}

SG(cuGetErrorName)(int code, const char **out) {
  static __thread char name[64];
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
    if (errors[i].code == code) {
      snprintf(name, sizeof name, "CUDA_%s", errors[i].name);
      *out = name;
      return OK;
    }
  *out = NULL;
  return E_VALUE;
}

static uint64_t *cell(void) { return sg_cell; }

static void poll_joints(void) {
  pthread_mutex_lock(&sg_mu);
  q_poll();
  pthread_mutex_unlock(&sg_mu);
}

static void read_memory(void *to, const void *from, size_t n) {
  if (mem_holds_no_data(from))
    data_read(to, from, n);
  else
    memcpy(to, from, n);
}

static void write_memory(void *to, const void *from, size_t n) {
  if (mem_holds_no_data(to))
    data_write(to, from, n);
  else
    memcpy(to, from, n);
}

static const struct sg_private private_table = {sizeof(struct sg_private), sg_count, cell,
                                                impl_cuLaunchKernel,       cu_next_launch, poll_joints,
                                                cu_next_work,              read_memory,    write_memory,
                                                cu_observe};

SG(cuGetExportTable)(const void **out, const void *id) {
  if (out == NULL || id == NULL) return E_VALUE;
  if (memcmp(id, SG_PRIVATE_ID, 16) != 0) return E_NOT_FOUND;
  *out = &private_table;
  return OK;
}

SG(cuDeviceGetName)(char *name, int size, int dev) {
  int err = cu_enter();
  if (err != OK) return err;
  if (dev < 0 || dev >= cfg.devices) return E_DEVICE;
  snprintf(name, (size_t)size, "%s", SG_DEVICE_NAME);
  return OK;
}

SG_ALIAS(cuDeviceTotalMem, cuDeviceTotalMem_v2)
SG(cuDeviceTotalMem_v2)(size_t *bytes, int dev) {
  int err = cu_enter();
  if (err != OK) return err;
  if (dev < 0 || dev >= cfg.devices) return E_DEVICE;
  *bytes = cfg.memory;
  return OK;
}

SG_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2)
SG(cuDeviceGetUuid_v2)(unsigned char *uuid, int dev) {
  int err = cu_enter();
  if (err != OK) return err;
  if (dev < 0 || dev >= cfg.devices) return E_DEVICE;
  sg_uuid(uuid, cfg.visible[dev]);
  return OK;
}

SG(cuDeviceGetPCIBusId)(char *text, int size, int dev) {
  if (dev < 0 || dev >= cfg.devices) return E_DEVICE;
  snprintf(text, (size_t)size, "0000:%02x:00.0", 0x10 + cfg.visible[dev]);
  return OK;
}
SG(cuDeviceGetByPCIBusId)(int *dev, const char *text) {
  unsigned domain, bus;
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2) return E_VALUE;
  for (*dev = 0; *dev < cfg.devices; ++*dev)
    if (bus == 0x10u + (unsigned)cfg.visible[*dev]) return OK;
  return E_DEVICE;
}

SG(cuDeviceCanAccessPeer)(int *can, int a, int b) {
  *can = a != b;
  return OK;
}
SG(cuDeviceGetDefaultMemPool)(void **pool, int dev) {
  *pool = &dev_table[dev];
  return OK;
}
SG_ALIAS(cuDeviceGetMemPool, cuDeviceGetDefaultMemPool)
SG(cuMemPoolSetAttribute)(void) { return OK; }
SG_ALIAS(cuMemPoolTrimTo, cuMemPoolSetAttribute)
SG_ALIAS(cuMemPoolSetAccess, cuMemPoolSetAttribute)
SG_ALIAS(cuMemPoolDestroy, cuMemPoolSetAttribute)
SG(cuMemPoolGetAttribute)(void *pool, int attribute, uint64_t *value) {
  (void)pool, (void)attribute;
  *value = 0;
  return OK;
}
SG(cuMemPoolCreate)(void **pool, const void *properties) {
  (void)properties;
  *pool = &dev_table[0];
  return OK;
}

SG(cuDeviceGetAttribute)(int *value, int attribute, int dev) {
  static const struct {
    short attribute;
    int value;
  } known[] = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536},
      {10, 32}, {11, 2147483647}, {12, 65536}, {13, 1755000}, {14, 512}, {15, 1}, {16, SG_SM_COUNT}, {19, 1},
      {31, 1}, {36, 2619000}, {37, 5120}, {38, 52428800}, {39, 2048}, {40, 3}, {41, 1}, {75, SG_MAJOR_CC},
      {76, SG_MINOR_CC}, {78, 1}, {79, 1}, {80, 1}, {81, 233472}, {82, 65536}, {83, 1}, {88, 1}, {89, 1}, {90, 1},
      {91, 1}, {95, 1}, {97, 232448}, {99, 1}, {101, 1}, {102, 1}, {106, 32}, {111, 1024}, {115, 1},
  };
  int err = cu_enter();
  if (err != OK) return err;
  if (value == NULL) return E_VALUE;
  if (dev < 0 || dev >= cfg.devices) return E_DEVICE;
  *value = attribute == 33 ? 0x10 + cfg.visible[dev] : attribute == 133 ? getenv("SIMGPU_MPS") != NULL : 0;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].attribute == attribute) *value = known[i].value;
  return OK;
}
