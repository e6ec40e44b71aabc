/* Graphs: operations and what each depends on, run as one enqueue.
 *
 * One of kernels and fills alone lasts as long as its longest path. Others run in the order of their nodes. */
#include "cu_core.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAX_GRAPHS 65536

static struct graph *pool;
static size_t used;

struct graph *graph_new(int is_exec) {
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
  copy->index = g->nodes;
  if (g->first == NULL)
    g->first = copy;
  else
    g->last->next = copy;
  g->last = copy;
  g->nodes++;
  return OK;
}

void graph_empty(struct graph *g) {
  while (g->first != NULL) {
    struct op *op = g->first;
    g->first = op->next;
    free(op);
  }
  free(g->edges);
  g->edges = NULL;
  g->nodes = g->edge_count = g->edge_room = 0;
}

int graph_depend(struct graph *g, size_t from, size_t to) {
  if (from >= g->nodes || to >= g->nodes || from == to) return E_VALUE;
  if (g->edge_count == g->edge_room) {
    size_t room = g->edge_room == 0 ? 16 : 2 * g->edge_room;
    struct edge *more = realloc(g->edges, room * sizeof *more);
    if (more == NULL) return E_MEMORY;
    g->edges = more;
    g->edge_room = room;
  }
  g->edges[g->edge_count++] = (struct edge){from, to};
  return OK;
}

/* The longest path; an error when there is none because the dependencies run in a circle. */
static int measure(struct graph *g) {
  uint64_t *end = calloc(g->nodes + 1, sizeof *end), *lasts = calloc(g->nodes + 1, sizeof *lasts);
  size_t round = 0;
  int changed = end != NULL && lasts != NULL, err = changed ? OK : E_MEMORY;
  for (struct op *op = g->first; err == OK && op != NULL; op = op->next) end[op->index] = lasts[op->index] = op->duration;
  for (; changed && round <= g->nodes; round++) {
    changed = 0;
    for (size_t i = 0; i < g->edge_count; i++) {
      const struct edge *e = &g->edges[i];
      if (end[e->to] >= end[e->from] + lasts[e->to]) continue;
      end[e->to] = end[e->from] + lasts[e->to];
      changed = 1;
    }
  }
  for (size_t i = 0; err == OK && i < g->nodes; i++)
    if (end[i] > g->length) g->length = end[i];
  for (struct op *op = g->first; err == OK && op != NULL; op = op->next) op->offset = end[op->index] - op->duration;
  free(end);
  free(lasts);
  return changed ? E_VALUE : err;
}

static void add_use(double sum[4], struct sg_use u, double ns) {
  sum[0] += u.sm * ns, sum[1] += u.occupancy * ns, sum[2] += u.tensor * ns, sum[3] += u.dram * ns;
}

static uint16_t mean(double sum, uint64_t ns) { return sum < 1000.0 * (double)ns ? (uint16_t)(sum / (double)ns) : 1000; }

/* What all nodes use, over the length of the whole. */
static struct sg_use use_of(const struct graph *g) {
  double sum[4] = {0};
  if (g->length == 0) return (struct sg_use){0};
  for (const struct op *op = g->first; op != NULL; op = op->next) add_use(sum, op->use, (double)op->duration);
  return (struct sg_use){mean(sum[0], g->length), mean(sum[1], g->length), mean(sum[2], g->length),
                         mean(sum[3], g->length)};
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
  sg_spin_until(sg_now() + (cfg.instantiate_set ? cfg.instantiate_ns : 20 * NS_PER_US + g->nodes * 500));
  pthread_mutex_lock(&sg_mu);
  exec = graph_new(1);
  int err = exec == NULL ? E_MEMORY : OK;
  for (struct op *op = g->first; err == OK && op != NULL; op = op->next) err = graph_add(exec, *op);
  for (size_t i = 0; err == OK && i < g->edge_count; i++) err = graph_depend(exec, g->edges[i].from, g->edges[i].to);
  if (err == OK) err = measure(exec);
  if (err == OK) exec->use = use_of(exec);
  if (err != OK && exec != NULL) {
    graph_empty(exec);
    exec->live = 0;
  }
  pthread_mutex_unlock(&sg_mu);
  if (err == OK) *out = exec;
  return err;
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

static int is_empty_node(const struct op *op) { return op->type == OP_WORK && op->kind == K_HOST; }

static void put_nodes(struct stream *s, const struct graph *g, struct seen_work seen) {
  for (struct op *op = g->first; op != NULL; op = op->next) {
    struct op node = *op;
    node.seen.correlation = seen.correlation;
    node.seen.graph = g;
    if (!is_empty_node(op)) q_put(s, node);
  }
}

static int plain(const struct graph *g) {
  for (struct op *op = g->first; op != NULL; op = op->next)
    if (op->kind != K_KERNEL && op->kind != K_SET && !is_empty_node(op)) return 0;
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
  struct seen_work seen = {.correlation = seen_call(514 /* cuGraphLaunch */, s), .graph = g};
  if (plain(g)) {
    for (struct op *op = g->first; op != NULL; op = op->next)
      if (op->region.dst != NULL) copy_move(&op->region, 0);
    if (g->length > 0)
      q_put(s, (struct op){.type = OP_WORK, .kind = K_KERNEL, .duration = g->length, .use = g->use, .seen = seen});
  } else {
    put_nodes(s, g, seen);
  }
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

static int destroy(void *handle, int is_exec) {
  struct graph *g = graph_get(handle, is_exec);
  if (g == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  graph_empty(g);
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

/* Adds a node that follows others. */
static int add_node(void **node, void *handle, struct op *const *deps, size_t n, struct op op) {
  struct graph *g = graph_get(handle, 0);
  if (g == NULL || node == NULL || (n > 0 && deps == NULL)) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  int err = graph_add(g, op);
  for (size_t i = 0; err == OK && i < n; i++) err = graph_depend(g, deps[i]->index, g->last->index);
  *node = g->last;
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG_ALIAS(cuGraphAddKernelNode, cuGraphAddKernelNode_v2)
SG(cuGraphAddKernelNode_v2)(void **node, void *handle, struct op **deps, size_t n, const struct kernel_node *p) {
  const struct function *f = p == NULL ? NULL : function_get(p->function);
  if (f == NULL) return E_VALUE;
  uint64_t blocks = (uint64_t)p->grid[0] * p->grid[1] * p->grid[2];
  uint64_t threads = (uint64_t)p->block[0] * p->block[1] * p->block[2];
  if (blocks == 0 || threads == 0 || threads > 1024) return E_VALUE;
  struct op op = {.type = OP_WORK, .kind = K_KERNEL};
  op.seen = (struct seen_work){.name = f->name, .shared = p->shared};
  for (int i = 0; i < 3; i++) op.seen.grid[i] = p->grid[i], op.seen.block[i] = p->block[i];
  kernel_work(f, blocks, threads, p->arguments, &op);
  return add_node(node, handle, deps, n, op);
}
SG(cuGraphAddEmptyNode)(void **node, void *handle, struct op **deps, size_t n) {
  return add_node(node, handle, deps, n, (struct op){.type = OP_WORK, .kind = K_HOST});
}

SG(cuGraphAddDependencies)(void *handle, struct op **from, struct op **to, size_t n) {
  struct graph *g = graph_get(handle, 0);
  int err = g == NULL || (n > 0 && (from == NULL || to == NULL)) ? E_VALUE : OK;
  pthread_mutex_lock(&sg_mu);
  for (size_t i = 0; err == OK && i < n; i++) err = graph_depend(g, from[i]->index, to[i]->index);
  pthread_mutex_unlock(&sg_mu);
  return err;
}
SG(cuGraphAddDependencies_v2)(void *handle, struct op **from, struct op **to, const void *kinds, size_t n) {
  (void)kinds;
  return impl_cuGraphAddDependencies(handle, from, to, n);
}
