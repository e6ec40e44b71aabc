/* steady STOP: a job that checks its own results until the file STOP exists, and then says what it did.
 *
 * Each round fills a buffer, copies it to the GPU and back, launches, waits, and compares. */
#include "support.h"

enum { BYTES = 4096 };

static void kernel(void) {}

int main(int argc, char **argv) {
  const char *library = "libcudart.so.12";
  int (*launch)(const void *, dim3, dim3, void **, size_t, void *), (*allocate)(void **, size_t), (*release)(void *);
  int (*copy)(void *, const void *, size_t, int, void *), (*synchronize)(void *), (*create_stream)(void **, unsigned);
  unsigned char sent[BYTES], got[BYTES];
  void *stream, *memory;
  long rounds = 0, wrong = 0, errors = 0;
  uint64_t ns = 1000;
  void *arguments[] = {&ns};
  if (argc < 2) return 2;
  *(void **)&launch = function(library, "cudaLaunchKernel");
  *(void **)&copy = function(library, "cudaMemcpyAsync");
  *(void **)&synchronize = function(library, "cudaStreamSynchronize");
  *(void **)&create_stream = function(library, "cudaStreamCreateWithFlags");
  *(void **)&allocate = function(library, "cudaMalloc");
  *(void **)&release = function(library, "cudaFree");
  must(create_stream(&stream, 1) == 0, "stream");
  say("{\"pid\": %d}\n", getpid());
  for (; access(argv[1], F_OK) != 0; rounds++) {
    for (int i = 0; i < BYTES; i++) sent[i] = (unsigned char)(rounds * 31 + i * 7);
    memset(got, 0, sizeof got);
    errors += allocate(&memory, BYTES) != 0;
    errors += copy(memory, sent, BYTES, 1, stream) != 0;
    errors += launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream) != 0;
    errors += copy(got, memory, BYTES, 2, stream) != 0;
    errors += synchronize(stream) != 0;
    errors += release(memory) != 0;
    wrong += memcmp(sent, got, BYTES) != 0;
    usleep(200);
  }
  say("{\"pid\": %d, \"wrong\": %ld, \"errors\": %ld, \"made\": {\"cudaLaunchKernel\": %ld, \"cudaMemcpyAsync\": %ld, "
      "\"cudaStreamSynchronize\": %ld, \"cudaMalloc\": %ld, \"cudaFree\": %ld}}\n",
      getpid(), wrong, errors, rounds, 2 * rounds, rounds, rounds, rounds);
  return 0;
}
