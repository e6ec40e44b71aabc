/* Initialisation, and the gate before every function. */
#include "nvml_core.h"

#include <string.h>

struct handle nvml_handles[SG_MAX_DEVICES] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}, {4, -1}, {5, -1}, {6, -1}, {7, -1}};
static int initialised;

int nvml_index(const void *handle) {
  const struct handle *h = handle;
  return h >= nvml_handles && h < nvml_handles + SG_MAX_DEVICES ? (int)(h - nvml_handles) : -1;
}

struct faults nvml_state_of(int dev) {
  struct faults f;
  sg_faults("", dev, &f);
  return f;
}

int nvml_text(char *out, unsigned size, const char *value) {
  if (out == NULL) return N_ARGUMENT;
  if (strlen(value) + 1 > size) return N_SIZE;
  strcpy(out, value);
  return N_OK;
}

int nvml_number(unsigned *out, unsigned value) {
  if (out == NULL) return N_ARGUMENT;
  *out = value;
  return N_OK;
}

static int is_free(const char *name) {
  return strncmp(name, "nvmlInit", 8) == 0 || strcmp(name, "nvmlErrorString") == 0;
}

/* Every function passes here first: counted, delayed or refused. Its own first argument comes along. */
int sg_gate(uint32_t index, const void *first);
int sg_gate(uint32_t index, const void *first) {
  const struct sg_export *e = &sg_exports[index];
  const struct handle *instance = nvml_instance(first);
  struct faults f;
  int dev = instance != NULL ? instance->index : nvml_index(first);
  sg_count(e->offset);
  sg_faults(e->name, dev, &f);
  if (dev >= 0) nvml_look(dev, &f);
  if (f.hang_ms > 0) {
    struct timespec t = {f.hang_ms / 1000, (long)(f.hang_ms % 1000) * 1000000};
    nanosleep(&t, NULL);
  }
  if (!initialised && !is_free(e->name)) return N_UNINITIALIZED;
  return f.error;
}

SG_ALIAS(nvmlInit, nvmlInit_v2)
SG_ALIAS(nvmlInitWithFlags, nvmlInit_v2)
SG(nvmlInit_v2)(void) {
  __atomic_add_fetch(&initialised, 1, __ATOMIC_RELAXED);
  return N_OK;
}
SG(nvmlShutdown)(void) {
  __atomic_sub_fetch(&initialised, 1, __ATOMIC_RELAXED);
  return N_OK;
}

#define SG_OTHER(type, name) type impl_##name
SG_OTHER(const char *, nvmlErrorString)(int code) {
  switch (code) {
    case N_OK: return "The operation was successful";
    case N_UNINITIALIZED: return "Uninitialized";
    case N_ARGUMENT: return "Invalid Argument";
    case N_UNSUPPORTED: return "Not Supported";
    case N_PERMISSION: return "Insufficient Permissions";
    case N_NOT_FOUND: return "Not Found";
    case N_SIZE: return "Insufficient Size";
    case N_LOST: return "GPU is lost";
    default: return "Unknown Error";
  }
}
