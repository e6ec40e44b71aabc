/* Faults that a test switches on: NVML shows them, and a throttled device is slower for the driver too. */
#ifndef SG_FAULT_H
#define SG_FAULT_H

#include <stdint.h>

#define BUSY_MHZ 1755

enum { FAULT_UNSUPPORTED = 3, FAULT_PERMISSION = 4 }; /* NVML's codes */

struct faults {
  uint32_t hang_ms;
  int error;
  uint64_t lost; /* bits */
  uint64_t throttle;
  unsigned throttle_mhz;
};

void sg_faults(const char *function, struct faults *out);

#endif
