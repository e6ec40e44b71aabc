/* A script: roles (threads and processes), each with operations in loops; see ../script.py for the language.
 * What every thread does is noted with its label by this program's own clock: the truth that gputop is held to. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_ROLES 8
#define MOST_OPS 128
#define MOST_CHANNELS 16
#define MOST_HANDLES 16

struct op {
  char label[32], name[16], text[16];
  long a[3];
  int partner, depth; /* of loop and end: where the other one is, and how deep */
  int timed;          /* whether the time in the run queue is read around it, which costs 2 us */
};

struct role {
  char name[24], kind[12], queue[24];
  int cpu, nice, count, rounds;
  uint64_t since; /* what the time limit counts from */
  struct op ops[MOST_OPS];
};

struct entry {
  uint64_t from, to, cpu, queued;
  const char *label, *what;
};

/* One thread's diary; grows in memory, is written when the thread has ended its script. */
struct diary {
  struct entry *at;
  size_t count, room;
};

extern struct role roles[MOST_ROLES];
extern int role_count, channels[MOST_CHANNELS][2];
extern volatile int *over; /* shared by all roles: the main one has ended its script */
extern __thread struct diary diary;
extern __thread struct role *me;

static inline uint64_t now_ns(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void must(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "failed: %s\n", what);
  _exit(7);
}

void note(uint64_t from, uint64_t to, uint64_t cpu, uint64_t queued, const char *label, const char *what);

/* cuda_ops.c and host_ops.c: 0 when the name is none of theirs */
int cuda_op(const struct op *op);
int host_op(const struct op *op);
void cuda_begin(void);
