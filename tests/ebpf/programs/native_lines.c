/* native_lines ROUNDS [MS]: two threads wait for the device from two functions, three calls deep; says how often each
 * did so, and what called them as glibc's backtrace() sees it. At the end it computes for so many milliseconds. */
#include "support.h"

#include <execinfo.h>

static int (*synchronize)(void);
static long made[2];
static char seen[2][1024];

/* The return addresses behind the caller of this, as "function+0xoffset". */
static __attribute__((noinline)) void note(int which) {
  void *addresses[16];
  int count = backtrace(addresses, 16);
  char **names = backtrace_symbols(addresses, count), *to = seen[which];
  for (int i = 2; i < count; i++) {
    char *begin = strchr(names[i], '('), *end = begin ? strchr(begin, ')') : NULL;
    if (end == NULL || begin[1] == '+') break;
    to += sprintf(to, "%s\"%.*s\"", i > 2 ? ", " : "", (int)(end - begin - 1), begin + 1);
  }
  free(names);
}

__attribute__((noinline)) void first(void) {
  if (seen[0][0] == 0) note(0);
  synchronize();
  __atomic_add_fetch(&made[0], 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) void second(void) {
  if (seen[1][0] == 0) note(1);
  synchronize();
  __atomic_add_fetch(&made[1], 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) int middle(int round) {
  first();
  if (round % 3 == 0) second();
  return round + 1;
}

__attribute__((noinline)) int outer(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum += middle(round);
  return sum;
}

__attribute__((noinline)) unsigned long compute(int ms) {
  unsigned long sum = 0, until = now_ns(CLOCK_THREAD_CPUTIME_ID) + (unsigned long)ms * 1000000;
  while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
    for (unsigned long i = 0; i < 1000000; i++) sum = sum * 31 + (i ^ sum >> 7);
  return sum;
}

static void *thread(void *rounds) { return (void *)(long)(outer((int)(long)rounds) + 1); }

int main(int argc, char **argv) {
  pthread_t other;
  int rounds = argc > 1 ? atoi(argv[1]) : 0, sum;
  *(void **)&synchronize = function("libcudart.so.12", "cudaDeviceSynchronize");
  sum = outer(rounds);
  must(pthread_create(&other, NULL, thread, (void *)(long)rounds) == 0, "thread");
  pthread_join(other, NULL);
  if (argc > 2 && compute(atoi(argv[2])) == 0) return 1;
  say("{\"pid\": %d, \"sum\": %d, \"made\": {\"first\": %ld, \"second\": %ld}, \"stacks\": {\"first\": [%s], "
      "\"second\": [%s]}}\n",
      getpid(), sum, made[0], made[1], seen[0], seen[1]);
  return 0;
}
