/* What all simulated libraries share: names of the environment, the log, the shared state. */
#ifndef SG_COMMON_H
#define SG_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SG(name) int impl_##name
#define SG_ALIAS(name, target)

#define SG_MAX_DEVICES 8
#define SG_DEVICE_NAME "SimGPU 80GB"
#define SG_SM_COUNT 132
#define SG_SHARED_A_BLOCK 232448 /* bytes */
#define SG_MAJOR_CC 9
#define SG_MINOR_CC 0
#define SG_DRIVER_VERSION 13000
#define SG_CONTEXT_BYTES (256ull << 20)

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

struct sg_export {
  const char *name;
  void (*function)(void);
  uint32_t offset;
  int simulated;
};

/* A name of the driver, and from which version on which of its forms is meant. */
struct sg_versions {
  const char *name;
  unsigned count;
  struct {
    int version;
    unsigned export; /* its number in sg_exports */
  } form[4];
};

static inline uint64_t sg_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The cell holds this process's log line, or 0 before the first call and in a fork's child. */
extern uint64_t *sg_cell;

/* sg_process.c */
uint64_t sg_env_u64(const char *name, uint64_t fallback);
uint64_t sg_start_ticks(int pid);

/* sg_log.c */
void sg_log_open(void);
void sg_log_number(uint32_t offset, uint64_t value);
void sg_count(uint32_t offset);

#endif
