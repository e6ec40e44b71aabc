/* Says how long a matrix product lasts and what it uses: gemm TYPE M N K BATCH */
#include "sg_gemm.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  struct sg_work w = sg_gemm((enum sg_type)atoi(argv[1]), strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                             strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
  printf("[%llu, %u, %u, %u]\n", (unsigned long long)w.duration_ns, w.use.sm, w.use.tensor, w.use.dram);
  return 0;
}
