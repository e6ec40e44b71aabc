/* The driver's callback thread: host functions run here when their stream reaches them. */
#include "cu_core.h"

#include <stdlib.h>
#include <sys/prctl.h>

struct call {
  struct stream *stream;
  uint64_t at;
  void (*callback)(void *);
  void *argument;
  struct call *next;
};

static struct call *calls;
static pthread_cond_t changed;
static int started;

static struct call *take_due(uint64_t *next_at) {
  struct call **best = NULL;
  for (struct call **c = &calls; *c != NULL; c = &(*c)->next)
    if (best == NULL || (*c)->at < (*best)->at) best = c;
  *next_at = UINT64_MAX;
  if (best == NULL) return NULL;
  *next_at = (*best)->at;
  if (*next_at > sg_now()) return NULL;
  struct call *due = *best;
  *best = due->next;
  return due;
}

static void *serve(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "cuda-EvtHandlr");
  pthread_mutex_lock(&sg_mu);
  for (;;) {
    uint64_t next_at;
    struct call *due = take_due(&next_at);
    if (due != NULL) {
      pthread_mutex_unlock(&sg_mu);
      uint64_t begun = sg_now();
      due->callback(due->argument);
      pthread_mutex_lock(&sg_mu);
      q_host_finished(due->stream, begun);
      free(due);
    } else if (next_at == UINT64_MAX) {
      pthread_cond_wait(&changed, &sg_mu);
    } else {
      struct timespec t = {(time_t)(next_at / NS_PER_S), (long)(next_at % NS_PER_S)};
      pthread_cond_timedwait(&changed, &sg_mu, &t);
    }
  }
  return NULL;
}

static void start(void) {
  pthread_condattr_t attr;
  pthread_attr_t detached;
  pthread_t thread;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attr);
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &detached, serve, NULL) != 0) abort();
  started = 1;
}

/* Called with sg_mu held. */
void host_schedule(struct stream *s, uint64_t at, void (*callback)(void *), void *argument) {
  struct call *c = malloc(sizeof *c);
  if (c == NULL) abort();
  if (!started) start();
  *c = (struct call){s, at, callback, argument, calls};
  calls = c;
  pthread_cond_signal(&changed);
}
