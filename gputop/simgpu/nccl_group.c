/* Groups, and the part that a rank has in a collective. What a group holds of one stream is one launch. */
#include "nccl_core.h"

#include <stdlib.h>
#include <string.h>

struct part {
  struct sg_joint joint;
  struct comm *comm;
  void *stream;
  const char *kernel;
  struct need *needs;
  size_t count, room;
  struct part *next;
};

static __thread int depth, error;
static __thread struct part *first, **end;
static __thread struct comm *inits[MAX_COMMS];
static __thread int init_count;

/* With the driver's lock held. The last one who comes settles the meeting for all. */
static void arrive(struct sg_joint *joint, uint64_t ready) {
  struct part *p = (struct part *)joint;
  int settled = 0;
  shared_lock();
  for (size_t i = 0; i < p->count; i++) {
    const struct need *n = &p->needs[i];
    struct meeting *m = n->meeting;
    if (m->number != n->number) *m = (struct meeting){.number = n->number};
    m->come |= n->bit;
    if (ready > m->latest) m->latest = ready;
    data_bring(p->comm, n->number, &n->data);
    if (n->duration > m->duration) m->duration = n->duration;
    if (m->come != n->all) continue;
    m->begin = m->latest;
    __atomic_store_n(&m->end, m->latest + m->duration, __ATOMIC_RELEASE);
    settled = 1;
  }
  shared_unlock();
  if (settled) shared_changed();
}

static int settled(struct sg_joint *joint, uint64_t *begin, uint64_t *ends) {
  struct part *p = (struct part *)joint;
  *begin = *ends = p->comm->aborted_at;
  if (p->comm->aborted_at != 0) return 1;
  for (size_t i = 0; i < p->count; i++) {
    const struct meeting *m = p->needs[i].meeting;
    uint64_t at = __atomic_load_n(&m->end, __ATOMIC_ACQUIRE);
    if (at == 0) return 0;
    if (at > *ends) *ends = at;
    if (m->begin > *begin) *begin = m->begin;
  }
  return 1;
}

static void discard(struct part *p) {
  free(p->needs);
  free(p);
}

static void finished(struct sg_joint *joint) {
  struct part *p = (struct part *)joint;
  for (size_t i = 0; p->comm->aborted_at == 0 && i < p->count; i++)
    data_take(p->comm, p->needs[i].number, &p->needs[i].data);
  uint32_t left = __atomic_sub_fetch(&p->comm->outstanding, 1, __ATOMIC_ACQ_REL);
  discard(p);
  if (left == 0) shared_changed(); /* somebody may wait to destroy the communicator */
}

static struct part *part_of(struct comm *c, void *stream, const char *kernel) {
  struct part *p;
  for (p = first; p != NULL && (p->comm != c || p->stream != stream); p = p->next) {}
  if (p != NULL) {
    if (strcmp(p->kernel, kernel) != 0) p->kernel = "ncclDevKernel_Generic";
    return p;
  }
  p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  *p = (struct part){.joint = {arrive, settled, finished}, .comm = c, .stream = stream, .kernel = kernel};
  if (first == NULL) end = &first;
  *end = p;
  end = &p->next;
  return p;
}

int group_add(struct comm *c, void *stream, const char *kernel, struct need need) {
  struct part *p = part_of(c, stream, kernel);
  if (p != NULL && p->count == p->room) {
    struct need *more = realloc(p->needs, (p->room + 8) * sizeof *more);
    if (more == NULL) return group_failed(C_SYSTEM);
    p->needs = more;
    p->room += 8;
  }
  if (p == NULL) return group_failed(C_SYSTEM);
  p->needs[p->count++] = need;
  p->joint.sent += need.sent;
  p->joint.received += need.received;
  return C_OK;
}

int group_add_init(struct comm *c) {
  if (init_count == MAX_COMMS) return group_failed(C_INTERNAL);
  inits[init_count++] = c;
  return C_OK;
}

int group_failed(int err) {
  if (error == C_OK) error = err;
  return err;
}

void group_begin(void) { depth++; }
int group_is_open(void) { return depth > 0; }

static int launch_all(void) {
  int err = error;
  while (first != NULL) {
    struct part *p = first;
    first = p->next;
    if (err == C_OK) {
      __atomic_add_fetch(&p->comm->outstanding, 1, __ATOMIC_ACQ_REL);
      err = driver_launch(p->comm, p->kernel, p->stream, &p->joint);
      if (err == C_OK) continue;
      __atomic_sub_fetch(&p->comm->outstanding, 1, __ATOMIC_ACQ_REL);
    }
    discard(p);
  }
  return err;
}

int group_end(void) {
  if (depth == 0) return C_USAGE;
  if (--depth > 0) return C_OK;
  int joined = comms_wait(inits, init_count);
  if (error == C_OK) error = joined;
  init_count = 0;
  int err = launch_all();
  error = C_OK;
  return err;
}

SG(ncclGroupStart)(void) {
  group_begin();
  return C_OK;
}
SG(ncclGroupEnd)(void) { return group_end(); }
