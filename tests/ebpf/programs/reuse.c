/* reuse FIRST SECOND WAIT_MS: a child makes FIRST calls and ends; that much later another one, which gets the number
 * of the first, makes SECOND calls. Needs root: it asks the kernel for that number, until it gets it,
 * or begins with another one. */
#include "support.h"

static void calls(const char *where, int count) {
  int (*query)(void *);
  *(void **)&query = function("libcudart.so.12", "cudaStreamQuery");
  for (int i = 0; i < count; i++) query(NULL);
  say("{\"pid\": %d, \"where\": \"%s\", \"calls\": %d, \"end_ns\": %llu}\n", getpid(), where, count,
      (unsigned long long)now_ns(CLOCK_MONOTONIC));
}

static void become(char **words, const char *where, const char *count) {
  execl("/proc/self/exe", words[0], where, count, NULL);
  _exit(6);
}

static void next_number(pid_t wanted) {
  FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
  must(file != NULL && fprintf(file, "%d", wanted - 1) > 0 && fclose(file) == 0, "ns_last_pid");
}

int main(int argc, char **argv) {
  int status;
  pid_t first, second;
  if (argc == 3) {
    calls(argv[1], atoi(argv[2]));
    return argv[1][0] == 'f' ? 3 : 4;
  }
  if (argc < 4) return 2;
  for (int pair = 0; pair < 20; pair++) { /* who else has got the number meanwhile may keep it */
    first = fork();
    if (first == 0) become(argv, "first", argv[1]);
    must(waitpid(first, &status, 0) == first, "waitpid");
    usleep((useconds_t)atoi(argv[3]) * 1000);
    for (int i = 0; i < 100; i++) {
      next_number(first);
      second = fork();
      if (second == 0 && getpid() == first) become(argv, "second", argv[2]);
      if (second == 0) _exit(0);
      must(waitpid(second, &status, 0) == second, "waitpid");
      if (second == first) return 0;
    }
  }
  return 5;
}
