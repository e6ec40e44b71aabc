/* This process's slot in the shared state. */
#include "cu_core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sg_state *state;
static struct sg_slot *own;
static unsigned own_index;

/* In a sticky directory root may not open another user's file with O_CREAT: plain open comes first. */
static int open_state(void) {
  const char *path = sg_state_path();
  struct stat st;
  int fd, tries;
  for (tries = 0; tries < 10; tries++) {
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) continue;
    fchmod(fd, 0666);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (st.st_size == (off_t)sizeof(struct sg_state) || ftruncate(fd, sizeof(struct sg_state)) == 0))
      return fd;
    close(fd);
  }
  return -1;
}

static int take(unsigned i, uint32_t expected) {
  struct sg_slot *slot = &state->slot[i];
  uint32_t pid = (uint32_t)getpid();
  if (!__atomic_compare_exchange_n(&slot->pid, &expected, pid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  slot->exited = 0;
  slot->last_ns = sg_now();
  memset(slot->device, 0, sizeof slot->device);
  memset(state->bucket[i], 0, sizeof state->bucket[i]);
  __atomic_store_n(&slot->start, sg_start_ticks((int)pid), __ATOMIC_RELEASE);
  own = slot;
  own_index = i;
  for (uint32_t high = state->high_slot; high < i + 1;)
    if (__atomic_compare_exchange_n(&state->high_slot, &high, i + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
  return 1;
}

/* Free, of a program that this process was before exec, or of a process long gone. */
static int can_have(const struct sg_slot *slot, uint64_t now, int at_once) {
  if (slot->pid == 0 || slot->pid == (uint32_t)getpid()) return 1;
  if (!slot->exited && sg_process_alive(slot->pid, slot->start)) return 0;
  return at_once || slot->last_ns > now || now - slot->last_ns > 2 * NS_PER_S;
}

/* The dead keep their history for a while, for NVML's window, unless the room is needed. */
static void claim(void) {
  uint64_t now = sg_now();
  for (int at_once = 0; at_once < 2; at_once++)
    for (unsigned i = 0; i < STATE_SLOTS; i++)
      if (can_have(&state->slot[i], now, at_once) && take(i, state->slot[i].pid)) return;
}

void st_open(void) {
  static struct sg_state *alone;
  int fd = open_state();
  if (fd >= 0) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  if (fd < 0 || state == MAP_FAILED) {
    state = alone = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alone == MAP_FAILED) abort();
  }
  if (state->magic != 0 && state->magic != STATE_MAGIC) memset(state, 0, sizeof *state); /* left by another version */
  state->magic = STATE_MAGIC;
  state->devices = (uint32_t)cfg.devices;
  state->memory_mib = (uint32_t)(cfg.memory >> 20);
  if (state->high_slot > STATE_SLOTS) state->high_slot = STATE_SLOTS;
  claim();
}

/* Bytes that other live processes hold on a device. */
uint64_t st_memory_of_others(int dev) {
  uint64_t sum = 0;
  unsigned high = state->high_slot < STATE_SLOTS ? state->high_slot : STATE_SLOTS;
  for (unsigned i = 0; i < high; i++) {
    struct sg_slot *slot = &state->slot[i];
    if (slot == own || slot->pid == 0 || slot->device[cfg.visible[dev]].memory == 0 || slot->exited) continue;
    if (sg_process_alive(slot->pid, slot->start)) sum += slot->device[cfg.visible[dev]].memory;
  }
  return sum;
}

void st_set_memory(int dev, uint64_t bytes) {
  if (own != NULL) own->device[cfg.visible[dev]].memory = bytes;
}

/* How many processes have work on the device now: they take turns, so each runs that many times slower. */
unsigned st_sharers(int dev, uint64_t now) {
  unsigned n = 1, high = state->high_slot < STATE_SLOTS ? state->high_slot : STATE_SLOTS;
  for (unsigned i = 0; i < high; i++) {
    struct sg_slot *slot = &state->slot[i];
    if (slot == own || slot->device[cfg.visible[dev]].tail_ns <= now || slot->exited) continue;
    if (slot->last_ns + 100 * NS_PER_MS > now || sg_process_alive(slot->pid, slot->start)) n++;
  }
  return n;
}

void st_tail(int dev, uint64_t now, uint64_t end) {
  if (own == NULL) return;
  own->last_ns = now;
  if (end > own->device[cfg.visible[dev]].tail_ns) own->device[cfg.visible[dev]].tail_ns = end;
}

static struct sg_bucket *bucket_of(int dev, uint64_t at) {
  uint64_t period = at / STATE_BUCKET_NS;
  struct sg_bucket *b = &state->bucket[own_index][cfg.visible[dev]][period % STATE_BUCKETS];
  if (b->period != (uint32_t)period) *b = (struct sg_bucket){.period = (uint32_t)period};
  return b;
}

static uint64_t end_of_period(uint64_t at, uint64_t end) {
  uint64_t next = (at / STATE_BUCKET_NS + 1) * STATE_BUCKET_NS;
  return next < end ? next : end;
}

/* Adds kernel time to the buckets that NVML reads. */
void st_busy(int dev, uint64_t now, uint64_t start, uint64_t end) {
  uint64_t limit = now + STATE_FUTURE_NS;
  if (own == NULL) return;
  if (end > limit) {
    struct sg_slot_device *d = &own->device[cfg.visible[dev]];
    if (d->solid_until < now) d->solid_from = start > limit ? start : limit;
    if (d->solid_until < end) d->solid_until = end;
    end = limit;
  }
  while (start < end) {
    struct sg_bucket *b = bucket_of(dev, start);
    uint64_t next = end_of_period(start, end);
    b->busy_ns += (uint32_t)(next - start);
    start = next;
  }
}

/* Adds what of the device was used in that time; of several kernels at once NVML sees at most all of it. */
void st_use(int dev, uint64_t now, uint64_t start, uint64_t end, struct sg_use use) {
  uint64_t oldest = now - STATE_PAST_NS, latest = now + STATE_FUTURE_NS;
  const uint16_t share[USES] = {use.sm, use.occupancy, use.tensor, use.dram};
  if (own == NULL) return;
  if (start < oldest) start = oldest;
  for (int i = 0; i < USES && end > latest; i++) own->device[cfg.visible[dev]].solid_use[i] = share[i];
  if (end > latest) end = latest;
  while (start < end) {
    struct sg_bucket *b = bucket_of(dev, start);
    uint64_t next = end_of_period(start, end);
    for (int i = 0; i < USES; i++) b->used_ns[i] += (uint32_t)((next - start) * share[i] / 1000);
    start = next;
  }
}

void st_pcie(int dev, uint64_t to_device, uint64_t from_device) {
  if (own == NULL) return;
  own->device[cfg.visible[dev]].received_bytes += to_device;
  own->device[cfg.visible[dev]].sent_bytes += from_device;
}

/* The device's own counters, as those of the real one are: no process's. */
void st_nvlink(int dev, uint64_t sent, uint64_t received) {
  if (state == NULL) return;
  __atomic_add_fetch(&state->nvlink[cfg.visible[dev]][0], sent, __ATOMIC_RELAXED);
  __atomic_add_fetch(&state->nvlink[cfg.visible[dev]][1], received, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void leave(void) {
  if (own == NULL || own->pid != (uint32_t)getpid()) return;
  own->last_ns = sg_now();
  own->exited = 1;
}
