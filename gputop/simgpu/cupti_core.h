/* The inside of the simulated CUPTI: its activity API as cupti_activity.h of CUDA 11.8 to 13.5 has it. */
#ifndef CUPTI_CORE_H
#define CUPTI_CORE_H

#include "sg_common.h"

#include "sg_private.h"

enum { OK = 0, E_PARAMETER = 1, E_LIMIT = 12, E_UNINITIALISED = 15, E_KIND = 21, E_SUBSCRIBERS = 39 };

enum {
  KIND_COPY = 1,
  KIND_FILL = 2,
  KIND_KERNEL = 3,
  KIND_DRIVER = 4,
  KIND_RUNTIME = 5,
  KIND_CONCURRENT_KERNEL = 10,
  KIND_OVERHEAD = 17,
  KIND_GRAPH = 51,
  KINDS = 64,
};

struct version {
  int number;                                        /* what cuptiGetVersion says */
  size_t kernel, copy, fill, graph, call, overhead; /* bytes of a record */
};
extern const struct version *version;

/* cupti_records.c */
size_t record_size(const struct sg_seen *seen);
void record_write(unsigned char *at, const struct sg_seen *seen, int64_t shift);
size_t size_of_kind(uint32_t kind);
void version_choose(void);

/* cupti_buffers.c */
extern uint8_t enabled[KINDS];
int64_t clock_shift(void); /* CUPTI's clock less CLOCK_MONOTONIC */

#endif
