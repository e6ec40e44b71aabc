/* late LIBRARY CALLS WAIT_MS [GO]: opens a library when the file GO is there, makes numbered calls WAIT_MS later.
 * Call number i copies i bytes. Without a wait, a call every millisecond from the opening on. */
#include "support.h"

int main(int argc, char **argv) {
  int (*copy)(void *, const void *, size_t, int, void *), (*allocate)(void **, size_t);
  static char bytes[1 << 16];
  void *memory;
  if (argc < 4) return 2;
  long calls = atol(argv[2]), wait_ms = atol(argv[3]);
  say("{\"pid\": %d, \"state\": \"ready\"}\n", getpid());
  while (argc > 4 && access(argv[4], F_OK) != 0) usleep(1000);
  *(void **)&copy = function(argv[1], "cudaMemcpyAsync");
  uint64_t opened = now_ns(CLOCK_MONOTONIC);
  *(void **)&allocate = function(argv[1], "cudaMalloc");
  usleep(wait_ms * 1000);
  must(allocate(&memory, sizeof bytes) == 0, "malloc");
  for (long i = 1; i <= calls; i++) {
    must(copy(memory, bytes, (size_t)i, 1, NULL) == 0, "copy");
    if (wait_ms == 0) usleep(1000);
  }
  say("{\"pid\": %d, \"state\": \"done\", \"opened_ns\": %lu}\n", getpid(), opened);
  return 0;
}
