/* How long a matrix product lasts and what it uses, for whoever simulates a library of them. */
#ifndef SG_GEMM_H
#define SG_GEMM_H

#include "sg_common.h"
#include "sg_private.h"

#define SG_GEMM_LEAST_NS 3000
#define SG_GEMM_OF_PEAK 0.6 /* what a good library reaches */
#define SG_DRAM_OF_PEAK 0.9
#define SG_DRAM_GBPS 3350.0
#define SG_GEMM_TILE 128

/* The type that is computed in: float32 is SG_TF32 where the library may round it for the tensor cores. */
enum sg_type { SG_FP64, SG_FP32, SG_TF32, SG_FP16, SG_FP8, SG_INT8 };

/* Blocks of the kernel, a tile each; for its launch, too. */
static inline uint64_t sg_gemm_blocks(uint64_t m, uint64_t n, uint64_t batch) {
  return (m + SG_GEMM_TILE - 1) / SG_GEMM_TILE * ((n + SG_GEMM_TILE - 1) / SG_GEMM_TILE) * batch;
}

/* An m x k by a k x n matrix, so many times. It lasts as long as its operations at 60 % of the type's peak (H100 SXM,
 * dense), no less than 3 us and than its matrices take at 90 % of the memory's bandwidth. */
static inline struct sg_work sg_gemm(enum sg_type type, uint64_t m, uint64_t n, uint64_t k, uint64_t batch) {
  static const struct {
    double tflops, bytes;
    int tensor;
  } types[] = {{67, 8, 1}, {67, 4, 0}, {495, 4, 1}, {989, 2, 1}, {1979, 1, 1}, {1979, 1, 1}};
  double ops = 2.0 * (double)m * (double)n * (double)k * (double)batch, peak = types[type].tflops * 1e3; /* a ns */
  double bytes = ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n) * (double)batch * types[type].bytes;
  double ns = ops / (SG_GEMM_OF_PEAK * peak), memory_ns = bytes / (SG_DRAM_OF_PEAK * SG_DRAM_GBPS);
  double sm = (double)sg_gemm_blocks(m, n, batch) / SG_SM_COUNT, math, dram;
  if (ns < memory_ns) ns = memory_ns;
  if (ns < SG_GEMM_LEAST_NS) ns = SG_GEMM_LEAST_NS;
  math = ops / ns / peak;
  dram = bytes / ns / SG_DRAM_GBPS;
  if (sm < math / SG_GEMM_OF_PEAK) sm = math / SG_GEMM_OF_PEAK; /* few tiles are split along k */
  if (sm > 1) sm = 1;
  return (struct sg_work){(uint64_t)ns,
                          {.sm = (uint16_t)(sm * 950),
                           .occupancy = (uint16_t)(sm * 200),
                           .tensor = types[type].tensor ? (uint16_t)(math * 1000 + 0.5) : 0,
                           .dram = (uint16_t)(dram * 1000 + 0.5)}};
}

#endif
