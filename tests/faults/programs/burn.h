/* Burns CPU time, and tells when the thread was not on its CPU meanwhile: its clock then jumps. */
#ifndef BURN_H
#define BURN_H
#include <stdint.h>
#include <time.h>

#define JUMP_NS 150000 /* an interrupt takes less, and the scheduler knows nothing of it */
#define MOST_JUMPS 4096

static inline uint64_t burn_clock(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Until the clock has gone on by ns outside of jumps. Returns how many jumps, as pairs (from, to). */
static inline int burn_cpu(uint64_t ns, uint64_t (*jumps)[2]) {
  uint64_t last = burn_clock(CLOCK_MONOTONIC), spent = 0;
  int count = 0;
  while (spent < ns) {
    uint64_t now = burn_clock(CLOCK_MONOTONIC);
    if (now - last < JUMP_NS) {
      spent += now - last;
    } else if (count < MOST_JUMPS) {
      jumps[count][0] = last, jumps[count][1] = now, count++;
    }
    last = now;
  }
  return count;
}
#endif
