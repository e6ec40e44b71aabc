/* What the simulated runtime and NCCL ask of the simulated driver beyond the real interface.
 *
 * cuGetExportTable(&table, SG_PRIVATE_ID) returns it, as the real driver has such tables. A test may use it too:
 * `launch` is a launch that passes no exported name.
 *
 * A library that knows how long its kernels last, as a simulated cuBLAS does, names a kernel with cuModuleGetFunction
 * and says what the next launch of the thread is; the launch itself goes through the exported name, so that probes
 * count it as they count the real one's. It holds for one launch, also for one that fails or that is captured:
 *
 *     struct sg_work work = sg_gemm(SG_TF32, m, n, k, batch);
 *     table->next_work(&work);
 *     cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, NULL, NULL); */
#ifndef SG_PRIVATE_H
#define SG_PRIVATE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SG_PRIVATE_ID "gputop-simgpu-01"

/* Work that ends when others have come as far: a rank's part of a collective. Called with the driver's lock held. */
struct sg_joint {
  void (*arrive)(struct sg_joint *, uint64_t ready);
  int (*settled)(struct sg_joint *, uint64_t *begin, uint64_t *end);
  void (*finished)(struct sg_joint *);
  uint64_t sent, received; /* bytes over NVLink, of this rank */
};

/* What a kernel uses while it runs, in thousandths of what the device has: multiprocessors with work on them, places
 * for warps that are taken, tensor cores at work, bandwidth of the device's memory. */
struct sg_use {
  uint16_t sm, occupancy, tensor, dram;
};

/* A kernel whose duration somebody knows better than a rule by its name does. */
struct sg_work {
  uint64_t duration_ns;
  struct sg_use use;
};

/* What the simulated CUPTI is told: a call that gave the device something, or what the device did then. */
enum { SEEN_CALL, SEEN_KERNEL, SEEN_COPY, SEEN_FILL, SEEN_GRAPH };
struct sg_seen {
  int what, copy_kind, source, target; /* of a copy: CUPTI's numbers of its direction and of both kinds of memory */
  unsigned cbid, thread, device, graph;
  uint64_t stream, start, end, correlation, bytes, node; /* node: of a graph, 0: not in one */
  const char *name;
  unsigned grid[3], block[3], shared;
};
typedef void (*sg_observer)(const struct sg_seen *); /* called with the driver's lock held; NULL: nobody */

struct sg_private {
  size_t size;
  void (*count)(uint32_t offset);
  uint64_t *(*cell)(void);
  int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                void *stream, void **arguments, void **extra);
  void (*next_launch)(struct sg_joint *); /* the calling thread's next launch is this, not a kernel */
  void (*poll)(void);                     /* a joint may have settled */
  void (*next_work)(const struct sg_work *); /* the calling thread's next launch lasts and uses this */
  void (*read)(void *to, const void *from, size_t n); /* what memory holds, the device's or the host's */
  void (*write)(void *to, const void *from, size_t n);
  void (*observe)(sg_observer);
};

static inline void sg_uuid(unsigned char *uuid, int device) {
  memcpy(uuid, "simgpu\x40\x00\x80\x00\x00\x00\x00\x00\x00", 15);
  uuid[15] = (unsigned char)device;
}

#endif
