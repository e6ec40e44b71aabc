/* The inside of the simulated NCCL: ranks meet in a shared file, and their streams wait for one another. */
#ifndef NCCL_CORE_H
#define NCCL_CORE_H

#include "log_layout.h"
#include "sg_private.h"
#include "sg_state.h"

enum { C_OK = 0, C_CUDA = 1, C_SYSTEM = 2, C_INTERNAL = 3, C_ARGUMENT = 4, C_USAGE = 5, C_REMOTE = 6 };

#define MAX_COMMS 32
#define MAX_RANKS 16
#define RING 256
#define PAIR_RING 64

struct unique_id {
  char text[128];
};

/* One collective, or one message: it begins when the last has come. */
struct meeting {
  uint64_t number, latest, duration, begin, end; /* end 0: not settled */
  uint32_t come, reserved;                       /* bits */
};

#define DATA_LIMIT 65536 /* bytes of a rank */
#define DATA_RING 4

/* What ranks bring to a collective of little data. A rank is at most one collective of a stream ahead of another. */
struct payload {
  unsigned char of[MAX_RANKS][DATA_LIMIT];
};

struct shared_comm {
  char id[sizeof(struct unique_id)];
  uint32_t used, ranks, joined, left; /* bits of ranks */
  uint32_t pid[MAX_RANKS];
  uint64_t start[MAX_RANKS];
  struct meeting ring[RING];
  struct meeting pair[MAX_RANKS][MAX_RANKS][PAIR_RING];
};

struct shared {
  uint64_t magic;
  uint32_t changes; /* a futex: grows when anything happened that somebody may wait for */
  uint32_t reserved[13];
  struct shared_comm comm[MAX_COMMS];
  struct payload data[MAX_COMMS][DATA_RING]; /* in the order of the communicators; mostly a hole in the file */
};

struct comm {
  uint64_t magic;
  struct shared_comm *shared;
  int rank, ranks, device;
  void *context;
  uint32_t outstanding;
  uint64_t aborted_at;
  uint64_t collectives, sent[MAX_RANKS], received[MAX_RANKS];
};

struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned count;
};

/* What is used of the driver. */
struct driver {
  int (*cuInit)(unsigned);
  int (*cuCtxGetCurrent)(void **);
  int (*cuCtxGetDevice)(int *);
  int (*cuCtxPushCurrent)(void *);
  int (*cuCtxPopCurrent)(void **);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuModuleLoadData)(void **, const void *);
  int (*cuModuleGetFunction)(void **, void *, const char *);
  int (*cuLaunchKernelEx)(const struct launch_config *, void *, void **, void **);
  const struct sg_private *private;
};

extern struct driver drv;

/* nccl_driver.c */
int driver_ready(void);
int driver_launch(const struct comm *c, const char *kernel, void *stream, struct sg_joint *joint);

/* nccl_shared.c */
extern struct shared *shared;
int shared_open(void);
void shared_lock(void);
void shared_unlock(void);
void shared_changed(void);
void shared_wait(uint32_t seen, unsigned ms);
struct shared_comm *shared_join(const struct unique_id *id, int ranks, int rank);
int shared_lost(const struct shared_comm *c, uint32_t among);

/* nccl_comm.c */
struct comm *comm_get(void *handle);
int comms_wait(struct comm **list, int n);

/* nccl_data.c */
enum move { MOVES_NOTHING, ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };
struct data { /* of one collective, as one rank has it */
  enum move move;
  const void *send;
  void *recv;
  size_t count; /* of the smaller side of its buffers */
  int type, op, root;
};
uint64_t data_size_of(int type); /* bytes; 0: no such type */
void data_bring(const struct comm *c, uint64_t number, const struct data *d);
void data_take(const struct comm *c, uint64_t number, const struct data *d);

/* nccl_group.c */
struct need { /* a meeting that a rank takes part in */
  struct meeting *meeting;
  struct data data;
  uint64_t number, duration;
  uint32_t bit, all;
  uint64_t sent, received; /* bytes of this rank */
};
int group_add(struct comm *c, void *stream, const char *kernel, struct need need);
int group_add_init(struct comm *c);
int group_failed(int error);
void group_begin(void);
int group_end(void);
int group_is_open(void);

#endif
