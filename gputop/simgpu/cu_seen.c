/* What a simulated CUPTI is told of the device: each call that gives it something, and what it did. */
#include "cu_core.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { CBID_LAUNCH = 307, CBID_COPY = 306, CBID_FILL = 216 }; /* cupti_driver_cbid.h */
enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 8, PAGEABLE = 1, PINNED = 2, DEVICE = 3 };

static sg_observer observer;

void cu_observe(sg_observer now) {
  pthread_mutex_lock(&sg_mu);
  observer = now;
  pthread_mutex_unlock(&sg_mu);
}

/* A call that is about to return; what it gives the device has the same number. */
uint64_t seen_call(unsigned cbid, const struct stream *s) {
  static uint64_t correlation;
  if (observer == NULL) return 0;
  struct sg_seen call = {.what = SEEN_CALL, .cbid = cbid, .start = sg_entered, .end = sg_now(),
                         .thread = (unsigned)syscall(SYS_gettid), .device = (unsigned)s->dev, .stream = s->id,
                         .correlation = ++correlation};
  observer(&call);
  return correlation;
}

void seen_put(const struct stream *s, struct op *op) {
  if (observer == NULL || op->seen.correlation != 0 || (op->type != OP_WORK && op->type != OP_JOINT)) return;
  op->seen.correlation =
      seen_call(op->kind == K_KERNEL ? CBID_LAUNCH : op->kind == K_SET ? CBID_FILL : CBID_COPY, s);
}

static void tell(const struct stream *s, const struct op *op, uint64_t start, uint64_t end, int what, uint64_t node) {
  const struct seen_work *seen = &op->seen;
  int host = seen->pageable ? PAGEABLE : PINNED;
  struct sg_seen row = {.what = what, .device = (unsigned)s->dev, .stream = s->id, .start = start, .end = end,
                        .correlation = seen->correlation, .bytes = op->bytes, .name = seen->name,
                        .shared = seen->shared, .node = node, .source = DEVICE, .target = DEVICE,
                        .copy_kind = op->kind == K_H2D   ? HOST_TO_DEVICE
                                     : op->kind == K_D2H ? DEVICE_TO_HOST
                                                         : DEVICE_TO_DEVICE};
  for (int i = 0; i < 3; i++) row.grid[i] = seen->grid[i], row.block[i] = seen->block[i];
  if (seen->graph != NULL) row.graph = (unsigned)seen->graph->id;
  if (op->kind == K_H2D) row.source = host;
  if (op->kind == K_D2H) row.target = host;
  observer(&row);
}

static int what_of(enum kind kind) {
  return kind == K_H2D || kind == K_D2H || kind == K_D2D ? SEEN_COPY : kind == K_SET ? SEEN_FILL : SEEN_KERNEL;
}

/* Of a graph that is one operation its nodes, too, as they lie in it. */
void seen_ran(const struct stream *s, const struct op *op, uint64_t start, uint64_t end) {
  const struct graph *g = op->seen.graph;
  if (observer == NULL || op->kind == K_HOST || op->seen.correlation == 0) return;
  if (g == NULL || op->seen.name != NULL || op->kind != K_KERNEL) {
    tell(s, op, start, end, what_of(op->kind), g == NULL ? 0 : (uint64_t)op->index + 1);
    return;
  }
  tell(s, op, start, end, SEEN_GRAPH, 0);
  double slower = (double)(end - start) / (double)g->length;
  for (const struct op *node = g->first; node != NULL; node = node->next) {
    struct op told = *node;
    uint64_t from = start + (uint64_t)((double)node->offset * slower);
    if (node->kind == K_HOST) continue;
    told.seen.correlation = op->seen.correlation;
    told.seen.graph = g;
    tell(s, &told, from, from + (uint64_t)((double)node->duration * slower), what_of(node->kind), node->index + 1);
  }
}
