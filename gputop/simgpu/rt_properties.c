/* cudaDeviceProp: its layout changed with 13.0, when clock rates and others went. */
#include "rt_core.h"

#include <string.h>

struct at {
  short v12, v13; /* byte offsets; -1: not there */
  char wide;      /* a size_t */
  long long value;
};

static const struct at fields[] = {
    {296, 296, 1, 49152},  {304, 304, 0, 65536}, {308, 308, 0, 32},          {312, 312, 1, 2147483647},
    {320, 320, 0, 1024},   {324, 324, 0, 1024},  {328, 328, 0, 1024},        {332, 332, 0, 64},
    {336, 336, 0, 2147483647}, {340, 340, 0, 65535}, {344, 344, 0, 65535},   {348, -1, 0, 1755000},
    {352, 352, 1, 65536},  {360, 360, 0, SG_MAJOR_CC}, {364, 364, 0, SG_MINOR_CC}, {368, 368, 1, 512},
    {388, 384, 0, SG_SM_COUNT}, {400, 392, 0, 1}, {576, 560, 0, 1},          {600, 584, 0, 3},
    {604, 588, 0, 1},      {612, 592, 0, 5120},  {616, 596, 0, 52428800},    {624, 604, 0, 2048},
    {628, 608, 0, 1},      {640, 624, 1, 233472}, {648, 632, 0, 65536},      {652, 636, 0, 1},
    {676, 656, 0, 1},      {688, 668, 0, 1},     {696, 672, 1, 232448},      {712, 688, 0, 32},
    {744, 720, 0, 1},
};

static int fill(char *out, int dev, size_t size, int v13) {
  int err = rt_driver(), bus = 0;
  size_t memory = 0;
  if (err == RT_OK) err = DRV(cuInit)(0);
  if (out == NULL) return rt_done(RT_VALUE);
  if (err != RT_OK) return rt_done(err);
  memset(out, 0, size);
  err = DRV(cuDeviceGetName)(out, 256, dev);
  if (err == RT_OK) err = DRV(cuDeviceGetUuid_v2)(out + 256, dev);
  if (err == RT_OK) err = DRV(cuDeviceTotalMem_v2)(&memory, dev);
  if (err == RT_OK) err = DRV(cuDeviceGetAttribute)(&bus, 33, dev);
  if (err != RT_OK) return rt_done(err);
  memcpy(out + 288, &memory, sizeof memory);
  memcpy(out + (v13 ? 568 : 584), &bus, sizeof bus);
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    int offset = v13 ? fields[i].v13 : fields[i].v12;
    if (offset >= 0 && (size_t)offset + 8 <= size) memcpy(out + offset, &fields[i].value, fields[i].wide ? 8 : 4);
  }
  return RT_OK;
}

/* 12 exports the layout of 11 under the plain name; its fields up to multiProcessorCount lie the same. */
SG(cudaGetDeviceProperties)(char *out, int dev) { return fill(out, dev, SG_MAJOR >= 13 ? 1008 : 728, SG_MAJOR >= 13); }
SG(cudaGetDeviceProperties_v2)(char *out, int dev) { return fill(out, dev, 1032, 0); }

struct channel {
  int x, y, z, w, format;
};
#define SG_OTHER(type, name) type impl_##name
SG_OTHER(struct channel, cudaCreateChannelDesc)(int x, int y, int z, int w, int format) {
  return (struct channel){x, y, z, w, format};
}
