/* Kernel launches: how long each lasts, and what it costs the caller. */
#include "cu_core.h"
#include "sg_fault.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST_KERNEL (60 * NS_PER_S)

static int on_own_stack(const void *p) {
  static __thread uintptr_t top;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0), at = (uintptr_t)p;
  if (top == 0) {
    pthread_attr_t attr;
    void *low;
    size_t size;
    top = 1;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
      if (pthread_attr_getstack(&attr, &low, &size) == 0) top = (uintptr_t)low + size;
      pthread_attr_destroy(&attr);
    }
  }
  return at >= here && top >= 8 && at <= top - 8;
}

/* Reads eight bytes that may not be there; a program's stack is, anything else is asked of the kernel. */
static int read_word(const void *p, uint64_t *value) {
  if (on_own_stack(p)) {
    memcpy(value, p, 8);
    return 1;
  }
  struct iovec to = {value, 8}, from = {(void *)(uintptr_t)p, 8};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 8;
}

/* The duration that a workload asks for in the first argument, or 0. */
static uint64_t asked_duration(void **arguments) {
  uint64_t pointer, value;
  if (arguments == NULL || !read_word(arguments, &pointer)) return 0;
  if (pointer < 4096 || !read_word((const void *)pointer, &value)) return 0;
  return value <= LONGEST_KERNEL ? value : 0;
}

/* Duration and use: what a kernel declares itself, what a rule says of it, or the same for all others. */
void kernel_work(const struct function *f, uint64_t blocks, uint64_t threads, void **arguments, struct op *op) {
  uint64_t asked = f->declares || f->spins ? asked_duration(arguments) : 0;
  op->duration = cfg.kernel_ns;
  op->use = use_of_declared;
  if (f->rule != NULL) rule_apply(f->rule, blocks, threads, op);
  if (asked != 0) op->duration = f->spins ? (uint64_t)((double)asked * 1e3 / BUSY_MHZ) : asked;
}

static __thread struct sg_joint *next_joint;

void cu_next_launch(struct sg_joint *joint) { next_joint = joint; }

static __thread struct sg_work next_work; /* duration 0: none */

void cu_next_work(const struct sg_work *work) { next_work = work == NULL ? (struct sg_work){0} : *work; }

/* The CPU time of a launch. */
void cu_launch_cost(uint64_t entered) {
  if (!cfg.launch_set)
    sg_spin_until(entered + sg_jitter(3 * NS_PER_US, 6 * NS_PER_US));
  else if (cfg.launch_ns != 0)
    sg_spin_until(entered + cfg.launch_ns);
}

static int launch(void *handle, const struct sizes *z, void *stream, void **arguments) {
  uint64_t blocks = (uint64_t)z->grid[0] * z->grid[1] * z->grid[2];
  uint64_t threads = (uint64_t)z->block[0] * z->block[1] * z->block[2];
  struct function *f = function_get(handle);
  struct sg_work work = next_work;
  struct stream *s;
  struct op op = {.type = next_joint != NULL ? OP_JOINT : OP_WORK, .kind = K_KERNEL, .joint = next_joint};
  int err = stream_get(stream, &s);
  uint64_t from = sg_entered;
  next_joint = NULL;
  next_work.duration_ns = 0;
  if (blocks == 0 || threads == 0 || threads > 1024) return E_VALUE;
  if (err != OK) return err;
  if (f == NULL) return E_HANDLE;
  op.seen = (struct seen_work){.name = f->name, .shared = z->shared};
  for (int i = 0; i < 3; i++) op.seen.grid[i] = z->grid[i], op.seen.block[i] = z->block[i];
  kernel_work(f, blocks, threads, arguments, &op);
  if (op.joint != NULL) op.use = use_of_collective; /* the ranks say how long it lasts */
  if (work.duration_ns != 0) {
    op.duration = work.duration_ns;
    op.use = work.use;
  }
  if (!f->launched && !__atomic_exchange_n(&f->launched, 1, __ATOMIC_RELAXED)) {
    sg_spin_until(sg_now() + f->first_ns);
    from = sg_now();
  }
  if (op.joint != NULL && s->capture != NULL) return E_CAPTURE; /* a captured collective is not simulated */
  if (s->capture == NULL) q_wait_room(s);
  cu_launch_cost(from);
  pthread_mutex_lock(&sg_mu);
  names_launched(f, z);
  err = s->capture != NULL ? capture_add(s, op) : (q_put(s, op), fault_launched(s), OK);
  pthread_mutex_unlock(&sg_mu);
  return err;
}

SG(cuLaunchKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  (void)extra;
  struct sizes z = {{gx, gy, gz}, {bx, by, bz}, shared};
  return launch(f, &z, stream, arguments);
}

SG(cuLaunchCooperativeKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *stream, void **arguments) {
  return impl_cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, NULL);
}

struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
};

SG(cuLaunchKernelEx)(const struct launch_config *c, void *f, void **arguments, void **extra) {
  if (c == NULL) return E_VALUE;
  return impl_cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                             c->stream, arguments, extra);
}
