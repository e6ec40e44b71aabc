/* The data of small collectives: each rank brings its own, and makes of all of them what it gets. */
#include "nccl_core.h"

#include <stdlib.h>
#include <string.h>

enum type { INT8, UINT8, INT32, UINT32, INT64, UINT64, HALF, FLOAT, DOUBLE, BFLOAT16, TYPES = 12 };
enum reduction { SUM, PROD, MAX, MIN, AVG };

uint64_t data_size_of(int type) {
  static const unsigned char sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < TYPES ? sizes[type] : 0;
}

static int is_float(int type) { return type >= HALF && type <= BFLOAT16; }

static double float_at(const unsigned char *at, int type) {
  union {
    uint32_t bits;
    float value;
  } f;
  uint16_t half;
  double d;
  memcpy(&f, at, type == FLOAT ? 4 : 2);
  memcpy(&half, at, 2);
  switch (type) {
    case HALF: {
      _Float16 h;
      memcpy(&h, at, 2);
      return (double)h;
    }
    case BFLOAT16: f.bits = (uint32_t)half << 16; return (double)f.value;
    case FLOAT: return (double)f.value;
    default: memcpy(&d, at, 8); return d;
  }
}

static void put_float(unsigned char *at, int type, double d) {
  _Float16 h = (_Float16)d;
  union {
    float value;
    uint32_t bits;
  } f = {(float)d};
  uint16_t upper = (uint16_t)((f.bits + 0x7fff + (f.bits >> 16 & 1)) >> 16);
  const void *from = &d;
  if (type == HALF) from = &h;
  if (type == BFLOAT16) from = &upper;
  if (type == FLOAT) from = &f;
  memcpy(at, from, data_size_of(type));
}

static int64_t int_at(const unsigned char *at, int type) {
  int64_t value = 0;
  size_t n = data_size_of(type);
  memcpy(&value, at, n);
  if (type == INT8) value = (int8_t)value;
  if (type == INT32) value = (int32_t)value;
  return value;
}

static double with_float(double a, double b, int op) {
  switch (op) {
    case PROD: return a * b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default: return a + b;
  }
}

static int64_t with_int(int64_t a, int64_t b, int op, int type) {
  int greater = type == UINT64 ? (uint64_t)a > (uint64_t)b : a > b;
  switch (op) {
    case PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case MAX: return greater ? a : b;
    case MIN: return greater ? b : a;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

/* The i-th element of all ranks in one. */
static void reduce_one(unsigned char *out, const struct payload *p, int ranks, size_t i, const struct data *d) {
  size_t size = data_size_of(d->type);
  if (is_float(d->type)) {
    double sum = float_at(p->of[0] + i * size, d->type);
    for (int r = 1; r < ranks; r++) sum = with_float(sum, float_at(p->of[r] + i * size, d->type), d->op);
    put_float(out, d->type, d->op == AVG ? sum / ranks : sum);
  } else {
    int64_t sum = int_at(p->of[0] + i * size, d->type);
    for (int r = 1; r < ranks; r++) sum = with_int(sum, int_at(p->of[r] + i * size, d->type), d->op, d->type);
    if (d->op == AVG) sum /= ranks;
    memcpy(out, &sum, size);
  }
}

static struct payload *payload_of(const struct comm *c, uint64_t number) {
  return &shared->data[c->shared - shared->comm][number % DATA_RING];
}

/* Bytes of a rank; 0 where they are not moved. Floats of eight bits are not computed with. */
static size_t brought(const struct comm *c, const struct data *d) {
  size_t bytes = d->count * data_size_of(d->type) * (d->move == REDUCE_SCATTER ? (size_t)c->ranks : 1);
  if (d->move == MOVES_NOTHING || bytes > DATA_LIMIT) return 0;
  return d->type > BFLOAT16 && d->move != BROADCAST && d->move != ALL_GATHER ? 0 : bytes;
}

void data_bring(const struct comm *c, uint64_t number, const struct data *d) {
  size_t bytes = d->move == BROADCAST && d->root != c->rank ? 0 : brought(c, d);
  if (bytes > 0 && d->send != NULL) drv.private->read(payload_of(c, number)->of[c->rank], d->send, bytes);
}

void data_take(const struct comm *c, uint64_t number, const struct data *d) {
  const struct payload *p = payload_of(c, number);
  size_t bytes = brought(c, d), size = data_size_of(d->type), first = 0;
  unsigned char *out;
  if (bytes == 0 || d->recv == NULL) return;
  if (d->move == BROADCAST) {
    drv.private->write(d->recv, p->of[d->root], bytes);
  } else if (d->move == ALL_GATHER) {
    for (int r = 0; r < c->ranks; r++) drv.private->write((char *)d->recv + (size_t)r * bytes, p->of[r], bytes);
  } else if (d->move != REDUCE || d->root == c->rank) {
    if (d->move == REDUCE_SCATTER) first = (size_t)c->rank * d->count;
    out = malloc(d->count * size);
    for (size_t i = 0; out != NULL && i < d->count; i++) reduce_one(out + i * size, p, c->ranks, first + i, d);
    if (out != NULL) drv.private->write(d->recv, out, d->count * size);
    free(out);
  }
}
