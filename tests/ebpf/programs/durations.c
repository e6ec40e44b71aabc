/* durations LIBRARY THREADS CALLS spin|block: waits of 50 us to 20 ms and copies, in every thread. */
#include "support.h"

static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*copy)(void *, const void *, size_t, int);
static int (*synchronize)(void *);
static int (*create_stream)(void **, unsigned);
static int (*allocate)(void **, size_t);
static int (*set_flags)(unsigned);
static int calls;

#define MOST_BYTES (8u << 20)

static void kernel(void) {}

static void *work(void *argument) {
  void *stream, *memory, *host = calloc(1, MOST_BYTES);
  uint64_t ns, state = (uint64_t)(uintptr_t)argument;
  void *arguments[] = {&ns};
  must(create_stream(&stream, 1) == 0 && allocate(&memory, MOST_BYTES) == 0, "setup");
  for (int i = 0; i < calls; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    /* every octave from 50 us to 20 ms equally often */
    ns = 50000ull << (state >> 60) % 9;
    ns += ns * (state >> 32 & 1023) / 1024;
    if (ns > 20000000) ns = 20000000;
    must(launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream) == 0, "launch");
    must(synchronize(stream) == 0, "synchronize");
    if (i % 4 == 0) must(copy(memory, host, MOST_BYTES >> (state >> 50 & 3), 1) == 0, "copy");
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  if (argc < 5) return 2;
  calls = atoi(argv[3]);
  *(void **)&launch = function(argv[1], "cudaLaunchKernel");
  *(void **)&copy = function(argv[1], "cudaMemcpy");
  *(void **)&synchronize = function(argv[1], "cudaStreamSynchronize");
  *(void **)&create_stream = function(argv[1], "cudaStreamCreateWithFlags");
  *(void **)&allocate = function(argv[1], "cudaMalloc");
  *(void **)&set_flags = function(argv[1], "cudaSetDeviceFlags");
  must(set_flags(argv[4][0] == 's' ? 1 : 4) == 0, "flags");
  for (long i = 0; i < atoi(argv[2]); i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
  for (long i = 0; i < atoi(argv[2]); i++) pthread_join(threads[i], NULL);
  say("{\"pid\": %d, \"synchronized\": %d}\n", getpid(), calls * atoi(argv[2]));
  return 0;
}
