/* many_threads THREADS CALLS GO: all threads make calls all the time; when the file GO exists they stop, make a known
 * number of calls between two marks (CALLS and up to 49 more), stop again, and say what they made. */
#include "support.h"

static int (*query)(void *);
static volatile int counting;
static pthread_barrier_t gate;
static int calls;

static void *work(void *row) {
  int mine = calls + (int)(long)row % 50;
  while (!counting) {
    query(NULL);
    usleep(100000); /* a busy machine keeps up with these */
  }
  pthread_barrier_wait(&gate); /* all have stopped */
  pthread_barrier_wait(&gate); /* the mark is set */
  for (int i = 0; i < mine; i++) {
    query(NULL);
    if (i % 4 == 0) usleep(5000);
  }
  pthread_barrier_wait(&gate); /* all have stopped */
  say("{\"pid\": %d, \"tid\": %d, \"calls\": %d}\n", getpid(), thread_id(), mine);
  return NULL;
}

int main(int argc, char **argv) {
  int threads;
  pthread_t *all;
  pthread_attr_t small;
  uint64_t begin, end;
  if (argc < 4) return 2;
  threads = atoi(argv[1]), calls = atoi(argv[2]);
  all = calloc((size_t)threads, sizeof *all);
  *(void **)&query = function("libcudart.so.12", "cudaStreamQuery");
  pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  for (long i = 0; i < threads; i++) must(pthread_create(&all[i], &small, work, (void *)i) == 0, "thread");
  say("{\"pid\": %d}\n", getpid());
  while (access(argv[3], F_OK) != 0) usleep(1000);
  counting = 1;
  pthread_barrier_wait(&gate);
  usleep(1000);
  begin = now_ns(CLOCK_MONOTONIC);
  pthread_barrier_wait(&gate);
  pthread_barrier_wait(&gate);
  end = now_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  say("{\"pid\": %d, \"begin_ns\": %lu, \"end_ns\": %lu}\n", getpid(), begin, end);
  return 0;
}
