#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
