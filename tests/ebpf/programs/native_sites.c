/* native_sites ROUNDS: waits for the device through five functions from `alpha` and from `beta`, which nothing but their
 * own return addresses tells apart: in turns, then one after the other a frame deeper. */
#include "support.h"

static int (*synchronize)(void);

#define PASSES(name, next) \
  __attribute__((noinline)) int name(int round) { return next(round) + 1; }

__attribute__((noinline)) int fifth(int round) { return synchronize() + round; }
PASSES(fourth, fifth)
PASSES(third, fourth)
PASSES(second, third)
PASSES(first, second)
PASSES(alpha, first)
PASSES(beta, first)

__attribute__((noinline)) int in_turns(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum += alpha(round) + beta(round);
  return sum;
}

__attribute__((noinline)) int one_after_the_other(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum += alpha(round);
  for (int round = 0; round < rounds; round++) sum += beta(round);
  return sum;
}

__attribute__((noinline)) int deeper(int rounds) {
  volatile char room[64] = {0};
  return one_after_the_other(rounds) + room[rounds & 1];
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 0;
  *(void **)&synchronize = function("libcudart.so.12", "cudaDeviceSynchronize");
  int sum = in_turns(rounds) + deeper(rounds);
  say("{\"pid\": %d, \"rounds\": %d, \"sum\": %d}\n", getpid(), rounds, sum);
  return 0;
}
