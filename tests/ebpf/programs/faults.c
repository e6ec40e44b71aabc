/* Threads and a child that touch pages, some of a file that is in no cache: faults.c FILE PAGES.
 *
 * Each says what the kernel counted of it by getrusage(2); of the child its parent says it, as of its end. */
#include "support.h"

#include <sys/mman.h>
#include <sys/resource.h>

static long pages;
static const char *path;

static void touch(long count) {
  volatile char *memory = mmap(NULL, (size_t)count << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  madvise((void *)memory, (size_t)count << 12, MADV_NOHUGEPAGE);
  for (long page = 0; page < count; page++) memory[page << 12] = 1;
}

/* Each page is read from the disk by itself. */
static void read_file(void) {
  int fd = open(path, O_RDONLY);
  struct timespec pause = {0, 1000000};
  volatile const char *memory;
  must(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "file out of the cache");
  memory = mmap(NULL, (size_t)pages << 12, PROT_READ, MAP_PRIVATE, fd, 0);
  must(memory != MAP_FAILED, "mmap of a file");
  madvise((void *)memory, (size_t)pages << 12, MADV_RANDOM);
  for (long page = 0; page < pages; page++) {
    (void)memory[page << 12];
    if (page % 64 == 0) nanosleep(&pause, NULL);
  }
}

static void tell(const char *what, int who, pid_t tid) {
  struct rusage used;
  getrusage(who, &used);
  say("{\"what\": \"%s\", \"pid\": %d, \"tid\": %d, \"minor\": %ld, \"major\": %ld}\n", what, getpid(), tid,
      used.ru_minflt, used.ru_majflt);
}

static void *work(void *argument) {
  long count = (long)argument;
  for (long round = 0; round < 4; round++) {
    touch(count / 4);
    usleep(400000);
  }
  if (count < 1000) read_file();
  tell("thread", RUSAGE_THREAD, thread_id());
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[2];
  struct rusage used;
  pid_t child;
  must(argc == 3, "usage: faults FILE PAGES");
  path = argv[1];
  pages = atol(argv[2]);
  child = fork();
  if (child == 0) {
    touch(700);
    read_file();
    _exit(0);
  }
  must(wait4(child, NULL, 0, &used) == child, "wait4");
  say("{\"what\": \"child\", \"pid\": %d, \"tid\": %d, \"minor\": %ld, \"major\": %ld}\n", child, child, used.ru_minflt,
      used.ru_majflt);
  pthread_create(&threads[0], NULL, work, (void *)4000L);
  pthread_create(&threads[1], NULL, work, (void *)800L);
  touch(1200);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  tell("process", RUSAGE_SELF, 0);
  return 0;
}
