/* wakers MODE: who wakes whom is known. Two threads on one CPU; each says which it is.
 * timer: one sleeps, the other never leaves the CPU. pipe, loopback: each waits for the other's byte. */
#include "support.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define ROUNDS 1000

static int ends[2][2]; /* [who][0: reads, 1: writes] */
static volatile int done;
static pthread_barrier_t start;

static void pin(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  must(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
}

static void introduce(const char *who) {
  pin();
  say("{\"pid\": %d, \"tid\": %d, \"who\": \"%s\"}\n", getpid(), thread_id(), who);
  pthread_barrier_wait(&start);
}

static void *hog(void *unused) {
  introduce("hog");
  while (!done) {}
  return unused;
}

static void *sleeper(void *unused) {
  struct timespec t = {0, 1000000};
  introduce("sleeper");
  for (int i = 0; i < ROUNDS; i++) nanosleep(&t, NULL);
  done = 1;
  return unused;
}

static void *talk(void *argument) {
  int *mine = argument, first = mine == ends[0];
  char byte = 0;
  introduce(first ? "first" : "second");
  for (int i = 0; i < ROUNDS; i++) {
    if (first) must(write(mine[1], &byte, 1) == 1, "write");
    must(read(mine[0], &byte, 1) == 1, "read");
    if (!first) must(write(mine[1], &byte, 1) == 1, "write");
  }
  return NULL;
}

static void open_pipes(void) {
  for (int i = 0; i < 2; i++) {
    int both[2];
    must(pipe(both) == 0, "pipe");
    ends[i][0] = both[0], ends[1 - i][1] = both[1];
  }
}

static void open_loopback(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), b;
  must(bind(listener, (void *)&at, size) == 0 && listen(listener, 1) == 0, "listen");
  must(getsockname(listener, (void *)&at, &size) == 0 && connect(a, (void *)&at, size) == 0, "connect");
  must((b = accept(listener, NULL, NULL)) >= 0, "accept");
  setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ends[0][0] = ends[0][1] = a, ends[1][0] = ends[1][1] = b;
}

int main(int count, char **arguments) {
  pthread_t threads[2];
  must(count == 2, "usage: wakers MODE");
  pthread_barrier_init(&start, NULL, 2);
  if (strcmp(arguments[1], "timer") == 0) {
    pthread_create(&threads[0], NULL, hog, NULL);
    pthread_create(&threads[1], NULL, sleeper, NULL);
  } else {
    strcmp(arguments[1], "pipe") == 0 ? open_pipes() : open_loopback();
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, talk, ends[i]);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
