/* What device memory holds: what small copies, fills and collectives put there, and else zero.
 *
 * Kernels compute nothing, and what they would have written is not known. So all memory reads as zero but for what
 * was put there: until the next kernel any part of it, and after that only what is read as it was written, from its
 * first byte to its last. A scalar is gone with the next kernel: most scalars that a program reads are results. */
#include "cu_core.h"

#include <string.h>

#define MOST 32768
#define SCALAR 16 /* bytes */

struct piece {
  uint64_t start, end, kernels; /* queued before it was written */
  int whole;                    /* nothing of it was overwritten */
};

static struct piece pieces[MOST]; /* in order, without overlaps */
static size_t count;
static uint64_t kernels;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* With sg_mu held. */
void data_kernel(void) { __atomic_store_n(&kernels, kernels + 1, __ATOMIC_RELAXED); }

/* The first piece that ends behind an address. */
static size_t first_behind(uint64_t at) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (pieces[mid].end <= at)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static void replace(size_t at, size_t old, const struct piece *by, size_t n) {
  memmove(pieces + at + n, pieces + at + old, (count - at - old) * sizeof pieces[0]);
  memcpy(pieces + at, by, n * sizeof pieces[0]);
  count = count - old + n;
}

/* Keeps what may be read in parts; with all of that too many, nothing. */
static void make_room(void) {
  size_t n = 0;
  if (count + 2 <= MOST) return;
  for (size_t i = 0; i < count; i++)
    if (pieces[i].kernels == kernels) pieces[n++] = pieces[i];
  count = n + 2 <= MOST ? n : 0;
}

/* Puts a piece, or nothing, where others may lie: what sticks out of those stays, in part. */
static void cut(uint64_t start, uint64_t end, const struct piece *put) {
  struct piece left[3];
  size_t i, j, n = 0;
  make_room();
  i = j = first_behind(start);
  if (i < count && pieces[i].start < start) {
    left[n] = pieces[i];
    left[n].end = start;
    left[n++].whole = 0;
  }
  if (put != NULL) left[n++] = *put;
  while (j < count && pieces[j].start < end) j++;
  if (j > i && pieces[j - 1].end > end) {
    left[n] = pieces[j - 1];
    left[n].start = end;
    left[n++].whole = 0;
  }
  replace(i, j - i, left, n);
}

void data_forget(const void *at, size_t n) {
  pthread_mutex_lock(&mu);
  cut((uint64_t)at, (uint64_t)at + n, NULL);
  pthread_mutex_unlock(&mu);
}

void data_write(void *to, const void *from, size_t n) {
  struct piece p = {(uint64_t)to, (uint64_t)to + n, __atomic_load_n(&kernels, __ATOMIC_RELAXED), 1};
  pthread_mutex_lock(&mu);
  cut(p.start, p.end, &p);
  memcpy(to, from, n);
  pthread_mutex_unlock(&mu);
}

int data_read(void *to, const void *from, size_t n) {
  uint64_t start = (uint64_t)from, end = start + n, now = __atomic_load_n(&kernels, __ATOMIC_RELAXED);
  int any = 0;
  memset(to, 0, n);
  pthread_mutex_lock(&mu);
  for (size_t i = first_behind(start); i < count && pieces[i].start < end; i++) {
    const struct piece *p = &pieces[i];
    int as_written = p->whole && p->start == start && p->end == end && n > SCALAR;
    if (p->kernels != now && !as_written) continue;
    uint64_t low = p->start > start ? p->start : start, high = p->end < end ? p->end : end;
    memcpy((char *)to + (low - start), (const char *)low, high - low);
    any = 1;
  }
  pthread_mutex_unlock(&mu);
  return any;
}
