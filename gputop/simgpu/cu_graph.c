/* Graphs: a list of operations, run one after another as one enqueue. */
#include "cu_core.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAX_GRAPHS 65536

static struct graph *pool;
static size_t used;

static struct graph *graph_new(int is_exec) {
  static uint64_t next_id;
  if (pool == NULL) {
    pool = mmap(NULL, MAX_GRAPHS * sizeof *pool, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  size_t i = 0;
  if (used < MAX_GRAPHS)
    i = used++;
  else
    while (i < MAX_GRAPHS && pool[i].live) i++;
  if (i == MAX_GRAPHS) return NULL;
  pool[i] = (struct graph){.live = 1, .is_exec = is_exec, .id = ++next_id};
  return &pool[i];
}

static struct graph *graph_get(void *handle, int is_exec) {
  uintptr_t h = (uintptr_t)handle;
  struct graph *g = handle;
  if (pool == NULL || h < (uintptr_t)pool || h >= (uintptr_t)(pool + used)) return NULL;
  if ((h - (uintptr_t)pool) % sizeof *pool != 0) return NULL;
  return g->live && g->is_exec == is_exec ? g : NULL;
}

int graph_add(struct graph *g, struct op op) {
  struct op *copy = malloc(sizeof *copy);
  if (copy == NULL) return E_MEMORY;
  *copy = op;
  copy->next = NULL;
  if (g->first == NULL)
    g->first = copy;
  else
    g->last->next = copy;
  g->last = copy;
  g->nodes++;
  return OK;
}

static void empty(struct graph *g) {
  while (g->first != NULL) {
    struct op *op = g->first;
    g->first = op->next;
    free(op);
  }
  g->nodes = 0;
}

SG_ALIAS(cuStreamBeginCapture, cuStreamBeginCapture_v2)
SG(cuStreamBeginCapture_v2)(void *handle, int mode) {
  struct stream *s;
  int err = stream_get(handle, &s);
  (void)mode;
  if (err != OK) return err;
  if (s == dev_table[s->dev].legacy) return E_CAPTURE;
  pthread_mutex_lock(&sg_mu);
  if (s->capture != NULL) {
    err = E_VALUE;
  } else {
    s->capture = graph_new(0);
    s->capture_origin = 1;
    err = s->capture == NULL ? E_MEMORY : OK;
  }
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG(cuStreamEndCapture)(void *handle, void **out) {
  struct stream *s;
  struct graph *g;
  int err = stream_get(handle, &s);
  if (err != OK) return err;
  if (out == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  g = s->capture;
  if (g == NULL || !s->capture_origin) {
    err = E_VALUE;
  } else {
    for (size_t i = 0; i < stream_count(); i++)
      if (stream_slot(i)->capture == g) stream_slot(i)->capture = NULL;
    s->capture_origin = 0;
    *out = g->invalid ? NULL : g;
    if (g->invalid) {
      empty(g);
      g->live = 0;
      err = E_CAPTURE_INVALID;
    }
  }
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG(cuStreamIsCapturing)(void *handle, int *status) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK) *status = s->capture == NULL ? 0 : 1 + s->capture->invalid;
  return err;
}

SG(cuStreamGetCaptureInfo_v2)(void *handle, int *status, unsigned long long *id, void **graph, void **deps, size_t *n) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err != OK) return err;
  if (status != NULL) *status = s->capture == NULL ? 0 : 1 + s->capture->invalid;
  if (s->capture != NULL && id != NULL) *id = s->capture->id;
  if (s->capture != NULL && graph != NULL) *graph = s->capture;
  if (deps != NULL) *deps = NULL;
  if (n != NULL) *n = 0;
  return OK;
}
SG(cuStreamGetCaptureInfo_v3)(void *handle, int *status, unsigned long long *id, void **graph, void **deps,
                              void **edges, size_t *n) {
  if (edges != NULL) *edges = NULL;
  return impl_cuStreamGetCaptureInfo_v2(handle, status, id, graph, deps, n);
}
SG(cuThreadExchangeStreamCaptureMode)(int *mode) {
  (void)mode;
  return OK;
}

SG(cuGraphCreate)(void **out, unsigned flags) {
  int err = cu_enter();
  (void)flags;
  if (err != OK) return err;
  pthread_mutex_lock(&sg_mu);
  *out = graph_new(0);
  pthread_mutex_unlock(&sg_mu);
  return *out == NULL ? E_MEMORY : OK;
}

static int instantiate(void **out, void *handle) {
  struct graph *g = graph_get(handle, 0), *exec;
  if (g == NULL || out == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  exec = graph_new(1);
  for (struct op *op = g->first; exec != NULL && op != NULL; op = op->next) graph_add(exec, *op);
  pthread_mutex_unlock(&sg_mu);
  *out = exec;
  return exec == NULL ? E_MEMORY : OK;
}

SG(cuGraphInstantiateWithFlags)(void **out, void *graph, unsigned long long flags) {
  (void)flags;
  return instantiate(out, graph);
}
SG_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2)
SG(cuGraphInstantiate_v2)(void **out, void *graph) { return instantiate(out, graph); }
SG(cuGraphInstantiateWithParams)(void **out, void *graph, void *params) {
  (void)params;
  return instantiate(out, graph);
}

SG(cuGraphUpload)(void *exec, void *stream) {
  struct stream *s;
  int err = stream_get(stream, &s);
  return err != OK ? err : (graph_get(exec, 1) == NULL ? E_VALUE : OK);
}

/* Work between host functions is one operation of the summed length; bytes are counted per copy. */
static void put_nodes(struct stream *s, const struct graph *g) {
  for (struct op *op = g->first; op != NULL; op = op->next) q_put(s, *op);
}

static int plain(const struct graph *g) {
  for (struct op *op = g->first; op != NULL; op = op->next)
    if (op->kind != K_KERNEL && op->kind != K_SET) return 0;
  return 1;
}

SG(cuGraphLaunch)(void *handle, void *stream) {
  struct graph *g = graph_get(handle, 1);
  struct stream *s;
  int err = stream_get(stream, &s);
  if (err != OK) return err;
  if (g == NULL) return E_VALUE;
  q_wait_room(s);
  cu_launch_cost(sg_entered);
  pthread_mutex_lock(&sg_mu);
  if (plain(g)) {
    struct op sum = {.type = OP_WORK, .kind = K_KERNEL};
    for (struct op *op = g->first; op != NULL; op = op->next) sum.duration += op->duration;
    if (g->nodes > 0) q_put(s, sum);
  } else {
    put_nodes(s, g);
  }
  pthread_mutex_unlock(&sg_mu);
  for (struct op *op = g->first; op != NULL; op = op->next)
    if (op->region.dst != NULL && op->bytes <= 65536) copy_move(&op->region);
  return OK;
}

static int destroy(void *handle, int is_exec) {
  struct graph *g = graph_get(handle, is_exec);
  if (g == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  empty(g);
  g->live = 0;
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

SG(cuGraphDestroy)(void *handle) { return destroy(handle, 0); }
SG(cuGraphExecDestroy)(void *handle) { return destroy(handle, 1); }

SG(cuGraphGetNodes)(void *handle, void **nodes, size_t *count) {
  struct graph *g = graph_get(handle, 0);
  if (g == NULL || count == NULL) return E_VALUE;
  size_t i = 0;
  if (nodes != NULL)
    for (struct op *op = g->first; op != NULL && i < *count; op = op->next) nodes[i++] = op;
  *count = nodes == NULL ? g->nodes : i;
  return OK;
}

struct kernel_node { /* the runtime's structure begins the same way */
  void *function;
  unsigned grid[3], block[3], shared;
  void **arguments, **extra;
};

SG_ALIAS(cuGraphAddKernelNode, cuGraphAddKernelNode_v2)
SG(cuGraphAddKernelNode_v2)(void **node, void *handle, void *deps, size_t n, const struct kernel_node *p) {
  struct graph *g = graph_get(handle, 0);
  int err;
  (void)deps, (void)n;
  if (g == NULL || p == NULL || p->function == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  err = graph_add(g, (struct op){.type = OP_WORK, .kind = K_KERNEL, .duration = kernel_duration(p->arguments)});
  if (node != NULL) *node = g->last;
  pthread_mutex_unlock(&sg_mu);
  return err;
}
/* Nodes run in the order in which they were added, which satisfies any dependency between earlier ones. */
SG(cuGraphAddDependencies)(void *handle) { return graph_get(handle, 0) == NULL ? E_VALUE : OK; }
SG_ALIAS(cuGraphAddDependencies_v2, cuGraphAddDependencies)
SG(cuGraphAddEmptyNode)(void **node, void *handle) {
  struct graph *g = graph_get(handle, 0);
  if (g == NULL || node == NULL) return E_VALUE;
  *node = g;
  return OK;
}
