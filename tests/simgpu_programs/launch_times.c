/* Times launches one by one: launch_times LIBRARY LAUNCHES prints ns of the fastest and of the median. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  unsigned x, y, z;
} dim3;

static void kernel(uint64_t ns) { (void)ns; }

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
  void *lib = dlopen(argc > 1 ? argv[1] : "libcudart.so.12", RTLD_NOW);
  int n = argc > 2 ? atoi(argv[2]) : 0;
  uint64_t *times = calloc(n, sizeof *times), ns = 1;
  void *arguments[] = {&ns};
  if (lib == NULL || n < 1 || times == NULL) return 2;
  *(void **)&launch = dlsym(lib, "cudaLaunchKernel");
  for (int i = -1; i < n; i++) { /* the first makes the context */
    uint64_t from = now();
    if (launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, NULL) != 0) return 3;
    if (i >= 0) times[i] = now() - from;
  }
  qsort(times, n, sizeof *times, ascending);
  printf("%llu %llu\n", (unsigned long long)times[0], (unsigned long long)times[n / 2]);
  return 0;
}
