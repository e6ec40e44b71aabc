/* cuDNN's graph interface: descriptors of any kind keep the attributes that they are given, and hold those they name.
 *
 * One engine can do every graph, without a workspace; its plan is as good as any. */
#include "dnn_core.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_DOUBLE = 5, TYPE_VOID_PTR = 6, TYPE_DESCRIPTOR = 15, TYPE_CHAR = 24,
       TYPE_FRACTION = 26 };
enum { HEUR_GRAPH = 201, HEUR_RESULTS = 202, CFG_ENGINE = 300, CFG_WORKSPACE = 303, CFG_SHARED = 304, PLAN_WORKSPACE = 402,
       GRAPH_ENGINES = 802, ENGINE_GRAPH = 1300, ENGINE_INDEX = 1301 };

static size_t size_of(int type) {
  switch (type) {
    case 0: case TYPE_INT64: case TYPE_DOUBLE: case TYPE_VOID_PTR: case TYPE_DESCRIPTOR: return 8;
    case TYPE_BOOLEAN: case TYPE_CHAR: return 1;
    case TYPE_FRACTION: return 16;
    default: return 4;
  }
}

const struct attribute *dnn_attribute(const struct descriptor *d, int name) {
  for (const struct attribute *a = d != NULL ? d->attributes : NULL; a != NULL; a = a->next)
    if (a->name == name) return a;
  return NULL;
}

struct descriptor *dnn_child(const struct descriptor *d, int name, int64_t index) {
  const struct attribute *a = dnn_attribute(d, name);
  if (a == NULL || a->type != TYPE_DESCRIPTOR || index >= a->count) return NULL;
  return ((struct descriptor **)a->values)[index];
}

static void hold(struct descriptor *d) {
  if (d != NULL) __atomic_add_fetch(&d->references, 1, __ATOMIC_RELAXED);
}

static void let_go(struct descriptor *d);

static void forget(struct attribute *a) {
  for (int64_t i = 0; a->type == TYPE_DESCRIPTOR && i < a->count; i++) let_go(((struct descriptor **)a->values)[i]);
  free(a->values);
  free(a);
}

static void let_go(struct descriptor *d) {
  if (d == NULL || __atomic_sub_fetch(&d->references, 1, __ATOMIC_ACQ_REL) != 0) return;
  for (struct attribute *a = d->attributes, *next; a != NULL; a = next) {
    next = a->next;
    forget(a);
  }
  free(d);
}

static int set(struct descriptor *d, int name, int type, int64_t count, const void *values) {
  struct attribute *a = calloc(1, sizeof *a), **at = &d->attributes;
  size_t size = size_of(type) * (size_t)count;
  if (a == NULL || (a->values = malloc(size + 1)) == NULL) {
    free(a);
    return D_ALLOC;
  }
  if (size != 0) memcpy(a->values, values, size);
  a->name = name;
  a->type = type;
  a->count = count;
  for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < count; i++) hold(((struct descriptor **)a->values)[i]);
  while (*at != NULL && (*at)->name != name) at = &(*at)->next;
  if (*at != NULL) {
    struct attribute *old = *at;
    a->next = old->next;
    forget(old);
  }
  *at = a;
  return D_OK;
}

SG(cudnnBackendCreateDescriptor)(int kind, struct descriptor **out) {
  if (out == NULL) return D_PARAM;
  *out = calloc(1, sizeof **out);
  if (*out == NULL) return D_ALLOC;
  (*out)->kind = kind;
  (*out)->references = 1;
  return D_OK;
}
SG(cudnnBackendDestroyDescriptor)(struct descriptor *d) {
  let_go(d);
  return D_OK;
}
SG(cudnnBackendFinalize)(struct descriptor *d) { return d == NULL ? D_PARAM : D_OK; }
SG(cudnnBackendSetAttribute)(struct descriptor *d, int name, int type, int64_t count, const void *values) {
  if (d == NULL || count < 0 || (values == NULL && count != 0)) return D_PARAM;
  return set(d, name, type, count, values);
}

/* The program made the descriptor that is to become the answer. */
static int become(struct descriptor *d, const struct descriptor *like) {
  int err = d == NULL || like == NULL ? D_PARAM : D_OK;
  for (const struct attribute *a = like != NULL ? like->attributes : NULL; a != NULL && err == D_OK; a = a->next)
    err = set(d, a->name, a->type, a->count, a->values);
  return err;
}

/* The one engine of a graph, as a configuration of it. */
static int one_configuration(const struct descriptor *heuristics, struct descriptor *configuration) {
  struct descriptor *graph = dnn_child(heuristics, HEUR_GRAPH, 0), *engine;
  int64_t index = 0;
  int err = graph == NULL || configuration == NULL ? D_PARAM : impl_cudnnBackendCreateDescriptor(0, &engine);
  if (err != D_OK) return err;
  err = set(engine, ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);
  if (err == D_OK) err = set(engine, ENGINE_INDEX, TYPE_INT64, 1, &index);
  if (err == D_OK) err = set(configuration, CFG_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
  let_go(engine);
  return err;
}

static int number(int64_t value, int type, int64_t wanted, int64_t *count, void *out) {
  if (count != NULL) *count = 1;
  if (wanted > 0 && out != NULL) memcpy(out, &value, size_of(type));
  return D_OK;
}

SG(cudnnBackendGetAttribute)(const struct descriptor *d, int name, int type, int64_t wanted, int64_t *count,
                             void *out) {
  const struct attribute *a = dnn_attribute(d, name);
  if (d == NULL) return D_PARAM;
  if (name == HEUR_RESULTS) {
    if (count != NULL) *count = 1;
    return wanted > 0 && out != NULL ? one_configuration(d, *(struct descriptor **)out) : D_OK;
  }
  if (name == CFG_WORKSPACE || name == CFG_SHARED || name == PLAN_WORKSPACE)
    return number(0, type, wanted, count, out);
  if (name == GRAPH_ENGINES) return number(1, type, wanted, count, out);
  if (count != NULL) *count = a == NULL ? 0 : a->count;
  if (a == NULL || out == NULL) return D_OK;
  int64_t n = wanted < a->count ? wanted : a->count;
  if (a->type != TYPE_DESCRIPTOR || type != TYPE_DESCRIPTOR) {
    memcpy(out, a->values, (size_t)n * size_of(a->type));
    return D_OK;
  }
  int err = D_OK;
  for (int64_t i = 0; i < n && err == D_OK; i++)
    err = become(((struct descriptor **)out)[i], ((struct descriptor **)a->values)[i]);
  return err;
}
