/* The inside of the simulated driver. */
#ifndef CU_CORE_H
#define CU_CORE_H

#include "log_layout.h"
#include "sg_state.h" /* first, for what it defines before any other header */

#include "sg_private.h"

#include <pthread.h>

enum {
  OK = 0,
  E_VALUE = 1,
  E_MEMORY = 2,
  E_INIT = 3,
  E_NO_DEVICE = 100,
  E_DEVICE = 101,
  E_CONTEXT = 201,
  E_HANDLE = 400,
  E_NOT_FOUND = 500,
  E_NOT_READY = 600,
  E_UNSUPPORTED = 801,
  E_CAPTURE = 900,
  E_CAPTURE_INVALID = 901,
};

enum kind { K_KERNEL, K_H2D, K_D2H, K_D2D, K_SET, K_HOST, K_COMM, K_COMM_WAIT, K_COUNT };

#define QUEUE_DEPTH 1024
#define UNKNOWN_TIME UINT64_MAX
#define STREAM_NONBLOCKING 1u
#define EVENT_BLOCKING 1u
#define EVENT_NO_TIMING 2u
#define SCHED_MASK 7u
#define SCHED_SPIN 1u
#define SCHED_YIELD 2u
#define SCHED_BLOCK 4u

#define MAX_BRANCHES 8

struct graph;

struct region { /* a copy of depth x height rows, or a fill with units of so many bytes */
  char *dst;
  const char *src;
  size_t width, height, depth, dst_pitch, src_pitch, dst_slice, src_slice;
  unsigned value, unit;
};

/* What CUPTI tells of an operation beside its times. */
struct seen_work {
  uint64_t correlation; /* 0: none given yet */
  const char *name;     /* of a kernel */
  const struct graph *graph;
  unsigned grid[3], block[3], shared;
  int pageable;
};

/* One thing a stream has to do; also a node of a graph. */
struct op {
  enum { OP_WORK, OP_RECORD, OP_WAIT, OP_HOST, OP_JOINT } type;
  enum kind kind;
  uint64_t duration, bytes, version;
  struct sg_use use; /* by a kernel of that duration */
  uint64_t entered, queued, seq; /* when its call began, when it was queued, in which order */
  struct sg_joint *joint;
  struct event *event;
  void (*callback)(void *);
  void *argument;
  struct region region;
  size_t index; /* in its graph */
  uint64_t offset; /* in its graph: from the graph's begin */
  struct seen_work seen;
  struct op *next;
};

/* Nodes of a graph that is captured: what comes next depends on them. */
struct branch {
  size_t node[MAX_BRANCHES];
  int count;
};

struct stream {
  uint32_t live, flags;
  int priority, dev;
  uint64_t id, tail, queued;
  struct graph *capture;
  struct branch branch;
  int capture_origin;
  int held; /* something of unknown end is outstanding: what follows waits in the list */
  struct op holder;
  uint64_t holder_start, holder_told;
  struct op *waiting, *last_waiting;
  size_t pending; /* in the list */
  struct stream *next_free;
  uint64_t done[QUEUE_DEPTH];
};

struct event {
  uint32_t live, flags;
  int dev;
  uint64_t time, version; /* time 0: never recorded */
  struct graph *capture;
  struct branch branch;
  struct event *next_free;
};

struct edge { /* from before to */
  size_t from, to;
};

struct graph {
  uint32_t live;
  int is_exec, invalid;
  struct op *first, *last;
  size_t nodes, edge_count, edge_room;
  struct edge *edges;
  uint64_t id, length; /* of the longest path; known when it is made executable */
  struct sg_use use;   /* over that length */
};

struct context {
  uint32_t live;
  int dev, primary;
};

struct device {
  struct context context;
  int retained;
  uint32_t flags;
  struct stream *legacy;
  uint64_t blocking_tail, all_tail, copy_tail[2];
  uint64_t memory; /* bytes allocated by this process */
  int context_made;
};

struct rule { /* for the durations of kernels by their names */
  char *part;
  uint64_t fixed_ns, wave_ns;
  const struct sg_use *use;
};

struct function {
  const char *name;
  uint64_t first_ns; /* of its first launch */
  int declares;      /* its first argument is how long it lasts */
  const struct rule *rule; /* NULL: none fits */
  int spins;         /* its first argument is for how many cycles */
  int launched;
  struct function *next;
};

struct config {
  int devices, visible[SG_MAX_DEVICES];
  uint64_t memory, kernel_ns, launch_ns, latency_ns, init_ms, malloc_ns, free_ns, data_limit, first_ms;
  uint64_t host_alloc_ns, instantiate_ns, module_ns;
  int launch_set, latency_set, first_set, instantiate_set, d2h_in_sync, may_throttle;
  unsigned sync_default;
  double pcie, device_memory;
};

extern struct config cfg;
extern struct device dev_table[SG_MAX_DEVICES];
extern pthread_mutex_t sg_mu;
extern __thread unsigned char sg_ptds __attribute__((tls_model("initial-exec")));
extern const struct sg_export sg_exports[];
extern const unsigned sg_export_count;
extern const struct sg_versions sg_versions[];
extern const unsigned sg_version_count;

/* cu_init.c */
int cu_enter(void);          /* an error, or 0 when the driver is initialised */
int cu_enter_context(int *dev); /* the same, and the current device */
void cfg_read(void);

/* cu_state.c */
void st_open(void);
uint64_t st_memory_of_others(int dev);
void st_set_memory(int dev, uint64_t bytes);
unsigned st_sharers(int dev, uint64_t now);
void st_tail(int dev, uint64_t now, uint64_t end);
void st_busy(int dev, uint64_t now, uint64_t start, uint64_t end);
void st_use(int dev, uint64_t now, uint64_t start, uint64_t end, struct sg_use use);
void st_pcie(int dev, uint64_t to_device, uint64_t from_device);
void st_nvlink(int dev, uint64_t sent, uint64_t received);

/* cu_account.c: with sg_mu held */
void acc_add(const struct stream *s, const struct op *op, uint64_t alone, uint64_t start, uint64_t end);
void acc_running(const struct stream *s, uint64_t start, uint64_t end); /* no end known yet: busy so far */

void acc_staging(uint64_t ns); /* without it */

/* cu_trace.c: with sg_mu held */
void trace_op(const struct stream *s, enum kind kind, uint64_t entered, uint64_t start, uint64_t end);

/* cu_seen.c: with sg_mu held */
uint64_t seen_call(unsigned cbid, const struct stream *s);
void seen_put(const struct stream *s, struct op *op);
void seen_ran(const struct stream *s, const struct op *op, uint64_t start, uint64_t end);
void cu_observe(sg_observer observer);

/* cu_queue.c: with sg_mu held */
void q_put(struct stream *s, struct op op);
void q_poll(void); /* looks whether collectives have ended */
void q_host_finished(struct stream *s, uint64_t begun);
uint64_t q_end_of_stream(struct stream *s); /* UNKNOWN_TIME while something of unknown end is in it */
uint64_t q_end_of_device(int dev, int blocking_only);

/* cu_wait.c: without sg_mu, but for wait_news */
void q_wait_room(struct stream *s);
int q_wait_stream(struct stream *s, unsigned how);
int q_wait_device(int dev, unsigned how);
int q_wait_event(struct event *e, unsigned how);
int q_wait_until(uint64_t end, unsigned how);
void wait_news(void); /* an end that was unknown is known */
uint64_t sg_jitter(uint64_t low, uint64_t high);
void sg_spin_until(uint64_t end);
unsigned sync_how(int dev);

/* cu_host.c */
void host_schedule(struct stream *s, uint64_t at, void (*callback)(void *), void *argument);

/* cu_names.c: with sg_mu held */
struct sizes {
  unsigned grid[3], block[3], shared;
};
void names_launched(const struct function *f, const struct sizes *z);

/* cu_fault.c */
void fault_read(void);
void fault_launched(struct stream *s);
int fault_now(void); /* the error of a kernel that has failed by now, or 0 */

/* cu_stream.c */
int stream_get(void *handle, struct stream **out); /* takes the device's current context into account */
extern __thread uint64_t sg_entered;               /* when the call began that asked for a stream last */
struct stream *stream_new(int dev, uint32_t flags, int priority);
struct stream *stream_slot(size_t i);
size_t stream_count(void);

/* cu_event.c */
int event_get(void *handle, struct event **out);

/* cu_memory.c */
enum { R_DEVICE = 1, R_MANAGED = 2, R_HOST = 4, R_REGISTERED = 8, R_RESERVED = 16 };
struct range {
  uint64_t start, size;
  int dev, flags;
};
int mem_find(const void *p, struct range *out); /* 1: of the device, 2: pinned, 0: neither */
int mem_is_device(const void *p);
int mem_holds_no_data(const void *p); /* device memory that only cu_data.c may look at */
int mem_is_pinned(const void *p);
int mem_account(int dev, int64_t bytes);
int mem_variable(void **out, size_t size);

/* cu_data.c */
void data_kernel(void); /* one is queued */
void data_write(void *to, const void *from, size_t n);
void data_forget(const void *at, size_t n);
int data_read(void *to, const void *from, size_t n); /* 0: nothing is known of it, all is zero */

/* cu_copy.c */
int copy_run(struct region r, int direction, void *stream_handle, int async);
void copy_move(const struct region *r, int by_cpu);
size_t region_bytes(const struct region *r);

/* cu_module.c */
struct function *function_get(void *handle); /* NULL when it is none */

/* cu_rules.c */
const struct rule *rule_for(const char *name); /* with sg_mu held */
extern const struct sg_use use_of_declared, use_of_fill, use_of_collective, use_of_copy;
void rule_apply(const struct rule *rule, uint64_t blocks, uint64_t threads, struct op *op);

/* cu_launch.c */
void kernel_work(const struct function *f, uint64_t blocks, uint64_t threads, void **arguments, struct op *op);
void cu_next_launch(struct sg_joint *joint);
void cu_next_work(const struct sg_work *work);
void cu_launch_cost(uint64_t entered);
int impl_cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **arguments, void **extra);

/* cu_graph.c */
struct graph *graph_new(int is_exec);
void graph_empty(struct graph *g);
int graph_add(struct graph *g, struct op op);
int graph_depend(struct graph *g, size_t from, size_t to);

/* cu_capture.c */
int capture_add(struct stream *s, struct op op);
void capture_follow(struct stream *s, const struct event *e);

/* cu_clock.c: with sg_mu held */
uint64_t clock_slowed(int dev, uint64_t ns);

#endif
