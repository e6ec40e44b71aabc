/* Records of activities in the layout of each version: prefixes are the same, newer ones are longer.
 *
 * Source: cupti_activity.h of nvidia-cuda-cupti-cu11 11.8.87, -cu12 12.1.105 and 12.8.90, nvidia-cuda-cupti 13.5.25;
 * tests/test_cupti_layout.py compares the places with such a header where one is installed. */
#include "cupti_core.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  struct version version;
} versions[] = {
    {"11.8", {18, 200, 88, 88, 48, 40, 40}},
    {"12.1", {18, 208, 88, 88, 48, 40, 40}},
    {"12.8", {26, 208, 96, 88, 56, 40, 56}},
    {"13.5", {130500, 248, 112, 104, 56, 40, 56}},
};
const struct version *version;

void version_choose(void) {
  static const char *const usual = SG_MAJOR == 11 ? "11.8" : SG_MAJOR == 12 ? "12.8" : "13.5";
  const char *asked = getenv("SIMGPU_CUPTI");
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < sizeof versions / sizeof versions[0] && version == NULL; i++)
      if (strcmp(versions[i].name, round == 0 && asked != NULL ? asked : usual) == 0) version = &versions[i].version;
}

static uint32_t kind_of(const struct sg_seen *seen) {
  static const uint32_t kinds[] = {KIND_DRIVER, KIND_CONCURRENT_KERNEL, KIND_COPY, KIND_FILL, KIND_GRAPH};
  return kinds[seen->what];
}

size_t size_of_kind(uint32_t kind) {
  switch (kind) {
    case KIND_CONCURRENT_KERNEL:
      return version->kernel;
    case KIND_COPY:
      return version->copy;
    case KIND_FILL:
      return version->fill;
    case KIND_GRAPH:
      return version->graph;
    case KIND_DRIVER:
      return version->call;
    default:
      return 0;
  }
}

size_t record_size(const struct sg_seen *seen) { return size_of_kind(kind_of(seen)); }

#define PUT(type, place, value) \
  do { \
    type put = (type)(value); \
    memcpy(at + (place), &put, sizeof put); \
  } while (0)

static void write_kernel(unsigned char *at, const struct sg_seen *seen, uint64_t start, uint64_t end) {
  PUT(uint16_t, 6, 32); /* registers a thread */
  PUT(uint64_t, 16, start);
  PUT(uint64_t, 24, end);
  PUT(uint64_t, 32, end);
  PUT(uint32_t, 40, seen->device);
  PUT(uint32_t, 44, 1); /* context */
  PUT(uint32_t, 48, seen->stream);
  for (int i = 0; i < 3; i++) {
    PUT(int32_t, 52 + 4 * i, seen->grid[i]);
    PUT(int32_t, 64 + 4 * i, seen->block[i]);
  }
  PUT(int32_t, 80, seen->shared);
  PUT(uint32_t, 92, seen->correlation);
  PUT(const char *, 104, seen->name);
  PUT(uint64_t, 144, seen->node);
  PUT(uint32_t, 156, seen->graph);
}

static void write_moved(unsigned char *at, const struct sg_seen *seen, uint64_t start, uint64_t end) {
  if (seen->what == SEEN_COPY) {
    PUT(uint8_t, 4, seen->copy_kind);
    PUT(uint8_t, 5, seen->source);
    PUT(uint8_t, 6, seen->target);
  }
  PUT(uint64_t, 8, seen->bytes);
  PUT(uint64_t, 16, start);
  PUT(uint64_t, 24, end);
  PUT(uint32_t, 32, seen->device);
  PUT(uint32_t, 36, 1);
  PUT(uint32_t, 40, seen->stream);
  PUT(uint32_t, 44, seen->correlation);
  PUT(uint64_t, 64, seen->node);
  PUT(uint32_t, 72, seen->graph);
}

static void write_graph(unsigned char *at, const struct sg_seen *seen, uint64_t start, uint64_t end) {
  PUT(uint32_t, 4, seen->correlation);
  PUT(uint64_t, 8, start);
  PUT(uint64_t, 16, end);
  PUT(uint32_t, 24, seen->device);
  PUT(uint32_t, 28, seen->graph);
  PUT(uint32_t, 32, 1);
  PUT(uint32_t, 36, seen->stream);
}

static void write_call(unsigned char *at, const struct sg_seen *seen, uint64_t start, uint64_t end) {
  PUT(uint32_t, 4, seen->cbid);
  PUT(uint64_t, 8, start);
  PUT(uint64_t, 16, end);
  PUT(uint32_t, 28, seen->thread);
  PUT(uint32_t, 32, seen->correlation);
}

void record_write(unsigned char *at, const struct sg_seen *seen, int64_t shift) {
  uint64_t start = seen->start + (uint64_t)shift, end = seen->end + (uint64_t)shift;
  memset(at, 0, record_size(seen));
  PUT(uint32_t, 0, kind_of(seen));
  if (seen->what == SEEN_KERNEL) write_kernel(at, seen, start, end);
  else if (seen->what == SEEN_GRAPH) write_graph(at, seen, start, end);
  else if (seen->what == SEEN_CALL) write_call(at, seen, start, end);
  else write_moved(at, seen, start, end);
}
