/* Collectives and messages: what each moves, and who has to come. */
#include "nccl_core.h"

/* Bytes over the bandwidth between devices, and a start-up time. */
static uint64_t duration_of(uint64_t bytes) {
  uint64_t rate = sg_env_u64("SIMGPU_NCCL_GBPS", 100);
  return sg_env_u64("SIMGPU_NCCL_LATENCY_NS", 20000) + bytes / (rate == 0 ? 1 : rate);
}

/* What each rank of a ring sends, and receives as much, in turns that move an equal part each. */
static uint64_t moved(const struct comm *c, uint64_t bytes, uint64_t turns) {
  return bytes / (uint64_t)c->ranks * turns * (uint64_t)(c->ranks - 1);
}

static int collective(void *handle, void *stream, const char *kernel, struct data data, uint64_t times,
                      uint64_t turns) {
  struct comm *c = comm_get(handle);
  if (c == NULL || data_size_of(data.type) == 0) return group_failed(C_ARGUMENT);
  if (data.count == 0) return C_OK;
  if ((data.move == REDUCE || data.move == BROADCAST) && (data.root < 0 || data.root >= c->ranks))
    return group_failed(C_ARGUMENT);
  uint64_t number = ++c->collectives, bytes = data.count * data_size_of(data.type) * times;
  return group_add(c, stream, kernel,
                   (struct need){.meeting = &c->shared->ring[number % RING],
                                 .data = data,
                                 .number = number,
                                 .duration = duration_of(bytes),
                                 .bit = 1u << c->rank,
                                 .all = (1u << c->ranks) - 1,
                                 .sent = moved(c, bytes, turns),
                                 .received = moved(c, bytes, turns)});
}

/* A message is settled when its sender and its receiver have come. */
static int message(void *handle, void *stream, uint64_t count, int type, int peer, int sends) {
  struct comm *c = comm_get(handle);
  if (c == NULL || data_size_of(type) == 0 || peer < 0 || peer >= c->ranks) return group_failed(C_ARGUMENT);
  uint64_t number = sends ? ++c->sent[peer] : ++c->received[peer];
  int from = sends ? c->rank : peer, to = sends ? peer : c->rank;
  uint64_t bytes = count * data_size_of(type);
  return group_add(c, stream, "ncclDevKernel_SendRecv",
                   (struct need){.meeting = &c->shared->pair[from][to][number % PAIR_RING],
                                 .number = number,
                                 .duration = duration_of(bytes),
                                 .bit = sends ? 1 : 2,
                                 .all = 3,
                                 .sent = sends ? bytes : 0,
                                 .received = sends ? 0 : bytes});
}

static uint64_t ranks_of(void *handle) {
  struct comm *c = comm_get(handle);
  return c == NULL ? 1 : (uint64_t)c->ranks;
}

/* Each call is a group by itself when none is open: the enqueue is at the outermost end. */
#define GROUPED(call)                       \
  do {                                      \
    group_begin();                          \
    int error_ = (call), end_ = group_end(); \
    return error_ != C_OK ? error_ : end_;  \
  } while (0)

SG(ncclAllReduce)(const void *send, void *recv, size_t n, int type, int op, void *comm, void *stream) {
  struct data d = {ALL_REDUCE, send, recv, n, type, op, 0};
  GROUPED(collective(comm, stream, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", d, 1, 2));
}
SG(ncclReduce)(const void *send, void *recv, size_t n, int type, int op, int root, void *comm, void *stream) {
  struct data d = {REDUCE, send, recv, n, type, op, root};
  GROUPED(collective(comm, stream, "ncclDevKernel_Reduce_Sum_f32_RING_LL", d, 1, 1));
}
SG(ncclBroadcast)(const void *send, void *recv, size_t n, int type, int root, void *comm, void *stream) {
  struct data d = {BROADCAST, send, recv, n, type, 0, root};
  GROUPED(collective(comm, stream, "ncclDevKernel_Broadcast_RING_LL", d, 1, 1));
}
SG(ncclBcast)(void *buffer, size_t n, int type, int root, void *comm, void *stream) {
  struct data d = {BROADCAST, buffer, buffer, n, type, 0, root};
  GROUPED(collective(comm, stream, "ncclDevKernel_Broadcast_RING_LL", d, 1, 1));
}
SG(ncclAllGather)(const void *send, void *recv, size_t n, int type, void *comm, void *stream) {
  struct data d = {ALL_GATHER, send, recv, n, type, 0, 0};
  GROUPED(collective(comm, stream, "ncclDevKernel_AllGather_RING_LL", d, ranks_of(comm), 1));
}
SG(ncclReduceScatter)(const void *send, void *recv, size_t n, int type, int op, void *comm, void *stream) {
  struct data d = {REDUCE_SCATTER, send, recv, n, type, op, 0};
  GROUPED(collective(comm, stream, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", d, ranks_of(comm), 1));
}
SG(ncclSend)(const void *send, size_t n, int type, int peer, void *comm, void *stream) {
  (void)send;
  GROUPED(message(comm, stream, n, type, peer, 1));
}
SG(ncclRecv)(void *recv, size_t n, int type, int peer, void *comm, void *stream) {
  (void)recv;
  GROUPED(message(comm, stream, n, type, peer, 0));
}
