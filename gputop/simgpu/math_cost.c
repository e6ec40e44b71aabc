/* How long the kernels of the mathematical libraries last, from shapes and types, on the simulated H100. */
#include "math_core.h"

#include <stdio.h>

#define SHORTEST_NS 3000ull
#define REACHED 0.6        /* share of the peak that a large one gets */
#define DRAM_BYTES_PER_NS 3350.0

size_t math_type_bytes(int type) {
  switch (type) {
    case R_64F: case C_32F: return 8;
    case C_64F: return 16;
    case R_16F: case R_16BF: return 2;
    case R_8I: case R_8F_E4M3: case R_8F_E5M2: return 1;
    default: return 4;
  }
}

/* Operations in a nanosecond at the peak, without sparsity. */
static double peak(int type, int tf32) {
  switch (type) {
    case R_16F: case R_16BF: case C_16F: case C_16BF: return 989e3;
    case R_8I: case R_8F_E4M3: case R_8F_E5M2: case R_4F: return 1979e3;
    case R_32F: case C_32F: return tf32 ? 495e3 : 67e3;
    default: return 67e3;
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

static uint64_t at_least(double ns) { return ns > (double)SHORTEST_NS ? (uint64_t)ns : SHORTEST_NS; }

uint64_t math_flops_ns(double flops, int type, int tf32) { return at_least(flops / (REACHED * peak(type, tf32))); }

uint64_t math_bytes_ns(double bytes) { return at_least(bytes / (REACHED * DRAM_BYTES_PER_NS)); }

uint64_t math_gemm_ns(const struct gemm *g) {
  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->count;
  int complex_numbers = g->a == C_32F || g->a == C_64F;
  return math_flops_ns(complex_numbers ? 4 * flops : flops, g->a, g->tf32);
}

void math_gemm_name(char *out, size_t size, const struct gemm *g) {
  const char *a = type_name(g->a, g->tf32), *c = type_name(g->c, 0);
  snprintf(out, size, "sm90_xmma_gemm_%s%s_%sf32_%s_%c%c_n_tilesize128x128x64_simgpu_cublas", a, a, a, c, g->ta, g->tb);
}
