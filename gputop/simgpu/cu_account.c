/* What the device did: busy time as a union of intervals, and bytes. Called with sg_mu held. */
#include "cu_core.h"

#include <string.h>

#define SEGMENTS 1024

struct segment {
  uint64_t start, end;
};

/* The union of intervals that may still touch later ones; older ones are only in the sum. */
struct cover {
  struct segment at[SEGMENTS];
  int count;
  uint64_t total, first, last;
};

static struct cover any_work[SG_MAX_DEVICES], kernels[SG_MAX_DEVICES];
static uint64_t bytes_moved[K_COUNT];

typedef void (*piece_fn)(int dev, uint64_t now, uint64_t start, uint64_t end);

static void forget_past(struct cover *c, uint64_t now) {
  int n = 0;
  while (n < c->count - 1 && (c->at[n].end < now || c->count - n > SEGMENTS - 2)) n++;
  if (n > 0) {
    memmove(c->at, c->at + n, (size_t)(c->count - n) * sizeof c->at[0]);
    c->count -= n;
  }
}

/* Adds [start, end) and reports each part that was not covered before. */
static void cover_add(struct cover *c, int dev, uint64_t now, uint64_t start, uint64_t end, piece_fn piece) {
  int i, j;
  uint64_t at = start;
  if (end <= start) return;
  if (c->first == 0 || start < c->first) c->first = start;
  if (end > c->last) c->last = end;
  if (c->count > SEGMENTS / 2) forget_past(c, now);
  for (i = c->count; i > 0 && c->at[i - 1].end >= start; i--) {}
  struct segment merged = {start, end};
  for (j = i; j < c->count && c->at[j].start <= end; j++) {
    if (c->at[j].start > at) {
      c->total += c->at[j].start - at;
      if (piece != NULL) piece(dev, now, at, c->at[j].start);
    }
    if (c->at[j].end > at) at = c->at[j].end;
    if (c->at[j].start < merged.start) merged.start = c->at[j].start;
    if (c->at[j].end > merged.end) merged.end = c->at[j].end;
  }
  if (at < end) {
    c->total += end - at;
    if (piece != NULL) piece(dev, now, at, end);
  }
  if (j == i && c->count == SEGMENTS) forget_past(c, UINT64_MAX), i = c->count, j = i;
  memmove(c->at + i + 1, c->at + j, (size_t)(c->count - j) * sizeof c->at[0]);
  c->at[i] = merged;
  c->count += 1 - (j - i);
}

static void write_log(void) {
  uint64_t busy = 0, idle = 0, kernel = 0, first = UINT64_MAX, last = 0;
  for (int d = 0; d < cfg.devices; d++) {
    struct cover *c = &any_work[d];
    if (c->first == 0) continue;
    busy += c->total;
    idle += c->last - c->first - c->total;
    kernel += kernels[d].total;
    if (c->first < first) first = c->first;
    if (c->last > last) last = c->last;
  }
  sg_log_number(LOG_GPU_BUSY_NS, busy);
  sg_log_number(LOG_GPU_IDLE_NS, idle);
  sg_log_number(LOG_KERNEL_BUSY_NS, kernel);
  sg_log_number(LOG_LAST_END_NS, last);
  sg_log_number(LOG_FIRST_START_NS, first);
}

/* CPU time spent on copying pageable memory for the device; without sg_mu. */
void acc_staging(uint64_t ns) {
  static uint64_t total;
  pthread_mutex_lock(&sg_mu);
  sg_log_number(LOG_STAGING_NS, total += ns);
  pthread_mutex_unlock(&sg_mu);
}

static void running(const struct stream *s, uint64_t now, uint64_t start, uint64_t end) {
  uint64_t oldest = now - STATE_PAST_NS;
  cover_add(&any_work[s->dev], s->dev, now, start, end, NULL);
  cover_add(&kernels[s->dev], s->dev, now, start < oldest ? oldest : start, end, st_busy);
  st_tail(s->dev, now, end);
}

void acc_running(const struct stream *s, uint64_t start, uint64_t end) { running(s, sg_now(), start, end); }

/* Slowed by others who have their turn, it uses as much altogether as in the time that it would have lasted. */
static struct sg_use slowed(struct sg_use u, uint64_t alone, uint64_t lasts) {
  double share = (double)alone / (double)lasts;
  return (struct sg_use){(uint16_t)(u.sm * share), (uint16_t)(u.occupancy * share), (uint16_t)(u.tensor * share),
                         (uint16_t)(u.dram * share)};
}

void acc_add(const struct stream *s, const struct op *op, uint64_t alone, uint64_t start, uint64_t end) {
  static const uint32_t field[K_COUNT] = {[K_H2D] = LOG_BYTES_H2D, [K_D2H] = LOG_BYTES_D2H, [K_D2D] = LOG_BYTES_D2D};
  enum kind kind = op->kind;
  uint64_t now = sg_now();
  if (field[kind] == 0) {
    running(s, now, start, end);
  } else {
    cover_add(&any_work[s->dev], s->dev, now, start, end, NULL);
    st_tail(s->dev, now, end);
    bytes_moved[kind] += op->bytes;
    sg_log_number(field[kind], bytes_moved[kind]);
    st_pcie(s->dev, kind == K_H2D ? op->bytes : 0, kind == K_D2H ? op->bytes : 0);
  }
  if (kind != K_H2D && kind != K_D2H) /* the bus takes little of the memory's bandwidth */
    st_use(s->dev, now, start, end, end - start > alone ? slowed(op->use, alone, end - start) : op->use);
  write_log();
  trace_op(s, kind, op->entered, start, end);
}
