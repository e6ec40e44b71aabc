/* How long the kernels of the mathematical libraries last, and what they use, from shapes and types. */
#include "math_core.h"

#include <stdio.h>

size_t math_type_bytes(int type) {
  switch (type) {
    case R_64F: case C_32F: return 8;
    case C_64F: return 16;
    case R_16F: case R_16BF: return 2;
    case R_8I: case R_8F_E4M3: case R_8F_E5M2: return 1;
    default: return 4;
  }
}

static enum sg_type computed_in(int type, int tf32) {
  switch (type) {
    case R_16F: case R_16BF: case C_16F: case C_16BF: return SG_FP16;
    case R_8F_E4M3: case R_8F_E5M2: case R_4F: return SG_FP8;
    case R_8I: return SG_INT8;
    case R_32F: case C_32F: return tf32 ? SG_TF32 : SG_FP32;
    default: return SG_FP64;
  }
}

static const char *type_name(int type, int tf32) {
  switch (type) {
    case R_64F: return "f64";
    case R_16F: return "f16";
    case R_16BF: return "bf16";
    case R_8I: return "i8";
    case R_32I: return "i32";
    case R_8F_E4M3: return "e4m3";
    case R_8F_E5M2: return "e5m2";
    case C_32F: return "cf32";
    case C_64F: return "cf64";
    default: return tf32 ? "tf32" : "f32";
  }
}

struct sg_work math_gemm_work(const struct gemm *g) {
  int64_t products = g->a == C_32F || g->a == C_64F ? 4 : 1; /* of real numbers, in one of complex ones */
  return sg_gemm(computed_in(g->a, g->tf32), (uint64_t)g->m, (uint64_t)g->n, (uint64_t)(g->k * products),
                 (uint64_t)g->count);
}

/* Any other kernel: as long as its operations and its bytes take, whichever is longer. As a product of one element
 * it would be, had it so many operations; its own bytes count. */
struct sg_work math_work(double flops, double bytes, uint64_t blocks, int type, int tf32) {
  struct sg_work w = sg_gemm(computed_in(type, tf32), 1, 1, 1, 1), same;
  double ns = bytes / (SG_DRAM_OF_PEAK * SG_DRAM_GBPS), sm = (double)blocks / SG_SM_COUNT;
  if (flops > 0) { /* a cube of as many operations: never bound by memory */
    uint64_t side = 4096;
    same = sg_gemm(computed_in(type, tf32), side, side, side, 1);
    double computing = (double)same.duration_ns * flops / (2.0 * (double)side * (double)side * (double)side);
    double longest = computing > ns ? computing : ns;
    if (longest < SG_GEMM_LEAST_NS) longest = SG_GEMM_LEAST_NS;
    w.use.tensor = (uint16_t)(same.use.tensor * computing / longest);
    ns = longest;
  }
  if (ns < SG_GEMM_LEAST_NS) ns = SG_GEMM_LEAST_NS;
  if (sm > 1) sm = 1;
  w.duration_ns = (uint64_t)ns;
  w.use.sm = (uint16_t)(sm * 950);
  w.use.occupancy = (uint16_t)(sm * 400);
  w.use.dram = (uint16_t)(1000 * bytes / ns / SG_DRAM_GBPS);
  return w;
}

void math_gemm_name(char *out, size_t size, const struct gemm *g) {
  const char *a = type_name(g->a, g->tf32), *c = type_name(g->c, 0);
  snprintf(out, size, "sm90_xmma_gemm_%s%s_%sf32_%s_%c%c_n_tilesize128x128x64_cublas", a, a, a, c, g->ta, g->tb);
}
