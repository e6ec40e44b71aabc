/* Streams: handles, default-stream rules, synchronisation. */
#include "cu_core.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAX_STREAMS 16384

static struct stream *pool;
static size_t used;
static struct stream *free_list;
static uint64_t next_id = 1;
static __thread struct stream *per_thread[SG_MAX_DEVICES];
__thread uint64_t sg_entered;

struct stream *stream_slot(size_t i) { return pool + i; }
size_t stream_count(void) { return used; }

/* Called with sg_mu held. */
struct stream *stream_new(int dev, uint32_t flags, int priority) {
  struct stream *s;
  if (pool == NULL) {
    pool = mmap(NULL, MAX_STREAMS * sizeof *pool, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  s = free_list;
  if (s != NULL)
    free_list = s->next_free;
  else if (used < MAX_STREAMS)
    s = &pool[used++];
  else
    return NULL;
  *s = (struct stream){.live = 1, .flags = flags, .priority = priority, .dev = dev, .id = next_id++};
  return s;
}

int stream_get(void *handle, struct stream **out) {
  uintptr_t h = (uintptr_t)handle;
  int dev, err = cu_enter_context(&dev);
  sg_entered = sg_now();
  if (err != OK) return err;
  if (h == 2 || (h == 0 && sg_ptds)) {
    if (per_thread[dev] == NULL) {
      pthread_mutex_lock(&sg_mu);
      per_thread[dev] = stream_new(dev, 0, 0);
      pthread_mutex_unlock(&sg_mu);
      if (per_thread[dev] == NULL) return E_MEMORY;
    }
    *out = per_thread[dev];
    return OK;
  }
  if (h <= 1) {
    *out = dev_table[dev].legacy;
    return OK;
  }
  if (pool == NULL || h < (uintptr_t)pool || h >= (uintptr_t)(pool + used) ||
      (h - (uintptr_t)pool) % sizeof *pool != 0 || !((struct stream *)handle)->live)
    return E_HANDLE;
  *out = handle;
  return OK;
}

SG(cuStreamCreateWithPriority)(void **out, unsigned flags, int priority) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  if (out == NULL || flags > STREAM_NONBLOCKING) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  *out = stream_new(dev, flags, priority);
  pthread_mutex_unlock(&sg_mu);
  return *out == NULL ? E_MEMORY : OK;
}

SG(cuStreamCreate)(void **out, unsigned flags) { return impl_cuStreamCreateWithPriority(out, flags, 0); }

SG_ALIAS(cuStreamDestroy, cuStreamDestroy_v2)
SG(cuStreamDestroy_v2)(void *handle) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err != OK) return err;
  if ((uintptr_t)handle <= 2) return E_HANDLE;
  pthread_mutex_lock(&sg_mu);
  s->live = 0;
  if (s->waiting == NULL && !s->held) { /* otherwise the slot stays out of use: simple and safe */
    s->next_free = free_list;
    free_list = s;
  }
  pthread_mutex_unlock(&sg_mu);
  return OK;
}

static int not_captured(struct stream *s) {
  if (s->capture == NULL) return OK;
  s->capture->invalid = 1;
  return E_CAPTURE;
}

SG(cuStreamSynchronize)(void *handle) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK) err = not_captured(s);
  return err != OK ? err : q_wait_stream(s, sync_how(s->dev));
}

SG(cuStreamQuery)(void *handle) {
  struct stream *s;
  int done, err = stream_get(handle, &s);
  if (err == OK) err = not_captured(s);
  if (err != OK) return err;
  pthread_mutex_lock(&sg_mu);
  q_poll();
  done = q_end_of_stream(s) <= sg_now();
  pthread_mutex_unlock(&sg_mu);
  return done ? OK : E_NOT_READY;
}

SG_ALIAS(cuCtxSynchronize_v2, cuCtxSynchronize)
SG(cuCtxSynchronize)(void) {
  int dev, err = cu_enter_context(&dev);
  if (err != OK) return err;
  for (size_t i = 0; i < used; i++)
    if (pool[i].dev == dev && pool[i].live && (err = not_captured(&pool[i])) != OK) return err;
  return q_wait_device(dev, sync_how(dev));
}

SG(cuStreamGetPriority)(void *handle, int *priority) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && priority == NULL) err = E_VALUE;
  if (err == OK) *priority = s->priority;
  return err;
}

SG(cuStreamGetFlags)(void *handle, unsigned *flags) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && flags == NULL) err = E_VALUE;
  if (err == OK) *flags = s->flags;
  return err;
}

SG(cuStreamGetId)(void *handle, unsigned long long *id) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && id == NULL) err = E_VALUE;
  if (err == OK) *id = s->id;
  return err;
}

SG(cuStreamGetDevice)(void *handle, int *dev) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && dev == NULL) err = E_VALUE;
  if (err == OK) *dev = s->dev;
  return err;
}

SG(cuStreamGetCtx)(void *handle, void **ctx) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && ctx == NULL) err = E_VALUE;
  if (err == OK) *ctx = &dev_table[s->dev].context;
  return err;
}

SG(cuStreamGetCtx_v2)(void *handle, void **ctx, void **green) {
  if (green != NULL) *green = NULL;
  return impl_cuStreamGetCtx(handle, ctx);
}
SG(cuStreamGetGreenCtx)(void *handle, void **ctx) {
  struct stream *s;
  int err = stream_get(handle, &s);
  if (err == OK && ctx == NULL) err = E_VALUE;
  if (err == OK) *ctx = NULL; /* green contexts are not simulated */
  return err;
}

SG(cuStreamAttachMemAsync)(void *handle) {
  struct stream *s;
  return stream_get(handle, &s);
}

SG(cuStreamGetAttribute)(void *handle) {
  struct stream *s;
  return stream_get(handle, &s);
}

SG(cuStreamSetAttribute)(void *handle) {
  struct stream *s;
  return stream_get(handle, &s);
}

SG(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = -5;
  return OK;
}

static int enqueue_host(void *handle, void (*callback)(void *), void *argument) {
  struct stream *s;
  int err = stream_get(handle, &s);
  struct op op = {.type = OP_HOST, .kind = K_HOST, .callback = callback, .argument = argument};
  if (err != OK) return err;
  if (callback == NULL) return E_VALUE;
  pthread_mutex_lock(&sg_mu);
  err = s->capture != NULL ? capture_add(s, op) : (q_put(s, op), OK);
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG_ALIAS(cuLaunchHostFunc_v2, cuLaunchHostFunc)
SG(cuLaunchHostFunc)(void *handle, void (*callback)(void *), void *argument) {
  return enqueue_host(handle, callback, argument);
}

struct stream_callback {
  void (*callback)(void *stream, int status, void *data);
  void *stream, *data;
};

static void call_back(void *argument) {
  struct stream_callback c = *(struct stream_callback *)argument;
  free(argument);
  c.callback(c.stream, OK, c.data);
}

SG(cuStreamAddCallback)(void *handle, void (*callback)(void *, int, void *), void *data, unsigned flags) {
  struct stream_callback *c;
  if (callback == NULL || flags != 0) return E_VALUE;
  c = malloc(sizeof *c);
  if (c == NULL) return E_MEMORY;
  *c = (struct stream_callback){callback, handle, data};
  return enqueue_host(handle, call_back, c);
}
