/* Streams as in-order queues in virtual time: when an operation is queued, its start and end are computed.
 *
 * Host functions and collectives have no known end: their stream is held, and what follows is kept in a list. */
#include "cu_core.h"

#include <stdlib.h>

#define TOLD_AGAIN_NS (10 * NS_PER_MS)

pthread_mutex_t sg_mu = PTHREAD_MUTEX_INITIALIZER;

static size_t open_ops, joints; /* operations of unknown end and those kept behind them; collectives among them */
static uint64_t next_seq;

static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static int is_blocking(const struct stream *s) { return !(s->flags & STREAM_NONBLOCKING); }

static uint64_t first_outstanding(const struct stream *s) {
  if (s->held) return s->holder.seq;
  return s->waiting != NULL ? s->waiting->seq : UINT64_MAX;
}

uint64_t q_end_of_stream(struct stream *s) {
  if (s == dev_table[s->dev].legacy) return q_end_of_device(s->dev, 1);
  return first_outstanding(s) == UINT64_MAX ? s->tail : UNKNOWN_TIME;
}

uint64_t q_end_of_device(int dev, int blocking_only) {
  for (size_t i = 0; open_ops > 0 && i < stream_count(); i++) {
    struct stream *s = stream_slot(i);
    if (s->dev == dev && (!blocking_only || is_blocking(s)) && first_outstanding(s) != UINT64_MAX) return UNKNOWN_TIME;
  }
  return blocking_only ? dev_table[dev].blocking_tail : dev_table[dev].all_tail;
}

/* Whether earlier work of unknown end stands before it in a stream that its own stream follows. */
static int is_behind(const struct stream *s, const struct op *op) {
  const struct stream *legacy = dev_table[s->dev].legacy;
  if (open_ops == 0 || !is_blocking(s) || legacy == NULL) return 0;
  if (s != legacy) return first_outstanding(legacy) < op->seq;
  for (size_t i = 0; i < stream_count(); i++) {
    const struct stream *t = stream_slot(i);
    if (t != s && t->dev == s->dev && is_blocking(t) && first_outstanding(t) < op->seq) return 1;
  }
  return 0;
}

/* When the stream reaches it. The legacy stream waits for all blocking ones, and they for it. */
static uint64_t ready_at(const struct stream *s, uint64_t from) {
  const struct device *d = &dev_table[s->dev];
  uint64_t at = max64(from, s->tail);
  if (s == d->legacy) return max64(at, d->blocking_tail);
  return is_blocking(s) && d->legacy != NULL ? max64(at, d->legacy->tail) : at;
}

static uint64_t latency(void) {
  return cfg.latency_set ? cfg.latency_ns : sg_jitter(2 * NS_PER_US, 5 * NS_PER_US);
}

static void extend(struct stream *s, uint64_t end) {
  struct device *d = &dev_table[s->dev];
  s->tail = max64(s->tail, end);
  if (is_blocking(s)) d->blocking_tail = max64(d->blocking_tail, end);
  d->all_tail = max64(d->all_tail, end);
}

static void count_done(struct stream *s, uint64_t end) {
  extend(s, end);
  s->done[s->queued++ % QUEUE_DEPTH] = end;
}

static void run_work(struct stream *s, const struct op *op) {
  uint64_t *lane = NULL, start = ready_at(s, op->queued + latency()), end, lasts = op->duration;
  if (op->kind == K_H2D || op->kind == K_D2H) lane = &dev_table[s->dev].copy_tail[op->kind == K_D2H];
  if (lane != NULL) start = max64(start, *lane);
  if (op->kind == K_KERNEL || op->kind == K_SET) lasts = clock_slowed(s->dev, lasts);
  end = start + lasts * st_sharers(s->dev, op->queued);
  if (lane != NULL) *lane = end;
  count_done(s, end);
  if (op->kind == K_KERNEL) data_kernel();
  if (op->region.dst != NULL) copy_move(&op->region, 0);
  acc_add(s, op, lasts, start, end);
  seen_ran(s, op, start, end);
}

static void hold(struct stream *s, const struct op *op) {
  s->held = 1;
  s->holder = *op;
  open_ops++;
}

/* Runs one operation, or returns 0 when the stream has to wait for something of unknown length. */
static int run(struct stream *s, const struct op *op) {
  if (s->held || is_behind(s, op)) return 0;
  switch (op->type) {
    case OP_WORK:
      run_work(s, op);
      break;
    case OP_RECORD:
      if (op->event->version == op->version) op->event->time = ready_at(s, op->queued);
      break;
    case OP_WAIT:
      if (op->event->version == op->version) {
        if (op->event->time == UNKNOWN_TIME) return 0;
        extend(s, op->event->time);
      }
      break;
    case OP_HOST:
      hold(s, op);
      host_schedule(s, ready_at(s, op->queued), op->callback, op->argument);
      break;
    case OP_JOINT:
      hold(s, op);
      joints++;
      s->holder_start = s->holder_told = ready_at(s, op->queued + latency());
      op->joint->arrive(op->joint, s->holder_start);
      break;
  }
  return 1;
}

static void keep(struct stream *s, const struct op *op) {
  struct op *copy = malloc(sizeof *copy);
  if (copy == NULL) abort();
  *copy = *op;
  copy->next = NULL;
  if (s->waiting == NULL)
    s->waiting = copy;
  else
    s->last_waiting->next = copy;
  s->last_waiting = copy;
  s->pending++;
  open_ops++;
}

void q_put(struct stream *s, struct op op) {
  if (op.type == OP_RECORD) {
    op.version = ++op.event->version;
    op.event->time = UNKNOWN_TIME;
  } else if (op.type == OP_WAIT) {
    op.version = op.event->version;
  }
  op.seq = ++next_seq;
  op.queued = sg_now();
  op.entered = sg_entered;
  seen_put(s, &op);
  if (s->waiting != NULL || !run(s, &op)) keep(s, &op);
  if (joints > 0) q_poll();
}

static void run_waiting(void) {
  int progress = 1;
  while (progress) {
    progress = 0;
    for (size_t i = 0; i < stream_count(); i++) {
      struct stream *s = stream_slot(i);
      while (s->waiting != NULL && run(s, s->waiting)) {
        struct op *done = s->waiting;
        s->waiting = done->next;
        s->pending--;
        open_ops--;
        free(done);
        progress = 1;
      }
    }
  }
}

static void release(struct stream *s) {
  s->held = 0;
  open_ops--;
  run_waiting();
}

/* A host function returned: its stream goes on, and others may that wait for its events. */
void q_host_finished(struct stream *s, uint64_t begun) {
  uint64_t now = sg_now();
  extend(s, now);
  trace_op(s, K_HOST, s->holder.entered, begun, now);
  release(s);
  wait_news();
}

static int joint_settled(struct stream *s) {
  uint64_t begin, end, now;
  struct op op = s->holder;
  if (!op.joint->settled(op.joint, &begin, &end)) {
    now = sg_now();
    if (now > s->holder_told + TOLD_AGAIN_NS) {
      acc_running(s, s->holder_told, now); /* it spins on the device until the others come */
      s->holder_told = now;
    }
    return 0;
  }
  joints--;
  begin = max64(begin, s->holder_start); /* one that was aborted may not even have begun */
  end = max64(end, begin);
  count_done(s, end);
  if (begin > s->holder_start) {
    op.kind = K_COMM_WAIT;
    op.use.dram = 0; /* it spins */
    acc_add(s, &op, begin - s->holder_start, s->holder_start, begin);
    op.use.dram = s->holder.use.dram;
  }
  op.kind = K_COMM;
  acc_add(s, &op, end - begin, begin, end);
  seen_ran(s, &op, s->holder_start, end);
  st_nvlink(s->dev, op.joint->sent, op.joint->received);
  op.joint->finished(op.joint);
  release(s);
  return 1;
}

void q_poll(void) {
  int progress = joints > 0, news = 0;
  while (progress) {
    progress = 0;
    for (size_t i = 0; i < stream_count(); i++) {
      struct stream *s = stream_slot(i);
      if (s->held && s->holder.type == OP_JOINT) progress |= joint_settled(s);
    }
    news |= progress;
  }
  if (news) wait_news();
}
