/* The file in which processes share what they do to the devices; readers trust nothing in it. */
#ifndef SG_STATE_H
#define SG_STATE_H

#include "sg_common.h"

#define STATE_MAGIC 0x32555047474d4953ull /* another one for each layout */
#define STATE_DEFAULT "/dev/shm/simgpu-state"
#define STATE_SLOTS 64
#define STATE_BUCKETS 1024
#define STATE_BUCKET_NS (10 * NS_PER_MS)
#define STATE_PAST_NS (600 * STATE_BUCKET_NS)   /* that a reader finds */
#define STATE_FUTURE_NS (400 * STATE_BUCKET_NS) /* that a writer knows: work that is queued */

enum { USE_SM, USE_OCCUPANCY, USE_TENSOR, USE_DRAM, USES };

/* Kernel time of one process on one device within one period of 10 ms. */
struct sg_bucket {
  uint32_t period; /* period number, truncated */
  uint32_t busy_ns;
  uint32_t used_ns[USES]; /* the time in which a part of the device was used, times how much of it */
};

struct sg_slot_device {
  uint64_t memory;     /* bytes held, the context's own included; 0 without a context */
  uint64_t tail_ns;    /* end of the last queued work */
  uint64_t solid_from; /* work beyond the range of the buckets, taken as solid */
  uint64_t solid_until;
  uint32_t solid_use[USES]; /* of that work, in thousandths */
  uint64_t sent_bytes; /* over PCIe, to and from the device */
  uint64_t received_bytes;
};

struct sg_slot {
  uint32_t pid; /* 0: free */
  uint32_t exited;
  uint64_t start; /* start time in ticks: tells a reused pid */
  uint64_t last_ns;
  uint64_t reserved[5];
  struct sg_slot_device device[SG_MAX_DEVICES];
};

struct sg_state {
  uint64_t magic;
  uint32_t devices;
  uint32_t memory_mib;
  uint32_t high_slot; /* slots ever used */
  uint32_t reserved;
  uint64_t nvlink[SG_MAX_DEVICES][2]; /* bytes sent and received over NVLink */
  uint32_t room[970];
  struct sg_slot slot[STATE_SLOTS];
  struct sg_bucket bucket[STATE_SLOTS][SG_MAX_DEVICES][STATE_BUCKETS];
};

const char *sg_state_path(void);
int sg_process_alive(uint32_t pid, uint64_t start);

#endif
