/* Capturing streams into graphs. */
#include "cu_core.h"

/* With sg_mu held. The operation follows what the stream captured last, and the events it waited for. */
int capture_add(struct stream *s, struct op op) {
  struct graph *g = s->capture;
  int err = graph_add(g, op);
  if (err != OK) return err;
  for (int i = 0; i < s->branch.count && err == OK; i++) err = graph_depend(g, s->branch.node[i], g->last->index);
  s->branch = (struct branch){{g->last->index}, 1};
  return err;
}

/* With sg_mu held. A stream that waits for an event of a captured stream is captured from then on. */
void capture_follow(struct stream *s, const struct event *e) {
  if (s->capture != e->capture) s->branch.count = 0;
  s->capture = e->capture;
  for (int i = 0; i < e->branch.count; i++) {
    if (s->branch.count < MAX_BRANCHES)
      s->branch.node[s->branch.count++] = e->branch.node[i];
    else
      s->capture->invalid = 1; /* more than are simulated: no graph instead of a wrong one */
  }
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
    s->branch.count = 0;
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
      graph_empty(g);
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
