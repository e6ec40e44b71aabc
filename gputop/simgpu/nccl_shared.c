/* The file in which ranks meet, beside the state file. A killed process leaves its locks to nobody: flock. */
#include "nccl_core.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHARED_MAGIC 0x31304c43434e4753ull

struct shared *shared;
static int file = -1;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* In a sticky directory root may not open another user's file with O_CREAT: plain open comes first. */
int shared_open(void) {
  char path[4096];
  struct stat st;
  snprintf(path, sizeof path, "%s.nccl", sg_state_path());
  file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return C_SYSTEM;
  fchmod(file, 0666);
  if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode) ||
      (st.st_size != (off_t)sizeof *shared && ftruncate(file, sizeof *shared) != 0))
    return C_SYSTEM;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) return C_SYSTEM;
  shared->magic = SHARED_MAGIC;
  return C_OK;
}

/* Threads of a process share the file's lock: they need one of their own. */
void shared_lock(void) {
  pthread_mutex_lock(&mu);
  while (flock(file, LOCK_EX) != 0) {}
}

void shared_unlock(void) {
  flock(file, LOCK_UN);
  pthread_mutex_unlock(&mu);
}

void shared_changed(void) {
  __atomic_add_fetch(&shared->changes, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, &shared->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shared_wait(uint32_t seen, unsigned ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  syscall(SYS_futex, &shared->changes, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* Whether one of these ranks joined and died without leaving. */
int shared_lost(const struct shared_comm *c, uint32_t among) {
  uint32_t there = c->joined & ~c->left & among;
  for (int i = 0; i < MAX_RANKS; i++)
    if ((there >> i & 1) && !sg_process_alive(c->pid[i], c->start[i])) return 1;
  return 0;
}

static int is_over(const struct shared_comm *c) {
  if (!c->used) return 1;
  for (int i = 0; i < MAX_RANKS; i++)
    if ((c->joined >> i & 1) && !(c->left >> i & 1) && sg_process_alive(c->pid[i], c->start[i])) return 0;
  return 1;
}

static struct shared_comm *find_or_make(const struct unique_id *id, int ranks) {
  struct shared_comm *free_one = NULL;
  for (int i = 0; i < MAX_COMMS; i++) {
    struct shared_comm *c = &shared->comm[i];
    if (c->used && memcmp(c->id, id, sizeof c->id) == 0) return c;
    if (free_one == NULL && is_over(c)) free_one = c;
  }
  if (free_one != NULL) {
    memset(free_one, 0, sizeof *free_one);
    memcpy(free_one->id, id, sizeof *id);
    free_one->ranks = (uint32_t)ranks;
    free_one->used = 1;
  }
  return free_one;
}

/* Takes a rank's place; NULL when it is taken, the ranks disagree, or there is no room. */
struct shared_comm *shared_join(const struct unique_id *id, int ranks, int rank) {
  shared_lock();
  struct shared_comm *c = find_or_make(id, ranks);
  if (c != NULL && (c->ranks != (uint32_t)ranks || (c->joined >> rank & 1))) c = NULL;
  if (c != NULL) {
    c->pid[rank] = (uint32_t)getpid();
    c->start[rank] = sg_start_ticks(getpid());
    __atomic_or_fetch(&c->joined, 1u << rank, __ATOMIC_ACQ_REL);
  }
  shared_unlock();
  shared_changed();
  return c;
}
