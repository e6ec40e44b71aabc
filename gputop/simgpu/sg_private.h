/* What the simulated runtime asks of the simulated driver beyond the real interface. */
#ifndef SG_PRIVATE_H
#define SG_PRIVATE_H

#include <stdint.h>
#include <string.h>

#define SG_PRIVATE_ID "gputop-simgpu-01"

struct sg_private {
  size_t size;
  void (*count)(uint32_t offset);
  uint64_t *(*cell)(void);
};

static inline void sg_uuid(unsigned char *uuid, int device) {
  memcpy(uuid, "simgpu\x40\x00\x80\x00\x00\x00\x00\x00\x00", 15);
  uuid[15] = (unsigned char)device;
}

#endif
