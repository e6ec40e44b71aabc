/* gputop's probes: maps, records and the watched set, which all programs share.
 *
 * probes/ebpf/loader.py puts the record layout (probes/schema.py), the offsets of kernel structures
 * (probes/ebpf/build/btf.py), the registers of the architecture (probes/ebpf/build/registers.py), the
 * limits, base.h, reads.h and sites.h in front of this text, and arguments.h, calls.c and scheduler.c behind it. No
 * kernel header is needed.
 *
 * One entry of `threads` per watched thread holds both its open calls and its place in the
 * scheduler, so that a probe costs one hash lookup. A thread's calls are written by itself only;
 * its scheduler fields only under the run queue's lock.
 */
#define PF_EXITING 0x4
#define TASK_DEAD 0x80
#define U16_MAX 0xffff
#define U32_MAX 0xffffffffU

BPF_RINGBUF_OUTPUT(events, RING_PAGES);
BPF_TABLE("hash", u32, struct thread, threads, MAX_THREADS);
BPF_TABLE("hash", u32, u32, procs, MAX_PROCS);
struct slots {
	u32 counts[SLOTS];
};
BPF_F_TABLE("array", u32, struct slots, slots, 1, 1 << 10 /* BPF_F_MMAPABLE */); /* see maybe_watched */
BPF_ARRAY(cpus, struct cpu, MAX_CPUS);
BPF_TABLE("lru_hash", u32, u32, named, 4096);
BPF_ARRAY(blank, struct thread, 1); /* zeroes, too many for the stack */
BPF_ARRAY(sites, struct site, SITES); /* lines.c writes it */
BPF_ARRAY(site_states, struct site_state, SITE_STATES);
BPF_PROG_ARRAY(line_programs, 1);   /* on_line of lines.c, once it is there */
BPF_PROG_ARRAY(leave_programs, 1);  /* on_leave, likewise: programs of two types need two arrays */
#ifdef OUTLIVES /* perf events: the last one is detached some time after gputop, see probes/ebpf/detacher.py */
BPF_F_TABLE("array", u32, u32, stopped, 1, 1 << 10 /* BPF_F_MMAPABLE */);
#endif

/* gputop has ended: programs that are still attached are to cost as little as possible. */
static __always_inline bool is_stopped(void)
{
#ifdef OUTLIVES
	u32 zero = 0, *word = stopped.lookup(&zero);
	return word && *word;
#else
	return false;
#endif
}

#if !WATCH_ALL
BPF_F_TABLE("array", u32, u32, own_links, 1, 1 << 10 /* BPF_F_MMAPABLE */); /* 1: those count */
#endif

/* A function has a process's own link, or the machine's, or both for a moment: then the call counts in one of them. A
 * return needs no such check, it ends the call of an entry. */
static __always_inline bool counts_elsewhere(u64 cookie)
{
#if WATCH_ALL
	return false;
#else
	u32 zero = 0, *own = own_links.lookup(&zero);
	return own && *own != cookie >> 63;
#endif
}

/* How many watched threads and processes have such a number: every switch and wakeup of the machine checks this before
 * any look-up. Several numbers share a slot, so "maybe" is the answer. A slot never counts too few: an entry of
 * `threads` or `procs` is counted before, and uncounted only by the program that has removed it. */
static __always_inline u32 *slot_of(u32 number)
{
	return &((struct slots *)SLOTS_AT)->counts[number & (SLOTS - 1)];
}

static __always_inline u32 maybe_watched(u32 number)
{
	return *slot_of(number);
}

static __always_inline void count_in(u32 number, s32 change)
{
	__sync_fetch_and_add(slot_of(number), change);
}

static __always_inline void watch_process(u32 pid)
{
	u32 one = 1;
	count_in(pid, 1);
	if (procs.insert(&pid, &one)) /* another thread was faster, or there is no room */
		count_in(pid, -1);
}

static __always_inline void forget_process(u32 pid)
{
	if (!procs.delete(&pid))
		count_in(pid, -1);
}

static __always_inline void forget_thread(u32 tid)
{
	if (!threads.delete(&tid))
		count_in(tid, -1);
}

static __always_inline struct cpu *cpu_of(u32 number)
{
	return cpus.lookup(&number);
}

static __always_inline void count_lost(struct cpu *c, u32 kind)
{
	if (kind < LOSS_KINDS)
		__sync_fetch_and_add(&c->lost[kind], 1);
}

/* A record with its common fields set and all others zero; NULL and counted when there is no room.
 * `seq` counts every try, so that a reader can prove losses without trusting the counters. */
static __always_inline struct record *begin(u32 kind, u32 loss, u64 t_end, u32 pid, u32 tid)
{
	u32 number = bpf_get_smp_processor_id();
	struct cpu *c = cpu_of(number);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->seq, 1);
	struct record *r = events.ringbuf_reserve(sizeof(struct record));
	if (!r) {
		count_lost(c, loss);
		return 0;
	}
	r->t_end = t_end;
	r->duration = 0;
	r->pid = pid;
	r->tid = tid;
	r->seq = c->seq;
	r->cpu = number;
	r->op = 0;
	r->kind = kind;
	r->depth = 0;
	r->flags = 0;
	r->ret = 0;
	r->bytes = 0;
	r->stream = 0;
	r->aux = 0;
	r->run_delay = 0;
	r->nvcsw = 0;
	r->nivcsw = 0;
	r->stack = 0;
	return r;
}

static __always_inline void submit(struct record *r)
{
	events.ringbuf_submit(r, 1); /* BPF_RB_NO_WAKEUP: the reader polls */
}

/* KIND_JOIN, KIND_FORK, KIND_EXEC, KIND_NAME: `bytes` and `stream` hold the thread's name. */
static __always_inline bool report_name(u32 kind, u64 now, u32 pid, u32 tid, void *task, u32 parent_pid,
				      u32 parent_tid)
{
	struct record *r = begin(kind, LOST_OTHERS, now, pid, tid);
	if (!r)
		return false;
	bpf_probe_read_kernel(&r->bytes, 16, (char *)task + TASK_COMM / 8);
	r->aux = ((u64)parent_tid << 32) | parent_pid;
	submit(r);
	return true;
}

/* Names a thread that other records mention, once; again where the ring had no room for the name. */
static __always_inline void name_once(u64 now, u32 pid, u32 tid, void *task)
{
	u32 one = 1;
	if (!tid || named.lookup(&tid))
		return;
	if (report_name(KIND_NAME, now, pid, tid, task, 0, 0))
		named.update(&tid, &one);
}

static __always_inline struct thread *new_thread(u32 pid, u32 tid)
{
	u32 zero = 0;
	struct thread *empty = blank.lookup(&zero), *t;
	if (!empty)
		return 0;
	count_in(tid, 1);
	if (threads.insert(&tid, empty)) {
		count_in(tid, -1); /* an entry that was not removed is counted already */
		threads.update(&tid, empty);
	}
	t = threads.lookup(&tid);
	if (!t) {
		struct cpu *c = cpu_of(bpf_get_smp_processor_id());
		if (c)
			count_lost(c, LOST_THREADS);
		return 0;
	}
	t->pid = pid;
	t->tid = tid;
	return t;
}

/* The calling thread enters the watched set, unless its process is not to be watched. */
static __always_inline struct thread *join(u32 pid, u32 tid, bool may_add)
{
	if (!procs.lookup(&pid)) {
		if (!may_add || pid == OWN_PID)
			return 0;
		watch_process(pid);
	}
	void *task = get_current_task_btf();
	if (FIELD(u32, task, TASK_FLAGS) & PF_EXITING)
		return 0;
	struct thread *t = new_thread(pid, tid);
	if (!t)
		return 0;
	t->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	t->min_flt = FIELD(u64, task, TASK_MIN_FLT);
	report_name(KIND_JOIN, bpf_ktime_get_ns(), pid, tid, task, 0, 0);
	return t;
}
