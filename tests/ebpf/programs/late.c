/* late LIBRARY CALLS TRACED [GO]: opens a library when the file GO is there, makes numbered calls when the file TRACED
 * is. Call number i copies i bytes. With "" for TRACED, a call every millisecond from the opening on. */
#include "support.h"

int main(int argc, char **argv) {
  int (*copy)(void *, const void *, size_t, int, void *), (*allocate)(void **, size_t);
  static char bytes[1 << 16];
  void *memory;
  if (argc < 4) return 2;
  long calls = atol(argv[2]);
  say("{\"pid\": %d, \"state\": \"ready\"}\n", getpid());
  if (argc > 4) await(argv[4]);
  *(void **)&copy = function(argv[1], "cudaMemcpyAsync");
  uint64_t opened = now_ns(CLOCK_MONOTONIC);
  *(void **)&allocate = function(argv[1], "cudaMalloc");
  if (argv[3][0]) await(argv[3]);
  must(allocate(&memory, sizeof bytes) == 0, "malloc");
  for (long i = 1; i <= calls; i++) {
    must(copy(memory, bytes, (size_t)i, 1, NULL) == 0, "copy");
    if (!argv[3][0]) usleep(1000);
  }
  say("{\"pid\": %d, \"state\": \"done\", \"opened_ns\": %lu}\n", getpid(), opened);
  return 0;
}
