/* counts LIBRARY THREADS PROCESSES LAUNCHES [PACE_NS]: known numbers of calls, different in each thread and process.
 * A thread makes a launch every PACE_NS on average, 16 in a row; without it, as fast as it can.
 *
 * The first process leaves by exit, the second by _exit, the third is killed. Each has counted itself before. */
#include "support.h"

enum { LAUNCH, COPY, SYNC, DIRECT, CALLS };

static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*copy)(void *, const void *, size_t, int, void *);
static int (*synchronize)(void *);
static int (*create_stream)(void **, unsigned);
static int (*allocate)(void **, size_t);
static int (*direct)(void *);

struct worker {
  pthread_t thread;
  long launches, made[CALLS];
  void *stream, *memory;
  uint64_t begin, end;
};

static pthread_barrier_t start;
static uint64_t pace_ns;

static void kernel(void) {}

static void keep_pace(uint64_t begin, long launches) {
  uint64_t due = begin + pace_ns * (uint64_t)launches;
  struct timespec t = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
  if (pace_ns != 0 && launches % 16 == 0) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void *work(void *argument) {
  struct worker *w = argument;
  char bytes[64] = {0};
  uint64_t ns = 1;
  void *arguments[] = {&ns};
  pthread_barrier_wait(&start);
  w->begin = now_ns(CLOCK_MONOTONIC);
  for (long i = 1; i <= w->launches; i++) {
    must(launch((void *)kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, w->stream) == 0, "launch");
    w->made[LAUNCH]++;
    if (i % 16 == 0) w->made[COPY] += copy(w->memory, bytes, sizeof bytes, 1, w->stream) == 0;
    if (i % 64 == 0) w->made[SYNC] += synchronize(w->stream) == 0;
    if (i % 8 == 0) w->made[DIRECT]++, direct(w->stream);
    keep_pace(w->begin, i);
  }
  w->end = now_ns(CLOCK_MONOTONIC);
  return NULL;
}

static void run(const char *library, int threads, long launches, int process) {
  struct worker workers[64] = {0};
  long made[CALLS] = {0};
  uint64_t begin = UINT64_MAX, end = 0;
  *(void **)&launch = function(library, "cudaLaunchKernel");
  *(void **)&copy = function(library, "cudaMemcpyAsync");
  *(void **)&synchronize = function(library, "cudaStreamSynchronize");
  *(void **)&create_stream = function(library, "cudaStreamCreateWithFlags");
  *(void **)&allocate = function(library, "cudaMalloc");
  *(void **)&direct = function("libcuda.so.1", "cuStreamQuery");
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    struct worker *w = &workers[i];
    w->launches = launches + 10 * i + 100 * process;
    must(create_stream(&w->stream, 1) == 0, "stream");
    must(allocate(&w->memory, 64) == 0, "malloc");
    pthread_create(&w->thread, NULL, work, w);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(workers[i].thread, NULL);
    for (int call = 0; call < CALLS; call++) made[call] += workers[i].made[call];
    if (workers[i].begin < begin) begin = workers[i].begin;
    if (workers[i].end > end) end = workers[i].end;
  }
  say("{\"pid\": %d, \"begin_ns\": %lu, \"end_ns\": %lu, \"made\": {\"cudaLaunchKernel\": %ld, \"cudaMemcpyAsync\": %ld, "
      "\"cudaStreamSynchronize\": %ld, \"cudaStreamCreateWithFlags\": %d, \"cudaMalloc\": %d}, "
      "\"direct\": {\"cuStreamQuery\": %ld}}\n",
      getpid(), begin, end, made[LAUNCH], made[COPY], made[SYNC], threads, threads, made[DIRECT]);
}

int main(int argc, char **argv) {
  int threads, processes;
  if (argc < 5) return 2;
  threads = atoi(argv[2]), processes = atoi(argv[3]);
  if (argc > 5) pace_ns = strtoull(argv[5], NULL, 10);
  for (int process = 1; process < processes; process++) {
    if (fork() != 0) continue;
    run(argv[1], threads, atol(argv[4]), process);
    if (process == 1) _exit(0);
    kill(getpid(), SIGKILL);
  }
  run(argv[1], threads, atol(argv[4]), 0);
  while (wait(NULL) > 0) {}
  return 0;
}
