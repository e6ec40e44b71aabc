/* libnccl.so.2 of a test: makes communicators in the ways that the simulated one has not, by NCCL's signatures. */
#include <stddef.h>

typedef struct {
  char internal[128];
} ncclUniqueId;

static char places[8];

int ncclCommSplit(void *comm, int color, int key, void **made, void *config) {
  (void)comm, (void)key, (void)config;
  *made = color < 0 ? NULL : &places[color];
  return color == 5 ? 4 : 0; /* 4: ncclInvalidArgument */
}

int ncclCommInitRankScalable(void **made, int ranks, int rank, int count, ncclUniqueId *ids, void *config) {
  (void)ranks, (void)count, (void)ids, (void)config;
  *made = &places[rank];
  return 0;
}

int ncclCommInitRankConfig(void **made, int ranks, ncclUniqueId id, int rank, void *config) {
  (void)ranks, (void)config;
  *made = &places[rank + (id.internal[0] ? 4 : 0)];
  return 7; /* ncclInProgress: it goes on behind the program's back */
}
