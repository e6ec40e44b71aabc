/* One thread that sleeps, and one that reads a file past the page cache: stays FILE. Each says what it measured. */
#include "support.h"

#include <sys/resource.h>
#include <sys/stat.h>

static const char *path;

static void *reads(void *unused) {
  struct rusage before, after; /* the kernel counts how often a thread gives up its CPU: a fast disk is not waited for */
  struct stat about;
  void *buffer;
  uint64_t begin, sum = 0;
  int fd = open(path, O_RDONLY | O_DIRECT), count = 0;
  must(fd >= 0 && fstat(fd, &about) == 0 && posix_memalign(&buffer, 4096, 65536) == 0, "file");
  getrusage(RUSAGE_THREAD, &before);
  for (off_t at = 0; at < about.st_size; at += 65536, count++) {
    begin = now_ns(CLOCK_MONOTONIC);
    must(pread(fd, buffer, 65536, at) == 65536, "read");
    sum += now_ns(CLOCK_MONOTONIC) - begin;
  }
  getrusage(RUSAGE_THREAD, &after);
  say("{\"what\": \"reads\", \"pid\": %d, \"tid\": %d, \"count\": %d, \"waits\": %ld, \"ns\": %lu}\n", getpid(),
      thread_id(), count, after.ru_nvcsw - before.ru_nvcsw, (unsigned long)sum);
  return unused;
}

int main(int argc, char **argv) {
  struct timespec nap = {0, 10000000}, sleep = {0, 400000000}, late = {0, 350000000};
  uint64_t begin, now, sum = 0, worst = 0;
  pthread_t reader;
  must(argc == 2, "usage: stays FILE");
  path = argv[1];
  for (int i = 0; i < 21; i++) {
    begin = now_ns(CLOCK_MONOTONIC);
    nanosleep(i == 10 ? &sleep : &nap, NULL);
    now = now_ns(CLOCK_MONOTONIC) - begin;
    sum += now;
    worst = now > worst ? now : worst;
  }
  say("{\"what\": \"sleeps\", \"pid\": %d, \"tid\": %d, \"count\": 21, \"ns\": %lu, \"worst\": %lu}\n", getpid(),
      thread_id(), (unsigned long)sum, (unsigned long)worst);
  pthread_create(&reader, NULL, reads, NULL);
  pthread_join(reader, NULL);
  nanosleep(&late, NULL); /* a mark comes while the file is still open */
  return 0;
}
