/* Streams as in-order queues in virtual time: when an operation is queued, its start and end are computed. */
#include "cu_core.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>

pthread_mutex_t sg_mu = PTHREAD_MUTEX_INITIALIZER;

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

unsigned sync_how(int dev) { return dev_table[dev].flags & SCHED_MASK; }

/* Waits as the context's flags say: a real sync call burns the CPU unless told to block. */
int q_wait_until(uint64_t end, unsigned how) {
  uint64_t now;
  while ((now = sg_now()) < end) {
    if (how & SCHED_BLOCK) {
      struct timespec left = {(time_t)((end - now) / NS_PER_S), (long)((end - now) % NS_PER_S)};
      ppoll(NULL, 0, &left, NULL);
    } else if (how & SCHED_YIELD) {
      sched_yield();
    } else {
      __builtin_ia32_pause();
    }
  }
  return OK;
}

int q_done(struct stream *s, uint64_t now) { return !s->host_busy && s->waiting == NULL && s->tail <= now; }

int q_wait_stream(struct stream *s, unsigned how) {
  uint64_t tail;
  int unknown;
  for (;;) {
    pthread_mutex_lock(&sg_mu);
    unknown = s->host_busy || s->waiting != NULL;
    tail = s->tail;
    pthread_mutex_unlock(&sg_mu);
    if (!unknown) return q_wait_until(tail, how);
    q_wait_until(sg_now() + (how & SCHED_BLOCK ? 100 : 1) * NS_PER_US, how);
  }
}

/* The hardware queue holds 1,024 operations; the next enqueue waits for room, on the CPU. */
void q_wait_room(struct stream *s) {
  for (;;) {
    uint64_t free_at, now;
    pthread_mutex_lock(&sg_mu);
    free_at = s->done[s->queued % QUEUE_DEPTH];
    pthread_mutex_unlock(&sg_mu);
    now = sg_now();
    if (free_at <= now) return;
    sg_spin_until(free_at);
  }
}

static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void run_work(struct stream *s, const struct op *op, uint64_t now) {
  struct device *d = &dev_table[s->dev];
  uint64_t latency = cfg.latency_set ? cfg.latency_ns : sg_jitter(2 * NS_PER_US, 5 * NS_PER_US);
  uint64_t start = max64(now + latency, s->tail), end;
  int blocking = !(s->flags & STREAM_NONBLOCKING);
  if (s == d->legacy)
    start = max64(start, d->blocking_tail); /* the legacy stream waits for all blocking ones ... */
  else if (blocking && d->legacy != NULL)
    start = max64(start, d->legacy->tail); /* ... and they for it */
  if (op->kind == K_H2D || op->kind == K_D2H) start = max64(start, d->copy_tail[op->kind == K_D2H]);
  end = start + op->duration * st_sharers(s->dev, now);
  if (op->kind == K_H2D || op->kind == K_D2H) d->copy_tail[op->kind == K_D2H] = end;
  s->tail = end;
  s->done[s->queued++ % QUEUE_DEPTH] = end;
  if (blocking) d->blocking_tail = max64(d->blocking_tail, end);
  d->all_tail = max64(d->all_tail, end);
  acc_add(s->dev, s, op->kind, now, start, end, op->bytes);
}

/* Runs one operation, or returns 0 when the stream has to wait for something of unknown length. */
static int run(struct stream *s, const struct op *op) {
  uint64_t now = sg_now();
  if (s->host_busy) return 0;
  switch (op->type) {
    case OP_WORK:
      run_work(s, op, now);
      break;
    case OP_RECORD:
      if (op->event->version == op->version) {
        uint64_t end = s->tail;
        struct device *d = &dev_table[s->dev];
        if (s == d->legacy) end = max64(end, d->blocking_tail);
        op->event->time = max64(end, now);
      }
      break;
    case OP_WAIT:
      if (op->event->time == UNKNOWN_TIME && op->event->version == op->version) return 0;
      s->tail = max64(s->tail, op->event->time == UNKNOWN_TIME ? 0 : op->event->time);
      break;
    case OP_HOST:
      s->host_busy = 1;
      host_schedule(s, max64(now, s->tail), op->callback, op->argument);
      break;
  }
  return 1;
}

void q_put(struct stream *s, struct op op) {
  if (op.type == OP_RECORD) {
    op.version = ++op.event->version;
    op.event->time = UNKNOWN_TIME;
  } else if (op.type == OP_WAIT) {
    op.version = op.event->version;
  }
  if (s->waiting == NULL && run(s, &op)) return;
  struct op *copy = malloc(sizeof *copy);
  if (copy == NULL) abort();
  *copy = op;
  copy->next = NULL;
  if (s->waiting == NULL)
    s->waiting = copy;
  else
    s->last_waiting->next = copy;
  s->last_waiting = copy;
}

/* A host function returned: its stream goes on, and others may that wait for its events. */
void q_host_finished(struct stream *s) {
  int progress = 1;
  s->host_busy = 0;
  s->tail = max64(s->tail, sg_now());
  while (progress) {
    progress = 0;
    for (size_t i = 0; i < stream_count(); i++) {
      struct stream *t = stream_slot(i);
      while (t->waiting != NULL && run(t, t->waiting)) {
        struct op *done = t->waiting;
        t->waiting = done->next;
        free(done);
        progress = 1;
      }
    }
  }
}
