/* Communicators: joining, leaving, and facts about them. */
#include "nccl_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMM_LIVE 0x6d6d6f63u

struct comm *comm_get(void *handle) {
  struct comm *c = handle;
  return c != NULL && c->magic == COMM_LIVE ? c : NULL;
}

SG(ncclGetVersion)(int *version) {
  if (version == NULL) return C_ARGUMENT;
  *version = 23203;
  return C_OK;
}

#define SG_TEXT(name) const char *impl_##name
SG_TEXT(ncclGetErrorString)(int code) {
  static const char *const texts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
  };
  return code >= 0 && code < 8 ? texts[code] : "unknown result code";
}
SG_TEXT(ncclGetLastError)(void *comm) {
  (void)comm;
  return "";
}

SG(ncclGetUniqueId)(struct unique_id *id) {
  static uint32_t count;
  if (id == NULL) return C_ARGUMENT;
  int err = driver_ready();
  if (err != C_OK) return err;
  memset(id, 0, sizeof *id);
  snprintf(id->text, sizeof id->text, "simgpu %d %llu %u %llu", getpid(), (unsigned long long)sg_start_ticks(getpid()),
           __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED), (unsigned long long)sg_now());
  return C_OK;
}

/* A rank of the current device that has taken its place; the others may still be missing. */
static int join(struct comm **out, int ranks, const struct unique_id *id, int rank) {
  struct comm *c = calloc(1, sizeof *c);
  if (c == NULL) return C_SYSTEM;
  *c = (struct comm){.magic = COMM_LIVE, .rank = rank, .ranks = ranks};
  if (drv.cuCtxGetDevice(&c->device) != 0 || drv.cuCtxGetCurrent(&c->context) != 0) {
    free(c);
    return C_CUDA;
  }
  c->shared = shared_join(id, ranks, rank);
  if (c->shared == NULL) {
    free(c);
    return C_USAGE;
  }
  *out = c;
  return C_OK;
}

/* Waits for all ranks of all these; a rank that died on the way is an error, one that never comes is waited for. */
int comms_wait(struct comm **list, int n) {
  for (int i = 0; i < n; i++) {
    const struct shared_comm *s = list[i]->shared;
    for (;;) {
      uint32_t seen = __atomic_load_n(&shared->changes, __ATOMIC_ACQUIRE);
      if (__atomic_load_n(&s->joined, __ATOMIC_ACQUIRE) == (1u << list[i]->ranks) - 1) break;
      if (shared_lost(s, s->joined)) return C_REMOTE;
      shared_wait(seen, 50);
    }
  }
  return C_OK;
}

SG_ALIAS(ncclCommInitRankConfig, ncclCommInitRank)
SG(ncclCommInitRank)(struct comm **out, int ranks, struct unique_id id, int rank) {
  if (out == NULL || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks) return C_ARGUMENT;
  int err = driver_ready();
  if (err == C_OK) err = join(out, ranks, &id, rank);
  if (err != C_OK) return err;
  return group_is_open() ? group_add_init(*out) : comms_wait(out, 1);
}

SG(ncclCommInitAll)(struct comm **out, int count, const int *devices) {
  struct unique_id id;
  void *context, *old;
  if (out == NULL || count < 1 || count > MAX_RANKS) return C_ARGUMENT;
  int err = impl_ncclGetUniqueId(&id);
  for (int i = 0; i < count && err == C_OK; i++) {
    if (drv.cuDevicePrimaryCtxRetain(&context, devices == NULL ? i : devices[i]) != 0) return C_ARGUMENT;
    drv.cuCtxPushCurrent(context);
    err = join(&out[i], count, &id, i);
    drv.cuCtxPopCurrent(&old);
  }
  return err == C_OK ? comms_wait(out, count) : err;
}

static void leave(struct comm *c) {
  __atomic_or_fetch(&c->shared->left, 1u << c->rank, __ATOMIC_ACQ_REL);
  c->magic = 0;
  free(c);
  shared_changed();
}

static void wait_finished(const struct comm *c) {
  for (;;) {
    uint32_t seen = __atomic_load_n(&shared->changes, __ATOMIC_ACQUIRE);
    drv.private->poll();
    if (__atomic_load_n(&c->outstanding, __ATOMIC_ACQUIRE) == 0) return;
    shared_wait(seen, 50);
  }
}

SG(ncclCommFinalize)(void *handle) {
  struct comm *c = comm_get(handle);
  if (c == NULL) return C_ARGUMENT;
  wait_finished(c);
  return C_OK;
}

SG(ncclCommDestroy)(void *handle) {
  struct comm *c = comm_get(handle);
  if (c == NULL) return handle == NULL ? C_OK : C_ARGUMENT;
  wait_finished(c);
  leave(c);
  return C_OK;
}

/* What is outstanding ends now, whoever is missing. */
SG(ncclCommAbort)(void *handle) {
  struct comm *c = comm_get(handle);
  if (c == NULL) return handle == NULL ? C_OK : C_ARGUMENT;
  __atomic_store_n(&c->aborted_at, sg_now(), __ATOMIC_RELEASE);
  wait_finished(c);
  leave(c);
  return C_OK;
}

SG(ncclCommGetAsyncError)(void *handle, int *out) {
  struct comm *c = comm_get(handle);
  if (c == NULL || out == NULL) return C_ARGUMENT;
  *out = shared_lost(c->shared, ~0u) ? C_REMOTE : C_OK;
  return C_OK;
}

static int fact(void *handle, int *out, size_t offset) {
  struct comm *c = comm_get(handle);
  if (c == NULL || out == NULL) return C_ARGUMENT;
  memcpy(out, (char *)c + offset, sizeof *out);
  return C_OK;
}
SG(ncclCommCount)(void *comm, int *out) { return fact(comm, out, offsetof(struct comm, ranks)); }
SG(ncclCommUserRank)(void *comm, int *out) { return fact(comm, out, offsetof(struct comm, rank)); }
SG(ncclCommCuDevice)(void *comm, int *out) { return fact(comm, out, offsetof(struct comm, device)); }

/* A buffer that is registered is read and written directly; here nothing is. */
SG(ncclCommRegister)(void *comm, void *buffer, size_t size, void **handle) {
  (void)size;
  if (comm_get(comm) == NULL || handle == NULL) return C_ARGUMENT;
  *handle = buffer;
  return C_OK;
}
SG(ncclCommDeregister)(void *comm, void *handle) {
  (void)handle;
  return comm_get(comm) == NULL ? C_ARGUMENT : C_OK;
}
