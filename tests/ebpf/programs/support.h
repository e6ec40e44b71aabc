/* What the test programs share: CUDA functions by name, and a log in which they count themselves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  unsigned x, y, z;
} dim3;

static __attribute__((unused)) uint64_t now_ns(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static __attribute__((unused)) void *function(const char *library, const char *name) {
  void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL), *found = lib ? dlsym(lib, name) : NULL;
  if (found == NULL) {
    fprintf(stderr, "%s: %s: %s\n", library, name, dlerror());
    _exit(9);
  }
  return found;
}

/* Appends one line to $SELF_LOG, in one piece. */
static __attribute__((unused, format(printf, 1, 2))) void say(const char *format, ...) {
  char line[4096];
  va_list arguments;
  int fd = open(getenv("SELF_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), n;
  va_start(arguments, format);
  n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (fd < 0 || write(fd, line, (size_t)n) != n) _exit(8);
  close(fd);
}

/* Waits until there is a file. */
static __attribute__((unused)) void await(const char *path) {
  while (access(path, F_OK) != 0) usleep(1000);
}

static __attribute__((unused)) pid_t thread_id(void) { return (pid_t)syscall(SYS_gettid); }

static __attribute__((unused)) void must(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "failed: %s\n", what);
  _exit(7);
}
