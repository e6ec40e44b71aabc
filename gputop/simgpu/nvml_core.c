/* Initialisation, the gate before every function, and reading the shared state. */
#include "nvml_core.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct handle nvml_handles[SG_MAX_DEVICES] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}, {4, -1}, {5, -1}, {6, -1}, {7, -1}};
static int initialised;

int nvml_index(const void *handle) {
  const struct handle *h = handle;
  return h >= nvml_handles && h < nvml_handles + SG_MAX_DEVICES ? (int)(h - nvml_handles) : -1;
}

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

static uint64_t busy_in(const struct sg_bucket *b, const struct sg_slot_device *d, uint64_t from, uint64_t to,
                        uint32_t *by_period) {
  uint64_t sum = 0, first = from / STATE_BUCKET_NS, last = to / STATE_BUCKET_NS;
  for (uint64_t p = first; p < last; p++) {
    const struct sg_bucket *at = &b[p % STATE_BUCKETS];
    uint64_t start = p * STATE_BUCKET_NS, end = start + STATE_BUCKET_NS, busy = 0;
    if (at->period == (uint32_t)p) busy = at->busy_ns;
    if (d->solid_from < end && d->solid_until > start) busy = STATE_BUCKET_NS;
    if (busy > STATE_BUCKET_NS) busy = STATE_BUCKET_NS;
    by_period[p - first] += (uint32_t)busy;
    sum += busy;
  }
  return sum;
}

static void usage_in(int dev, uint64_t from, uint64_t to, struct usage *out) {
  static __thread struct sg_bucket buckets[STATE_BUCKETS];
  static __thread uint32_t by_period[STATE_BUCKETS];
  uint32_t devices, mib, high;
  int fd = open_state();
  memset(out, 0, sizeof *out);
  out->window_ns = to - from;
  if (fd < 0) return;
  memset(by_period, 0, sizeof by_period);
  if (!read_head(fd, &devices, &mib, &high)) high = 0;
  for (uint32_t i = 0; i < high; i++) {
    struct sg_slot slot;
    if (!read_at(fd, &slot, sizeof slot, offsetof(struct sg_state, slot) + i * sizeof slot)) break;
    struct sg_slot_device *d = &slot.device[dev];
    if (slot.pid == 0 || d->memory == 0) continue;
    size_t offset = offsetof(struct sg_state, bucket) + (i * SG_MAX_DEVICES + (size_t)dev) * sizeof buckets;
    if (!read_at(fd, buckets, sizeof buckets, offset)) break;
    int alive = !slot.exited && sg_process_alive(slot.pid, slot.start);
    /* what a dead process had queued does not run */
    uint64_t end = alive || slot.last_ns > to ? to : slot.last_ns;
    uint64_t busy = end > from ? busy_in(buckets, d, from, end, by_period) : 0;
    out->sent += d->sent_bytes;
    out->received += d->received_bytes;
    if (alive) out->memory += d->memory;
    if (alive || busy > 0) out->user[out->users++] = (struct user){slot.pid, d->memory, busy, alive};
  }
  close(fd);
  for (uint64_t p = 0; p < (to - from) / STATE_BUCKET_NS; p++)
    out->busy_ns += by_period[p] > STATE_BUCKET_NS ? STATE_BUCKET_NS : by_period[p];
}

void nvml_usage(int dev, struct usage *out) {
  uint64_t window = sg_env_u64("SIMGPU_NVML_WINDOW_MS", 500) * NS_PER_MS;
  uint64_t to = sg_now() / STATE_BUCKET_NS * STATE_BUCKET_NS;
  if (window < STATE_BUCKET_NS || window > 100 * STATE_BUCKET_NS) window = 50 * STATE_BUCKET_NS;
  usage_in(dev, to - window, to, out);
}

double nvml_busy(int dev, uint64_t from, uint64_t to) {
  struct usage u;
  from = from / STATE_BUCKET_NS * STATE_BUCKET_NS;
  to = to / STATE_BUCKET_NS * STATE_BUCKET_NS;
  if (to <= from) to = from + STATE_BUCKET_NS;
  if (to - from > 100 * STATE_BUCKET_NS) from = to - 100 * STATE_BUCKET_NS; /* older ones are overwritten */
  usage_in(dev, from, to, &u);
  return (double)u.busy_ns / (double)u.window_ns;
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

struct faults nvml_state_of(int dev) {
  struct faults f;
  sg_faults("", dev, &f);
  return f;
}

int nvml_text(char *out, unsigned size, const char *value) {
  if (out == NULL) return N_ARGUMENT;
  if (strlen(value) + 1 > size) return N_SIZE;
  strcpy(out, value);
  return N_OK;
}

int nvml_number(unsigned *out, unsigned value) {
  if (out == NULL) return N_ARGUMENT;
  *out = value;
  return N_OK;
}

unsigned nvml_percent(int dev) {
  struct usage u;
  nvml_usage(dev, &u);
  return (unsigned)((u.busy_ns * 100 + u.window_ns / 2) / u.window_ns);
}

static int is_free(const char *name) {
  return strncmp(name, "nvmlInit", 8) == 0 || strcmp(name, "nvmlErrorString") == 0;
}

/* Every function passes here first: counted, delayed or refused. Its own first argument comes along. */
int sg_gate(uint32_t index, const void *first);
int sg_gate(uint32_t index, const void *first) {
  const struct sg_export *e = &sg_exports[index];
  const struct handle *instance = nvml_instance(first);
  struct faults f;
  int dev = instance != NULL ? instance->index : nvml_index(first);
  sg_count(e->offset);
  sg_faults(e->name, dev, &f);
  if (dev >= 0) nvml_look(dev, &f);
  if (f.hang_ms > 0) {
    struct timespec t = {f.hang_ms / 1000, (long)(f.hang_ms % 1000) * 1000000};
    nanosleep(&t, NULL);
  }
  if (!initialised && !is_free(e->name)) return N_UNINITIALIZED;
  return f.error;
}

SG_ALIAS(nvmlInit, nvmlInit_v2)
SG_ALIAS(nvmlInitWithFlags, nvmlInit_v2)
SG(nvmlInit_v2)(void) {
  __atomic_add_fetch(&initialised, 1, __ATOMIC_RELAXED);
  return N_OK;
}
SG(nvmlShutdown)(void) {
  __atomic_sub_fetch(&initialised, 1, __ATOMIC_RELAXED);
  return N_OK;
}

#define SG_OTHER(type, name) type impl_##name
SG_OTHER(const char *, nvmlErrorString)(int code) {
  switch (code) {
    case N_OK: return "The operation was successful";
    case N_UNINITIALIZED: return "Uninitialized";
    case N_ARGUMENT: return "Invalid Argument";
    case N_UNSUPPORTED: return "Not Supported";
    case N_PERMISSION: return "Insufficient Permissions";
    case N_NOT_FOUND: return "Not Found";
    case N_SIZE: return "Insufficient Size";
    case N_LOST: return "GPU is lost";
    default: return "Unknown Error";
  }
}
