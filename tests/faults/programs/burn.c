/* burn_cpu for Python: through ctypes.PyDLL it holds the GIL meanwhile. The first pair is when it did: the caller
 * may lose the GIL before it can look at its clock. */
#include "burn.h"

int burn(uint64_t ns, uint64_t (*jumps)[2]) {
  jumps[0][0] = burn_clock(CLOCK_MONOTONIC);
  int count = burn_cpu(ns, jumps + 1);
  jumps[0][1] = burn_clock(CLOCK_MONOTONIC);
  return count;
}
