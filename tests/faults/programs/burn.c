/* burn_cpu for Python: through ctypes.PyDLL it holds the GIL meanwhile. */
#include "burn.h"

int burn(uint64_t ns, uint64_t (*jumps)[2]) { return burn_cpu(ns, jumps); }
