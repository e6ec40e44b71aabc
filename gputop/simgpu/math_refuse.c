/* What is not simulated says so once and fails. */
#include <stdio.h>

int sg_refuse(const char *name, unsigned char *told);
int sg_refuse(const char *name, unsigned char *told) {
  if (!__atomic_exchange_n(told, 1, __ATOMIC_RELAXED)) fprintf(stderr, "gputop simgpu: %s is not simulated\n", name);
  return SG_REFUSAL;
}
