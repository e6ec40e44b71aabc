/* What the devices did, from the shared state: in the last window, or in any stretch of the last seconds. */
#include "nvml_core.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The state is read with pread, never mapped: whoever can truncate it must not be able to kill the reader. */
static int open_state(void) {
  struct stat st;
  int fd = open(sg_state_path(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct sg_state))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static int read_at(int fd, void *to, size_t n, size_t offset) {
  return pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

/* The head up to the slots; the numbers in it are bounded before use. */
static int read_head(int fd, uint32_t *devices, uint32_t *mib, uint32_t *high) {
  struct {
    uint64_t magic;
    uint32_t devices, mib, high;
  } head;
  if (!read_at(fd, &head, sizeof head, 0) || head.magic != STATE_MAGIC) return 0;
  *devices = head.devices > SG_MAX_DEVICES ? SG_MAX_DEVICES : head.devices;
  *mib = head.mib;
  *high = head.high > STATE_SLOTS ? STATE_SLOTS : head.high;
  return 1;
}

static uint64_t setting(const char *name, uint64_t fallback, int want_devices) {
  uint32_t devices, mib, high;
  uint64_t value = sg_env_u64(name, UINT64_MAX);
  int fd;
  if (value != UINT64_MAX) return value;
  fd = open_state();
  if (fd >= 0) {
    if (read_head(fd, &devices, &mib, &high) && devices > 0) fallback = want_devices ? devices : mib;
    close(fd);
  }
  return fallback;
}

int nvml_device_count(void) {
  uint64_t n = setting("SIMGPU_DEVICES", 1, 1);
  return n > SG_MAX_DEVICES ? SG_MAX_DEVICES : (int)n;
}

uint64_t nvml_memory_total(void) { return setting("SIMGPU_MEMORY_MIB", 81920, 0) << 20; }

/* What a process did in periods of 10 ms; sums of all processes go to the table by period. */
struct period {
  uint32_t busy_ns, used_ns[USES];
};

static uint32_t bounded(uint64_t ns) { return ns > STATE_BUCKET_NS ? STATE_BUCKET_NS : (uint32_t)ns; }

static struct period period_of(const struct sg_bucket *at, const struct sg_slot_device *d, uint64_t number) {
  uint64_t start = number * STATE_BUCKET_NS, end = start + STATE_BUCKET_NS;
  int solid = d->solid_from < end && d->solid_until > start;
  struct period p = {0};
  if (solid) p.busy_ns = STATE_BUCKET_NS;
  for (int i = 0; i < USES && solid; i++) p.used_ns[i] = bounded((uint64_t)d->solid_use[i] * STATE_BUCKET_NS / 1000);
  if (solid || at->period != (uint32_t)number) return p;
  p.busy_ns = bounded(at->busy_ns);
  for (int i = 0; i < USES; i++) p.used_ns[i] = bounded(at->used_ns[i]);
  return p;
}

static void add(struct period *sum, const struct period *p) {
  sum->busy_ns = bounded((uint64_t)sum->busy_ns + p->busy_ns);
  for (int i = 0; i < USES; i++) sum->used_ns[i] = bounded((uint64_t)sum->used_ns[i] + p->used_ns[i]);
}

static void total(const struct period *of, uint64_t count, uint64_t *busy_ns, uint64_t used_ns[USES]) {
  for (uint64_t p = 0; p < count; p++) {
    *busy_ns += of[p].busy_ns;
    for (int i = 0; i < USES; i++) used_ns[i] += of[p].used_ns[i];
  }
}

/* Reads a process's periods from the first to before the last; the table is a ring. */
static int read_periods(int fd, size_t offset, uint64_t first, uint64_t last, struct sg_bucket *out) {
  for (uint64_t at = first; at < last;) {
    uint64_t in_ring = at % STATE_BUCKETS, n = last - at;
    if (n > STATE_BUCKETS - in_ring) n = STATE_BUCKETS - in_ring;
    if (!read_at(fd, out + (at - first), n * sizeof *out, offset + in_ring * sizeof *out)) return 0;
    at += n;
  }
  return 1;
}

static void add_process(int fd, uint32_t slot_number, int dev, struct period *all, struct usage *out) {
  static __thread struct sg_bucket buckets[STATE_BUCKETS];
  static __thread struct period own[STATE_BUCKETS];
  struct sg_slot slot;
  uint64_t first = out->from / STATE_BUCKET_NS, last = out->to / STATE_BUCKET_NS;
  size_t table = (slot_number * SG_MAX_DEVICES + (size_t)dev) * STATE_BUCKETS * sizeof buckets[0];
  if (!read_at(fd, &slot, sizeof slot, offsetof(struct sg_state, slot) + slot_number * sizeof slot)) return;
  const struct sg_slot_device *d = &slot.device[dev];
  if (slot.pid == 0 || d->memory == 0) return;
  int alive = !slot.exited && sg_process_alive(slot.pid, slot.start);
  /* what a dead process had queued does not run */
  if (!alive && slot.last_ns / STATE_BUCKET_NS < last) last = slot.last_ns / STATE_BUCKET_NS;
  if (last < first) last = first;
  if (!read_periods(fd, offsetof(struct sg_state, bucket) + table, first, last, buckets)) return;
  struct user user = {.pid = slot.pid, .memory = d->memory, .alive = alive};
  for (uint64_t p = first; p < last; p++) {
    own[p - first] = period_of(&buckets[p - first], d, p);
    add(&all[p - first], &own[p - first]);
  }
  total(own, last - first, &user.busy_ns, user.used_ns);
  out->sent += d->sent_bytes;
  out->received += d->received_bytes;
  if (alive) out->memory += d->memory;
  if (alive || user.busy_ns > 0) out->user[out->users++] = user;
}

/* A stretch of whole periods, which the ring still has. */
void nvml_usage_in(int dev, uint64_t from, uint64_t to, struct usage *out) {
  static __thread struct period all[STATE_BUCKETS];
  uint32_t devices, mib, high;
  int fd = open_state();
  memset(out, 0, sizeof *out);
  from = from / STATE_BUCKET_NS * STATE_BUCKET_NS;
  to = to / STATE_BUCKET_NS * STATE_BUCKET_NS;
  if (to <= from) to = from + STATE_BUCKET_NS;
  if (to - from > STATE_PAST_NS) from = to - STATE_PAST_NS;
  out->from = from;
  out->to = to;
  if (fd < 0) return;
  memset(all, 0, sizeof all);
  if (!read_head(fd, &devices, &mib, &high)) high = 0;
  for (uint32_t i = 0; i < high; i++) add_process(fd, i, dev, all, out);
  close(fd);
  total(all, (to - from) / STATE_BUCKET_NS, &out->busy_ns, out->used_ns);
}

/* A sixth of a second to a second, by the product, says NVML's documentation. */
uint64_t nvml_window(void) {
  uint64_t window = sg_env_u64("SIMGPU_NVML_WINDOW_MS", 167) * NS_PER_MS;
  return window < STATE_BUCKET_NS || window > NS_PER_S ? 167 * NS_PER_MS : window;
}

/* Windows follow one another; a figure is that of the last one that is over, until the next is. */
void nvml_usage(int dev, struct usage *out) {
  uint64_t window = nvml_window(), end = sg_now() / window * window;
  nvml_usage_in(dev, end - window, end, out);
}

unsigned nvml_share(uint64_t ns, const struct usage *u) {
  uint64_t window = u->to - u->from;
  unsigned percent = (unsigned)((ns * 100 + window / 2) / window);
  return percent > 100 ? 100 : percent;
}

unsigned nvml_percent(int dev) {
  struct usage u;
  nvml_usage(dev, &u);
  return nvml_share(u.busy_ns, &u);
}

struct traffic nvml_traffic(int dev) {
  struct usage u;
  uint64_t link[2] = {0, 0};
  int fd = open_state();
  nvml_usage(dev, &u);
  if (fd >= 0) {
    if (!read_at(fd, link, sizeof link, offsetof(struct sg_state, nvlink) + (size_t)dev * sizeof link))
      link[0] = link[1] = 0;
    close(fd);
  }
  return (struct traffic){u.sent, u.received, link[0], link[1]};
}
