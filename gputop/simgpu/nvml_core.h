/* The inside of the simulated NVML: it reads the shared state, as any monitor does, and owns nothing. */
#ifndef NVML_CORE_H
#define NVML_CORE_H

#include "sg_fault.h"
#include "sg_state.h"

enum {
  N_OK = 0, N_UNINITIALIZED = 1, N_ARGUMENT = 2, N_UNSUPPORTED = 3, N_PERMISSION = 4, N_NOT_FOUND = 6, N_SIZE = 7,
  N_LOST = 15, N_UNKNOWN = 999,
};

/* Of a device, or of an instance of one (MIG). */
struct handle {
  int index, instance; /* instance -1: the whole device */
};

/* One process that has a context on a device. */
struct user {
  unsigned pid;
  uint64_t memory, busy_ns, used_ns[USES]; /* in the window */
  int alive;
};

struct usage {
  int users;
  struct user user[STATE_SLOTS];
  uint64_t memory;                 /* of live processes */
  uint64_t from, to;               /* the window */
  uint64_t busy_ns, used_ns[USES]; /* in it, of all together */
  uint64_t sent, received;
};

/* Counters of a device since its start. */
struct traffic {
  uint64_t pcie_sent, pcie_received, nvlink_sent, nvlink_received;
};

extern struct handle nvml_handles[SG_MAX_DEVICES];
extern const struct sg_export sg_exports[];
extern const unsigned sg_export_count;

int nvml_device_count(void);
uint64_t nvml_memory_total(void);
int nvml_index(const void *handle); /* -1 when it is not that of a whole device */
void nvml_usage(int dev, struct usage *out); /* in the last window that is over */
void nvml_usage_in(int dev, uint64_t from, uint64_t to, struct usage *out); /* of the last six seconds */
uint64_t nvml_window(void); /* ns */
unsigned nvml_share(uint64_t ns, const struct usage *u); /* percent of its window */
struct traffic nvml_traffic(int dev);
unsigned nvml_percent(int dev);
struct faults nvml_state_of(int dev);
int nvml_text(char *out, unsigned size, const char *value);
int nvml_number(unsigned *out, unsigned value);

/* nvml_mig.c */
const struct handle *nvml_instance(const void *handle); /* NULL when it is not that of an instance */
unsigned nvml_instance_id(int dev, int instance);       /* NVML's number of a GPU instance */
int nvml_no_device(const void *handle);                 /* what a function of whole devices answers */
int nvml_instance_name(const struct handle *h, char *out, unsigned size);
int nvml_instance_uuid(const struct handle *h, char *out, unsigned size);
int nvml_instance_memory(const struct handle *h, uint64_t *out);

/* nvml_violation.c */
void nvml_look(int dev, const struct faults *f);
int nvml_violation_field(int dev, unsigned field, uint64_t *out);

#define DEVICE(handle)          \
  int dev = nvml_index(handle); \
  if (dev < 0 || dev >= nvml_device_count()) return nvml_no_device(handle)

#endif
