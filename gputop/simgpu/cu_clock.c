/* The clock of the multiprocessors: lower while a test says that the device is throttled. */
#include "cu_core.h"
#include "sg_fault.h"

#define LOOK_NS NS_PER_MS

/* What is queued now lasts longer, if the device is throttled now: the future is not known. */
uint64_t clock_slowed(int dev, uint64_t ns) {
  static uint64_t next_look[SG_MAX_DEVICES];
  static unsigned mhz[SG_MAX_DEVICES];
  uint64_t now;
  int physical = cfg.visible[dev];
  if (!cfg.may_throttle) return ns;
  now = sg_now();
  if (now >= next_look[physical]) {
    struct faults f;
    sg_faults("", physical, &f);
    mhz[physical] = f.throttle_mhz;
    next_look[physical] = now + LOOK_NS;
  }
  unsigned held = mhz[physical];
  return held > 0 && held < BUSY_MHZ ? (uint64_t)((double)ns * BUSY_MHZ / held) : ns;
}
