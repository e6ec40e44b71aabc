/* cost LIBRARY: for each line of input, the time of a call of cudaEventQuery, in ns, of the fastest of many batches. */
#include "support.h"

enum { BATCHES = 300, CALLS = 50 };

int main(int argc, char **argv) {
  int (*query)(void *);
  if (argc < 2) return 2;
  *(void **)&query = function(argv[1], "cudaEventQuery");
  while (getchar() != EOF) {
    uint64_t fastest = UINT64_MAX;
    for (int batch = 0; batch < BATCHES; batch++) {
      uint64_t begin = now_ns(CLOCK_MONOTONIC);
      for (int call = 0; call < CALLS; call++) query(NULL);
      uint64_t took = now_ns(CLOCK_MONOTONIC) - begin;
      if (took < fastest) fastest = took;
    }
    printf("%.1f\n", (double)fastest / CALLS);
    fflush(stdout);
  }
  return 0;
}
