/* Waiting for work, as the context's flags say: a real sync call burns the CPU unless told to block.
 *
 * Who blocks sleeps in poll() on a timer that is set to the end of the work, and an interrupt wakes it at that
 * moment, as the device's would. Where the end is not known yet, whoever learns it sets the sleeper's timer. */
#include "cu_core.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct waiter { /* for a stream, an event, or all of a device */
  struct stream *stream;
  struct event *event;
  int dev, timer;
  struct waiter *next;
};

static struct waiter *sleepers;
static pthread_key_t timer_key;
static pthread_once_t timer_once = PTHREAD_ONCE_INIT;

uint64_t sg_jitter(uint64_t low, uint64_t high) {
  static __thread uint64_t seed;
  if (seed == 0) seed = sg_now() ^ (uint64_t)(uintptr_t)&seed;
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return high > low ? low + seed % (high - low) : low;
}

void sg_spin_until(uint64_t end) {
  while (sg_now() < end) __builtin_ia32_pause();
}

unsigned sync_how(int dev) {
  unsigned how = dev_table[dev].flags & SCHED_MASK;
  return how != 0 ? how : cfg.sync_default;
}

static void close_timer(void *value) { close((int)(intptr_t)value - 1); }
static void make_key(void) {
  if (pthread_key_create(&timer_key, close_timer) != 0) abort();
}

/* Sets a timer; an unknown time disarms it. */
static int set_timer(int timer, uint64_t at) {
  struct itimerspec t = {.it_value = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)}};
  if (at == UNKNOWN_TIME) t = (struct itimerspec){0};
  return timerfd_settime(timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* The thread's own timer, set. A program may close descriptors that it does not know: then it gets a new one. */
static int own_timer(uint64_t at) {
  pthread_once(&timer_once, make_key);
  intptr_t kept = (intptr_t)pthread_getspecific(timer_key);
  if (kept != 0 && set_timer((int)kept - 1, at) == 0) return (int)kept - 1;
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (timer < 0) return -1;
  pthread_setspecific(timer_key, (void *)(intptr_t)(timer + 1));
  return set_timer(timer, at) == 0 ? timer : -1;
}

/* Without descriptors left a millisecond is slept at a time: late, but never for ever. */
static void sleep_on(int timer) {
  struct pollfd p = {.fd = timer, .events = POLLIN};
  poll(&p, 1, timer < 0 ? 1 : -1);
}

int q_wait_until(uint64_t end, unsigned how) {
  while (sg_now() < end) {
    if (how & SCHED_BLOCK)
      sleep_on(own_timer(end));
    else if (how & SCHED_YIELD)
      sched_yield();
    else
      __builtin_ia32_pause();
  }
  return OK;
}

static uint64_t end_of(const struct waiter *w) {
  if (w->event != NULL) return w->event->time;
  return w->stream != NULL ? q_end_of_stream(w->stream) : q_end_of_device(w->dev, 0);
}

/* Sleeps until an end is known and reached. */
static void sleep_for(struct waiter *w) {
  w->timer = own_timer(UNKNOWN_TIME);
  pthread_mutex_lock(&sg_mu);
  uint64_t end = end_of(w);
  if (end != UNKNOWN_TIME && w->timer >= 0) set_timer(w->timer, end);
  w->next = sleepers;
  sleepers = w;
  pthread_mutex_unlock(&sg_mu);
  sleep_on(w->timer);
  pthread_mutex_lock(&sg_mu);
  struct waiter **at = &sleepers;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
  pthread_mutex_unlock(&sg_mu);
}

void wait_news(void) {
  for (struct waiter *w = sleepers; w != NULL; w = w->next) {
    uint64_t end = end_of(w);
    if (end != UNKNOWN_TIME && w->timer >= 0) set_timer(w->timer, end);
  }
}

static int wait_for(struct waiter w, unsigned how) {
  for (;;) {
    pthread_mutex_lock(&sg_mu);
    q_poll();
    uint64_t end = end_of(&w);
    pthread_mutex_unlock(&sg_mu);
    if (end != UNKNOWN_TIME) {
      q_wait_until(end, how);
      return fault_now();
    }
    if (how & SCHED_BLOCK)
      sleep_for(&w);
    else
      q_wait_until(sg_now() + NS_PER_US, how);
  }
}

int q_wait_stream(struct stream *s, unsigned how) { return wait_for((struct waiter){.stream = s}, how); }
int q_wait_event(struct event *e, unsigned how) { return wait_for((struct waiter){.event = e}, how); }
int q_wait_device(int dev, unsigned how) { return wait_for((struct waiter){.dev = dev}, how); }

/* The hardware queue holds 1,024 operations; the next enqueue waits for room, on the CPU. */
void q_wait_room(struct stream *s) {
  for (;;) {
    pthread_mutex_lock(&sg_mu);
    q_poll();
    uint64_t free_at = s->pending >= QUEUE_DEPTH ? UNKNOWN_TIME : s->done[s->queued % QUEUE_DEPTH];
    pthread_mutex_unlock(&sg_mu);
    if (free_at <= sg_now()) return;
    sg_spin_until(free_at == UNKNOWN_TIME ? sg_now() + NS_PER_US : free_at);
  }
}
