/* call_cost LIBRARY FUNCTION STOP: what a call of it costs, a line for each 20 ms until the file STOP exists. */
#include "support.h"

enum { BATCH = 200 };

int main(int argc, char **argv) {
  int (*call)(void *);
  if (argc < 4) return 2;
  *(void **)&call = function(argv[1], argv[2]);
  call(NULL);
  while (access(argv[3], F_OK) != 0) {
    uint64_t began = now_ns(CLOCK_MONOTONIC), best = UINT64_MAX, now = began;
    while (now - began < 20000000) {
      uint64_t start = now_ns(CLOCK_MONOTONIC);
      for (int i = 0; i < BATCH; i++) call(NULL);
      now = now_ns(CLOCK_MONOTONIC);
      if (now - start < best) best = now - start;
    }
    say("{\"pid\": %d, \"at_ns\": %lu, \"ns\": %.3f}\n", getpid(), now, (double)best / BATCH);
  }
  return 0;
}
