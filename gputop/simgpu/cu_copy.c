/* Copies and fills: what they wait for, what they cost the CPU, and the data they really move. */
#include "cu_core.h"

#include <stdlib.h>
#include <string.h>

#define BOUNCE (1u << 20)

size_t region_bytes(const struct region *r) { return r->width * r->height * r->depth; }

/* What a CPU spends on the data of a large copy, which is not kept. */
static void work_on(char *dst, const char *src, size_t n) {
  static __thread char *bounce;
  if (dst != NULL) memset(dst, 0, n);
  if (src == NULL) return;
  if (bounce == NULL) bounce = malloc(BOUNCE);
  for (size_t done = 0; bounce != NULL && done < n; done += BOUNCE)
    memcpy(bounce, src + done, n - done < BOUNCE ? n - done : BOUNCE);
}

static void within_device(char *dst, const char *src, size_t n) {
  char *between = malloc(n);
  if (between != NULL && data_read(between, src, n))
    data_write(dst, between, n);
  else
    data_forget(dst, n);
  free(between);
}

static void move_row(char *dst, const char *src, size_t n, int small, int by_cpu) {
  int to_device = mem_holds_no_data(dst), from_device = mem_holds_no_data(src);
  if (!to_device && !from_device) {
    if (small || by_cpu) memmove(dst, src, n);
  } else if (small) {
    if (to_device && from_device) within_device(dst, src, n);
    else if (to_device) data_write(dst, src, n);
    else data_read(dst, src, n);
  } else {
    if (to_device) data_forget(dst, n);
    if (by_cpu) work_on(to_device ? NULL : dst, from_device ? NULL : src, n);
  }
}

static void fill_row(char *dst, unsigned value, unsigned width, size_t bytes, int small) {
  char *row = small ? malloc(bytes) : NULL;
  int device = mem_holds_no_data(dst);
  if (row == NULL && device) data_forget(dst, bytes);
  if (row == NULL) return;
  for (size_t x = 0; x < bytes; x += width) memcpy(row + x, &value, width);
  if (device)
    data_write(dst, row, bytes);
  else
    memcpy(dst, row, bytes);
  free(row);
}

/* Moves the data of a copy if it is small; of a large one the CPU that copies has its work, a device's engine none. */
void copy_move(const struct region *r, int by_cpu) {
  int small = region_bytes(r) <= cfg.data_limit;
  if (region_bytes(r) == 0) return;
  for (size_t y = 0; r->unit > 0 && y < r->height; y++)
    fill_row(r->dst + y * r->dst_pitch, r->value, r->unit, r->width, small);
  for (size_t z = 0; r->unit == 0 && z < r->depth; z++) {
    if (r->dst_pitch == r->width && r->src_pitch == r->width) {
      move_row(r->dst + z * r->dst_slice, r->src + z * r->src_slice, r->width * r->height, small, by_cpu);
      continue;
    }
    for (size_t y = 0; y < r->height; y++)
      move_row(r->dst + z * r->dst_slice + y * r->dst_pitch, r->src + z * r->src_slice + y * r->src_pitch, r->width,
               small, by_cpu);
  }
}

static int direction_of(const struct region *r, int asked, enum kind *kind) {
  int to = mem_is_device(r->dst), from = mem_is_device(r->src);
  int to_device_like = to || mem_is_pinned(r->dst), from_device_like = from || mem_is_pinned(r->src);
  if (asked == 1 && !to_device_like) return E_VALUE;
  if (asked == 2 && !from_device_like) return E_VALUE;
  if (asked == 3 && !(to_device_like && from_device_like)) return E_VALUE;
  if (asked == 1 || (asked == 4 && to && !from)) *kind = K_H2D;
  else if (asked == 2 || (asked == 4 && from && !to)) *kind = K_D2H;
  else if (asked == 3 || (asked == 4 && from && to)) *kind = K_D2D;
  else *kind = K_HOST;
  return OK;
}

static uint64_t duration_of(enum kind kind, size_t bytes) {
  double rate = kind == K_H2D || kind == K_D2H ? cfg.pcie : cfg.device_memory;
  return (uint64_t)((double)bytes / rate) + 1500;
}

static void put(struct stream *s, struct op op) {
  q_wait_room(s);
  pthread_mutex_lock(&sg_mu);
  q_put(s, op);
  pthread_mutex_unlock(&sg_mu);
}

static uint64_t thread_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* To the device from pageable memory: earlier work first, then the CPU stages; the rest is in flight. */
static int stage(struct stream *s, struct op op, unsigned how) {
  uint64_t begun, spent, cpu;
  q_wait_stream(s, how);
  begun = sg_now();
  cpu = thread_cpu();
  copy_move(&op.region, 1);
  op.region = (struct region){0};
  acc_staging(thread_cpu() - cpu);
  spent = sg_now() - begun;
  op.duration = op.duration > spent ? op.duration - spent : 1500;
  put(s, op);
  return OK;
}

int copy_run(struct region r, int asked, void *handle, int async) {
  struct stream *s;
  enum kind kind;
  int err = stream_get(handle, &s), pageable;
  size_t bytes = region_bytes(&r);
  if (err != OK) return err;
  if (bytes == 0) return OK;
  if (r.dst == NULL || r.src == NULL || asked < 0 || asked > 4) return E_VALUE;
  err = direction_of(&r, asked, &kind);
  if (err != OK) return err;
  struct op op = {.type = OP_WORK, .kind = kind, .bytes = bytes, .duration = duration_of(kind, bytes), .region = r};
  if (kind == K_D2D) op.use = use_of_copy;
  if (s->capture != NULL) {
    pthread_mutex_lock(&sg_mu);
    err = async ? capture_add(s, op) : E_CAPTURE;
    pthread_mutex_unlock(&sg_mu);
    return err;
  }
  unsigned how = sync_how(s->dev);
  pageable = (kind == K_H2D && !mem_is_pinned(r.src) && !mem_is_device(r.src)) ||
             (kind == K_D2H && !mem_is_pinned(r.dst) && !mem_is_device(r.dst));
  op.seen.pageable = pageable;
  if (kind == K_HOST) {
    q_wait_stream(s, how);
    copy_move(&r, 1);
    return OK;
  }
  if (kind == K_H2D && pageable) return stage(s, op, how);
  if (kind == K_D2H && pageable) {
    op.region = (struct region){0};
    put(s, op);
    if (!async || !cfg.d2h_in_sync) q_wait_stream(s, how);
    copy_move(&r, 1);
    return OK;
  }
  put(s, op); /* the device moves its data when its turn comes */
  return async || kind == K_D2D ? OK : q_wait_stream(s, how);
}

static struct region flat(void *dst, const void *src, size_t n) {
  return (struct region){dst, src, n, 1, 1, n, n, n, n};
}

/* Without a stream argument a copy runs in the default stream, the thread's own for _ptds. */
SG(cuMemcpy)(void *dst, const void *src, size_t n) { return copy_run(flat(dst, src, n), 4, NULL, 0); }
SG(cuMemcpyAsync)(void *dst, const void *src, size_t n, void *s) { return copy_run(flat(dst, src, n), 4, s, 1); }
SG(cuMemcpyHtoD_v2)(void *dst, const void *src, size_t n) { return copy_run(flat(dst, src, n), 1, NULL, 0); }
SG(cuMemcpyDtoH_v2)(void *dst, const void *src, size_t n) { return copy_run(flat(dst, src, n), 2, NULL, 0); }
SG(cuMemcpyDtoD_v2)(void *dst, const void *src, size_t n) { return copy_run(flat(dst, src, n), 3, NULL, 0); }
SG(cuMemcpyHtoDAsync_v2)(void *dst, const void *src, size_t n, void *s) { return copy_run(flat(dst, src, n), 1, s, 1); }
SG(cuMemcpyDtoHAsync_v2)(void *dst, const void *src, size_t n, void *s) { return copy_run(flat(dst, src, n), 2, s, 1); }
SG(cuMemcpyDtoDAsync_v2)(void *dst, const void *src, size_t n, void *s) { return copy_run(flat(dst, src, n), 3, s, 1); }
SG(cuMemcpyPeer)(void *dst, void *dc, const void *src, void *sc, size_t n) {
  (void)dc, (void)sc;
  return copy_run(flat(dst, src, n), 3, NULL, 0);
}
SG(cuMemcpyPeerAsync)(void *dst, void *dc, const void *src, void *sc, size_t n, void *s) {
  (void)dc, (void)sc;
  return copy_run(flat(dst, src, n), 3, s, 1);
}

/* A batch is its copies one after another, all asynchronous. */
static int batch(void **dst, void **src, size_t *sizes, size_t n, void *stream) {
  int err = OK;
  if (dst == NULL || src == NULL || sizes == NULL || (uintptr_t)stream <= 1) return E_VALUE;
  for (size_t i = 0; i < n && err == OK; i++) err = copy_run(flat(dst[i], src[i], sizes[i]), 4, stream, 1);
  return err;
}
SG(cuMemcpyBatchAsync)(void **dst, void **src, size_t *sizes, size_t n, void *attributes, size_t *indices, size_t count,
                       size_t *failed, void *stream) {
  (void)attributes, (void)indices, (void)count, (void)failed;
  return batch(dst, src, sizes, n, stream);
}
SG(cuMemcpyBatchAsync_v2)(void **dst, void **src, size_t *sizes, size_t n, void *attributes, size_t *indices,
                          size_t count, void *stream) {
  (void)attributes, (void)indices, (void)count;
  return batch(dst, src, sizes, n, stream);
}

struct copy_end {
  size_t x, y;
  unsigned type;
  char *host, *device;
  void *array;
  size_t pitch;
};
struct copy_2d {
  struct copy_end src, dst;
  size_t width, height;
};

static char *start_of(const struct copy_end *e) { return (e->type == 1 ? e->host : e->device) + e->y * e->pitch + e->x; }

static int kind_of(unsigned dst, unsigned src) {
  if (dst == 4 || src == 4) return 4;
  return src == 1 ? (dst == 1 ? 0 : 1) : (dst == 1 ? 2 : 3);
}

static int copy_2d(const struct copy_2d *c, void *stream, int async) {
  if (c == NULL) return E_VALUE;
  if (c->src.type == 3 || c->dst.type == 3) return E_UNSUPPORTED;
  size_t sp = c->src.pitch ? c->src.pitch : c->width, dp = c->dst.pitch ? c->dst.pitch : c->width;
  if (sp < c->width || dp < c->width) return E_VALUE;
  struct region r = {start_of(&c->dst), start_of(&c->src), c->width, c->height, 1, dp, sp, 0, 0};
  return copy_run(r, kind_of(c->dst.type, c->src.type), stream, async);
}

SG_ALIAS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2)
SG(cuMemcpy2D_v2)(const struct copy_2d *c) { return copy_2d(c, NULL, 0); }
SG(cuMemcpy2DAsync_v2)(const struct copy_2d *c, void *s) { return copy_2d(c, s, 1); }

struct copy_end_3d {
  size_t x, y, z, lod;
  unsigned type;
  char *host, *device;
  void *array, *reserved;
  size_t pitch, height;
};
struct copy_3d {
  struct copy_end_3d src, dst;
  size_t width, height, depth;
};

static int copy_3d(const struct copy_3d *c, void *stream, int async) {
  if (c == NULL) return E_VALUE;
  const struct copy_end_3d *s = &c->src, *d = &c->dst;
  if (s->type == 3 || d->type == 3) return E_UNSUPPORTED;
  size_t sp = s->pitch ? s->pitch : c->width, dp = d->pitch ? d->pitch : c->width;
  size_t ss = sp * (s->height ? s->height : c->height), ds = dp * (d->height ? d->height : c->height);
  char *from = (s->type == 1 ? s->host : s->device) + s->z * ss + s->y * sp + s->x;
  char *to = (d->type == 1 ? d->host : d->device) + d->z * ds + d->y * dp + d->x;
  if (sp < c->width || dp < c->width) return E_VALUE;
  struct region r = {to, from, c->width, c->height, c->depth, dp, sp, ds, ss};
  return copy_run(r, kind_of(d->type, s->type), stream, async);
}

SG(cuMemcpy3D_v2)(const struct copy_3d *c) { return copy_3d(c, NULL, 0); }
SG(cuMemcpy3DAsync_v2)(const struct copy_3d *c, void *s) { return copy_3d(c, s, 1); }

static int fill(char *dst, size_t pitch, unsigned value, unsigned width, size_t n, size_t rows, void *handle) {
  struct stream *s;
  size_t bytes = n * width * rows;
  int err = stream_get(handle, &s);
  if (err != OK || bytes == 0) return err;
  if (dst == NULL || (!mem_is_device(dst) && !mem_is_pinned(dst))) return E_VALUE;
  struct op op = {.type = OP_WORK, .kind = K_SET, .bytes = bytes, .duration = duration_of(K_SET, bytes)};
  op.use = use_of_fill;
  op.region = (struct region){.dst = dst, .width = n * width, .height = rows, .depth = 1, .dst_pitch = pitch,
                              .value = value, .unit = width};
  if (s->capture != NULL) {
    pthread_mutex_lock(&sg_mu);
    err = capture_add(s, op);
    pthread_mutex_unlock(&sg_mu);
    return err;
  }
  put(s, op);
  return OK;
}

SG(cuMemsetD8_v2)(char *p, unsigned char v, size_t n) { return fill(p, 0, v, 1, n, 1, NULL); }
SG(cuMemsetD16_v2)(char *p, unsigned short v, size_t n) { return fill(p, 0, v, 2, n, 1, NULL); }
SG(cuMemsetD32_v2)(char *p, unsigned v, size_t n) { return fill(p, 0, v, 4, n, 1, NULL); }
SG(cuMemsetD8Async)(char *p, unsigned char v, size_t n, void *s) { return fill(p, 0, v, 1, n, 1, s); }
SG(cuMemsetD16Async)(char *p, unsigned short v, size_t n, void *s) { return fill(p, 0, v, 2, n, 1, s); }
SG(cuMemsetD32Async)(char *p, unsigned v, size_t n, void *s) { return fill(p, 0, v, 4, n, 1, s); }
SG(cuMemsetD2D8_v2)(char *p, size_t pitch, unsigned char v, size_t w, size_t h) {
  return fill(p, pitch, v, 1, w, h, NULL);
}
SG(cuMemsetD2D8Async)(char *p, size_t pitch, unsigned char v, size_t w, size_t h, void *s) {
  return fill(p, pitch, v, 1, w, h, s);
}

/* Prefetches and hints cost a call and move nothing. */
SG(cuMemAdvise)(void) { return cu_enter(); }
SG_ALIAS(cuMemAdvise_v2, cuMemAdvise)
SG_ALIAS(cuMemPrefetchAsync, cuMemAdvise)
SG_ALIAS(cuMemPrefetchAsync_v2, cuMemAdvise)
