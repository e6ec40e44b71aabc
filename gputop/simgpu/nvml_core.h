/* The inside of the simulated NVML: it reads the shared state, as any monitor does, and owns nothing. */
#ifndef NVML_CORE_H
#define NVML_CORE_H

#include "sg_fault.h"
#include "sg_state.h"

enum {
  N_OK = 0, N_UNINITIALIZED = 1, N_ARGUMENT = 2, N_UNSUPPORTED = 3, N_PERMISSION = 4, N_NOT_FOUND = 6, N_SIZE = 7,
  N_LOST = 15,
};

struct handle {
  int index;
};

/* One process that has a context on a device. */
struct user {
  unsigned pid;
  uint64_t memory, busy_ns; /* in the window */
  int alive;
};

struct usage {
  int users;
  struct user user[STATE_SLOTS];
  uint64_t memory;  /* of live processes */
  uint64_t busy_ns; /* in the window, of all together */
  uint64_t window_ns, sent, received;
};

extern struct handle nvml_handles[SG_MAX_DEVICES];
extern const struct sg_export sg_exports[];
extern const unsigned sg_export_count;

int nvml_device_count(void);
uint64_t nvml_memory_total(void);
int nvml_index(const void *handle); /* -1 when it is none */
void nvml_usage(int dev, struct usage *out);
unsigned nvml_percent(int dev);

/* nvml_violation.c */
void nvml_look(const struct faults *f);

#endif
