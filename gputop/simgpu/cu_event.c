/* Events. */
#include "cu_core.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAX_EVENTS (1u << 20)

static struct event *pool;
static size_t used;
static struct event *free_list;

int event_get(void *handle, struct event **out) {
  uintptr_t h = (uintptr_t)handle;
  int err = cu_enter();
  if (err != OK) return err;
  if (pool == NULL || h < (uintptr_t)pool || h >= (uintptr_t)(pool + used) ||
      (h - (uintptr_t)pool) % sizeof *pool != 0 || !((struct event *)handle)->live)
    return E_HANDLE;
  *out = handle;
  return OK;
}

SG(cuEventCreate)(void **out, unsigned flags) {
  struct event *e;
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  if (out == NULL || flags > 7) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  if (pool == NULL) {
    pool = mmap(NULL, MAX_EVENTS * sizeof *pool, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  e = free_list;
  if (e != NULL)
    free_list = e->next_free;
  else if (used < MAX_EVENTS)
    e = &pool[used++];
  if (e != NULL) {
    uint64_t version = e->version; /* kept, so that an old record cannot mark the new event */
    *e = (struct event){.live = 1, .flags = flags, .dev = dev, .version = version + 1};
  }
  pthread_mutex_unlock(&sg_mu);
  *out = e;
  return e == NULL ? E_MEMORY : OK;
}

SG_ALIAS(cuEventDestroy, cuEventDestroy_v2)
SG(cuEventDestroy_v2)(void *handle) {
  struct event *e;
  int err = event_get(handle, &e);
  if (err != OK) return err;
  pthread_mutex_lock(&sg_mu);
  e->live = 0;
  e->version++;
  e->next_free = free_list;
  free_list = e;
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

SG(cuEventRecordWithFlags)(void *handle, void *stream, unsigned flags) {
  struct event *e;
  struct stream *s;
  int err = event_get(handle, &e);
  (void)flags;
  if (err == OK) err = stream_get(stream, &s);
  if (err != OK) return err;
  if (e->dev != s->dev) return E_HANDLE;
  pthread_mutex_lock(&sg_mu);
  e->capture = s->capture;
  e->branch = s->branch;
  if (s->capture == NULL) q_put(s, (struct op){.type = OP_RECORD, .event = e});
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

SG(cuEventRecord)(void *handle, void *stream) { return impl_cuEventRecordWithFlags(handle, stream, 0); }

/* Waiting for an event of a captured stream takes the waiting stream into the capture. */
SG(cuStreamWaitEvent)(void *stream, void *handle, unsigned flags) {
  struct event *e;
  struct stream *s;
  int err = event_get(handle, &e);
  (void)flags;
  if (err == OK) err = stream_get(stream, &s);
  if (err != OK) return err;
  pthread_mutex_lock(&sg_mu);
  if (e->capture != NULL && e->capture->live)
    capture_follow(s, e);
  else if (s->capture == NULL)
    q_put(s, (struct op){.type = OP_WAIT, .event = e});
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

static uint64_t time_of(struct event *e) {
  uint64_t t;
  pthread_mutex_lock(&sg_mu);
  q_poll();
  t = e->time;
  pthread_mutex_unlock(&sg_mu);
  return t;
}

SG(cuEventQuery)(void *handle) {
  struct event *e;
  int err = event_get(handle, &e);
  if (err == OK && e->capture != NULL) return E_CAPTURE;
  return err != OK ? err : (time_of(e) <= sg_now() ? OK : E_NOT_READY);
}

SG(cuEventSynchronize)(void *handle) {
  struct event *e;
  int err = event_get(handle, &e);
  if (err != OK) return err;
  if (e->capture != NULL) return E_CAPTURE;
  return q_wait_event(e, e->flags & EVENT_BLOCKING ? SCHED_BLOCK : sync_how(e->dev) & SCHED_YIELD);
}

SG_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime)
SG(cuEventElapsedTime)(float *ms, void *start, void *end) {
  struct event *a, *b;
  int err = event_get(start, &a);
  if (err == OK) err = event_get(end, &b);
  if (err != OK) return err;
  if (ms == NULL) return E_VALUE;
  if ((a->flags | b->flags) & EVENT_NO_TIMING) return E_HANDLE;
  uint64_t ta = time_of(a), tb = time_of(b), now = sg_now();
  if (ta == 0 || tb == 0) return E_HANDLE;
  if (ta > now || tb > now) return E_NOT_READY;
  *ms = (float)(((double)tb - (double)ta) / 1e6);
  return OK;
}
