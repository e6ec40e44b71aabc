/* Faults that a test switches on: NVML shows them, and a throttled device is slower for the driver too. */
#ifndef SG_FAULT_H
#define SG_FAULT_H

#include <stdint.h>

#define BUSY_MHZ 1755

#define MIG_MAX 7

enum { FAULT_UNSUPPORTED = 3, FAULT_PERMISSION = 4, FAULT_LOST = 15 }; /* NVML's codes */

struct faults {
  uint32_t hang_ms;
  int error;
  uint64_t throttle;
  unsigned throttle_mhz;
  unsigned encoder, decoder; /* percent */
  uint64_t ecc_corrected, ecc_uncorrected;
  unsigned mig; /* instances; 0: MIG is off */
};

/* What holds for a function of a device; -1: of no device, so that nothing holds that names one. */
void sg_faults(const char *function, int dev, struct faults *out);

#endif
