/* A program that knows nothing of the simulation: it loads the runtime by name and calls it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  unsigned x, y, z;
} dim3;

static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*synchronize)(void);
static int (*query)(void *);
static int launches;

static double now(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static void kernel(uint64_t ns) { (void)ns; }

/* What a piece of work of always the same size costs on this machine now: ns of a turn of an empty loop. */
static double reference(void) {
  const int turns = 1000000;
  double from = now(CLOCK_PROCESS_CPUTIME_ID);
  for (volatile int i = 0; i < turns; i++) continue;
  return (now(CLOCK_PROCESS_CPUTIME_ID) - from) / turns;
}

static void *work(void *stream) {
  for (int i = 0; i < launches; i++) {
    uint64_t ns = 1;
    void *arguments[] = {&ns};
    if (launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream) != 0) abort();
    if (i % 100 == 99) query(stream);
  }
  return NULL;
}

/* basic LIBRARY THREADS LAUNCHES exit|_exit|kill
   prints ns of wall and of CPU a launch, and ns of CPU a turn of an empty loop, half of them before and half behind. */
int main(int argc, char **argv) {
  pthread_t threads[64];
  void *lib = dlopen(argc > 1 ? argv[1] : "libcudart.so.12", RTLD_NOW);
  int n = argc > 2 ? atoi(argv[2]) : 1;
  double wall, cpu, turn;
  if (lib == NULL || argc < 5 || n > 64) return 2;
  launches = atoi(argv[3]);
  *(void **)&launch = dlsym(lib, "cudaLaunchKernel");
  *(void **)&synchronize = dlsym(lib, "cudaDeviceSynchronize");
  *(void **)&query = dlsym(lib, "cudaStreamQuery");
  if (synchronize() != 0) return 3;
  turn = reference();
  wall = now(CLOCK_MONOTONIC);
  cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  wall = (now(CLOCK_MONOTONIC) - wall) / n / launches;
  cpu = (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / n / launches;
  printf("%.1f %.1f %.3f\n", wall, cpu, (turn + reference()) / 2);
  fflush(stdout);
  if (strcmp(argv[4], "_exit") == 0) _exit(0);
  if (strcmp(argv[4], "kill") == 0) kill(getpid(), SIGKILL);
  return 0;
}
