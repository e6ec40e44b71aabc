/* The clock of the multiprocessors: lower while a test says that the device is throttled. */
#include "cu_core.h"
#include "sg_fault.h"

#define LOOK_NS NS_PER_MS

/* What is queued now lasts longer, if the device is throttled now: the future is not known. */
uint64_t clock_slowed(uint64_t ns) {
  static uint64_t next_look;
  static unsigned mhz;
  uint64_t now;
  if (!cfg.may_throttle) return ns;
  now = sg_now();
  if (now >= next_look) {
    struct faults f;
    sg_faults("", &f);
    mhz = f.throttle_mhz;
    next_look = now + LOOK_NS;
  }
  return mhz > 0 && mhz < BUSY_MHZ ? (uint64_t)((double)ns * BUSY_MHZ / mhz) : ns;
}
