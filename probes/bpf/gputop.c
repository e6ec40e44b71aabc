/* gputop's probes: entry and return of CUDA calls, and what the scheduler does to their threads.
 *
 * probes/loader.py puts the record layout (probes/schema.py), the offsets of kernel structures
 * (probes/btf.py) and the limits below in front of this text. No kernel header is needed.
 *
 * One entry of `threads` per watched thread holds both its open calls and its place in the
 * scheduler, so that a probe costs one hash lookup. A thread's calls are written by itself only;
 * its scheduler fields only under the run queue's lock.
 */
#include <uapi/linux/ptrace.h>

static void *(*get_current_task_btf)(void) = (void *)158;
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;
static void *(*task_registers)(void *task) = (void *)175;

#define FIELD(type, base, bits) (*(type *)((char *)(base) + (bits) / 8))
#define PF_EXITING 0x4
#define TASK_DEAD 0x80
#define U16_MAX 0xffff
#define U32_MAX 0xffffffffU

BPF_RINGBUF_OUTPUT(events, RING_PAGES);
BPF_TABLE("hash", u32, struct thread, threads, MAX_THREADS);
BPF_TABLE("hash", u32, u32, procs, MAX_PROCS);
BPF_ARRAY(cpus, struct cpu, MAX_CPUS);
BPF_TABLE("lru_hash", u32, u32, named, 4096);
BPF_ARRAY(blank, struct thread, 1); /* zeroes, too many for the stack */

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
	return r;
}

static __always_inline void submit(struct record *r)
{
	events.ringbuf_submit(r, 1); /* BPF_RB_NO_WAKEUP: the reader polls */
}

/* KIND_JOIN, KIND_FORK, KIND_EXEC, KIND_NAME: `bytes` and `stream` hold the thread's name. */
static __always_inline void tell_name(u32 kind, u64 now, u32 pid, u32 tid, void *task, u32 parent_pid,
				      u32 parent_tid)
{
	struct record *r = begin(kind, LOST_OTHERS, now, pid, tid);
	if (!r)
		return;
	bpf_probe_read_kernel(&r->bytes, 16, (char *)task + TASK_COMM / 8);
	r->aux = ((u64)parent_tid << 32) | parent_pid;
	submit(r);
}

/* Names a thread that other records mention, once. */
static __always_inline void name_once(u64 now, u32 pid, u32 tid, void *task)
{
	u32 one = 1;
	if (!tid || named.lookup(&tid))
		return;
	named.update(&tid, &one);
	tell_name(KIND_NAME, now, pid, tid, task, 0, 0);
}

static __always_inline struct thread *new_thread(u32 pid, u32 tid)
{
	u32 zero = 0;
	struct thread *empty = blank.lookup(&zero), *t;
	if (!empty)
		return 0;
	threads.update(&tid, empty);
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
	u32 one = 1;
	if (!procs.lookup(&pid)) {
		if (!may_add || pid == OWN_PID)
			return 0;
		procs.update(&pid, &one);
	}
	void *task = get_current_task_btf();
	if (FIELD(u32, task, TASK_FLAGS) & PF_EXITING)
		return 0;
	struct thread *t = new_thread(pid, tid);
	if (!t)
		return 0;
	t->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	tell_name(KIND_JOIN, bpf_ktime_get_ns(), pid, tid, task, 0, 0);
	return t;
}

/* -- CUDA calls ----------------------------------------------------------------------------- */

/* The registers that carry arguments, copied: the verifier allows no computed access to the context. */
struct registers {
	u64 argument[8];
	u64 sp;
};

static __always_inline u64 reg(struct registers *regs, u32 number)
{
	return regs->argument[number & 7];
}

static __always_inline u64 user_u64(u64 address)
{
	u64 value = 0;
	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Argument modes of probes/api.py: none, register, stack slot, struct member, constant. */
static __always_inline u64 argument(struct registers *regs, u32 mode, u32 value, u32 eights)
{
	switch (mode) {
	case 1: return reg(regs, value);
	case 2: return user_u64(regs->sp + STACK_ARGUMENTS + 8 * value);
	case 3: return user_u64(reg(regs, value) + 8 * eights);
	case 4: return value;
	default: return 0;
	}
}

static __always_inline u64 size_argument(struct registers *regs, u64 cookie)
{
	u32 a = cookie >> 14 & 7, b = cookie >> 17 & 7;
	u64 address, size;
	switch (cookie >> 11 & 7) {
	case 1: return reg(regs, a) << b;
	case 2: return reg(regs, a) * reg(regs, b);
	case 3:
		address = reg(regs, a) + 8 * (cookie >> 20 & 63);
		size = user_u64(address) * user_u64(address + 8);
		return b == 3 ? size * user_u64(address + 16) : size;
	case 4: /* log2 of the size of each ncclDataType_t, four bits each */
		return reg(regs, a) << (0x001321332200ULL >> (4 * (reg(regs, b) & 15)) & 15);
	default: return 0;
	}
}

static __always_inline void emit_call(struct thread *t, struct call *f, u64 now, u32 depth, s32 ret, u16 flags,
				      void *task)
{
	struct record *r = begin(KIND_CALL, LOST_CALLS, now, t->pid, t->tid);
	if (!r)
		return;
	r->duration = now - f->start;
	r->op = f->op;
	r->depth = depth;
	r->flags = f->flags | flags | (depth ? CALL_NESTED : 0);
	r->ret = ret;
	r->bytes = f->bytes;
	r->stream = f->stream;
	r->aux = f->aux;
	if (f->counted && task) {
		u64 delay = FIELD(u64, task, TASK_RUN_DELAY) - f->run_delay;
		u64 voluntary = FIELD(u64, task, TASK_NVCSW) - f->nvcsw;
		u64 involuntary = FIELD(u64, task, TASK_NIVCSW) - f->nivcsw;
		r->run_delay = delay < U32_MAX ? delay : U32_MAX;
		r->nvcsw = voluntary < U16_MAX ? voluntary : U16_MAX;
		r->nivcsw = involuntary < U16_MAX ? involuntary : U16_MAX;
		r->flags |= CALL_COUNTERS;
	}
	submit(r);
}

/* Whether the word at `sp` is the kernel's return trampoline: the call came by a tail jump out of a
 * probed function, so that both share one frame. The trampoline lies in the last pages of the address
 * space, where no code of a program can be. */
static __always_inline bool tail_jump(u64 sp)
{
	return user_u64(sp) - TRAMPOLINE_MIN < 0x10000; /* up to the end of the address space */
}

/* Calls whose frame lies at or below `sp` will never return: longjmp, C++ exception, pthread_exit. */
static __always_inline void drop_abandoned(struct thread *t, u64 sp, u64 now)
{
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++) {
		u32 top = t->depth - 1;
		if (top >= MAX_DEPTH)
			return;
		struct call *f = &t->calls[top];
		if (f->sp > sp || (f->sp == sp && tail_jump(sp)))
			return;
		emit_call(t, f, now, top, 0, CALL_ABANDONED, 0);
		t->depth = top;
	}
}

/* Calls whose return address was overwritten were left, although they lie above the new one. Asked
 * only where a call of the same or a higher layer is made "inside" another: the usual driver call
 * inside its runtime call need not pay for the read. */
static __always_inline void drop_overwritten(struct thread *t, u64 now)
{
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++) {
		u32 top = t->depth - 1;
		if (top >= MAX_DEPTH)
			return;
		struct call *f = &t->calls[top];
		if (tail_jump(f->sp))
			return;
		emit_call(t, f, now, top, 0, CALL_ABANDONED, 0);
		t->depth = top;
	}
}

int on_entry(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, pid = id >> 32;
	struct thread *t = threads.lookup(&tid);
	if (!t) {
		t = join(pid, tid, WATCH_ALL);
		if (!t)
			return 0;
	}
	struct registers regs = {{REG_0, REG_1, REG_2, REG_3, REG_4, REG_5, 0, 0}, REG_SP};
	u64 sp = regs.sp, cookie = get_attach_cookie(ctx);
	u32 depth = t->depth;
	if (depth && depth <= MAX_DEPTH && t->calls[(depth - 1) & (MAX_DEPTH - 1)].sp <= sp) {
		drop_abandoned(t, sp, bpf_ktime_get_ns());
		depth = t->depth;
	}
	u32 rank = cookie >> 52 & 3;
	if (depth && depth <= MAX_DEPTH) {
		struct call *outer = &t->calls[(depth - 1) & (MAX_DEPTH - 1)];
		if (rank >= outer->rank && !tail_jump(outer->sp)) {
			drop_overwritten(t, bpf_ktime_get_ns());
			depth = t->depth;
		}
	}
	if (depth >= MAX_DEPTH) {
		struct cpu *c = cpu_of(bpf_get_smp_processor_id());
		if (c)
			count_lost(c, LOST_NESTING);
		return 0;
	}
	struct call *f = &t->calls[depth & (MAX_DEPTH - 1)];
	f->op = cookie & 1023;
	f->rank = rank;
	f->sp = sp;
	f->counted = cookie >> 10 & 1;
	f->bytes = size_argument(&regs, cookie);
	f->flags = (argument(&regs, cookie >> 26 & 7, cookie >> 29 & 7, cookie >> 32 & 31) & 7) << COPY_SHIFT;
	f->stream = argument(&regs, cookie >> 37 & 7, cookie >> 40 & 7, cookie >> 43 & 15);
	if (!f->stream && cookie >> 51 & 1)
		f->stream = 2; /* cudaStreamPerThread */
	f->aux = cookie >> 47 & 1 ? reg(&regs, cookie >> 48 & 7) : 0;
	if (f->counted) {
		void *task = get_current_task_btf();
		f->run_delay = FIELD(u64, task, TASK_RUN_DELAY);
		f->nvcsw = FIELD(u64, task, TASK_NVCSW);
		f->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	}
	t->depth = depth + 1;
	t->called = 1;
	f->start = bpf_ktime_get_ns();
	return 0;
}

int on_return(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *t = threads.lookup(&tid);
	if (!t)
		return 0;
	u64 sp = REG_SP - RETURN_POPS;
	u32 top = t->depth - 1;
	if (top < MAX_DEPTH && t->calls[top].sp < sp) {
		drop_abandoned(t, sp - 1, now);
		top = t->depth - 1;
	}
	if (top >= MAX_DEPTH)
		return 0; /* its entry was not seen */
	struct call *f = &t->calls[top];
	if (f->sp != sp)
		return 0;
	emit_call(t, f, now, top, (s32)REG_RETURN, 0, get_current_task_btf());
	t->depth = top;
	return 0;
}

/* -- the scheduler -------------------------------------------------------------------------- */

static __always_inline void enqueue(struct thread *t, u64 now, u32 number)
{
	struct cpu *c = cpu_of(number);
	if (t->queued_since || !c)
		return;
	t->queued_since = now;
	t->queue_cpu = number;
	t->first_queue_cpu = number;
	__sync_fetch_and_add(&c->queued, 1);
}

static __always_inline void take_cpu(struct thread *t, u64 now)
{
	struct cpu *c = cpu_of(t->queue_cpu);
	if (t->queued_since && c)
		__sync_fetch_and_add(&c->queued, -1);
	if (t->off_since) {
		struct record *r = begin(KIND_OFFCPU, LOST_SLICES, now, t->pid, t->tid);
		if (r) {
			r->duration = now - t->off_since;
			r->op = t->syscall;
			r->flags = t->off_flags;
			r->ret = t->state;
			r->stream = ((u64)t->waker_tid << 32) | t->waker_pid;
			r->aux = ((u64)t->next_tid << 32) | t->next_pid;
			r->nvcsw = t->first_queue_cpu;
			if (t->queued_since)
				r->bytes = now - t->queued_since;
			else
				r->flags |= OFF_WAKE_MISSED;
			submit(r);
		}
	}
	t->off_since = 0;
	t->queued_since = 0;
	t->waker_pid = t->waker_tid = 0;
}

static __always_inline void leave_cpu(struct thread *t, void *task, u64 now, u32 number, bool preempt,
				      s64 state, void *next, u64 next_id)
{
	u64 nivcsw = FIELD(u64, task, TASK_NIVCSW);
	struct pt_regs *user = task_registers(task);
	if (t->off_since) /* nobody saw it come back: the kernel hides some threads' switches from BPF */
		take_cpu(t, t->queued_since ? t->queued_since : now);
	t->off_since = now;
	t->state = state;
	t->off_flags = nivcsw != t->nivcsw ? OFF_INVOLUNTARY : 0;
	t->nivcsw = nivcsw;
	if (FIELD(u8, task, TASK_IN_IOWAIT) >> (TASK_IN_IOWAIT & 7) & 1)
		t->off_flags |= OFF_IOWAIT;
	s64 syscall = -1;
	bpf_probe_read_kernel(&syscall, sizeof(syscall), (char *)user + SYSCALL_OFFSET);
	t->syscall = syscall < 0 || syscall > NO_SYSCALL ? NO_SYSCALL : syscall;
	t->next_pid = next_id >> 32;
	t->next_tid = next_id;
	if (preempt || !state) {
		t->off_flags |= OFF_QUEUED;
		t->waker_pid = t->waker_tid = 0;
		enqueue(t, now, number);
		name_once(now, t->next_pid, t->next_tid, next);
	}
}

int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u64 now = bpf_ktime_get_ns();
	bool preempt = ctx->args[0];
	void *next = (void *)ctx->args[2];
	u32 number = bpf_get_smp_processor_id();
	u64 id = bpf_get_current_pid_tgid(), next_id = 0;
	u32 prev_tid = id, prev_pid = id >> 32, next_tid;
	struct cpu *c = cpu_of(number);
	if (!c)
		return 0;
	bpf_probe_read_kernel(&next_id, 8, (char *)next + TASK_PID / 8); /* pid, then tgid */
	next_tid = next_id;

	void *prev = get_current_task_btf();
	struct thread *t = 0;
	if (prev_tid) {
		t = threads.lookup(&prev_tid);
		if (!t)
			t = join(prev_pid, prev_tid, false);
	}
	if ((c->queued > 0 || c->force) && c->since) {
		struct record *r = begin(KIND_OCCUPANT, LOST_OTHERS, now, prev_pid, prev_tid);
		if (r) {
			r->duration = now - c->since;
			submit(r);
		}
		if (!t)
			name_once(now, prev_pid, prev_tid, prev);
	}
	c->force = 0;
	c->since = now;
	if (t)
		leave_cpu(t, prev, now, number, preempt, ctx->args[3] & U32_MAX, next, next_id);
	if (next_tid) {
		t = threads.lookup(&next_tid);
		if (t)
			take_cpu(t, now);
	}
	return 0;
}

static __always_inline struct thread *thread_of(void *task)
{
	u32 tid = 0;
	bpf_probe_read_kernel(&tid, 4, (char *)task + TASK_PID / 8);
	return tid ? threads.lookup(&tid) : 0;
}

/* Who wakes it: here `current` is right, in sched_wakeup it is wrong for up to 12 % (remote wakeups). */
int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *t = thread_of((void *)ctx->args[0]);
	if (!t)
		return 0;
	u64 id = bpf_get_current_pid_tgid();
	t->waker_tid = id;
	t->waker_pid = id >> 32;
	if (!t->waker_tid)
		t->off_flags |= OFF_WAKER_IRQ;
	return 0;
}

static __always_inline void woken(void *task)
{
	struct thread *t = thread_of(task);
	u32 number = 0;
	if (!t || !t->off_since)
		return; /* it had not left its CPU yet */
	bpf_probe_read_kernel(&number, 4, (char *)task + (TASK_THREAD_INFO + THREAD_INFO_CPU) / 8);
	enqueue(t, bpf_ktime_get_ns(), number);
}

/* When it enters a run queue: what sched_info.run_delay counts from. */
int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	woken((void *)ctx->args[0]);
	return 0;
}

int on_wakeup_new(struct bpf_raw_tracepoint_args *ctx)
{
	woken((void *)ctx->args[0]);
	return 0;
}

int on_migrate(struct bpf_raw_tracepoint_args *ctx)
{
	u32 target = ctx->args[1];
	struct thread *t = thread_of((void *)ctx->args[0]);
	if (!t || !t->queued_since || t->queue_cpu == target)
		return 0;
	struct cpu *from = cpu_of(t->queue_cpu), *to = cpu_of(target);
	if (!from || !to)
		return 0;
	__sync_fetch_and_add(&from->queued, -1);
	from->force = 1;
	__sync_fetch_and_add(&to->queued, 1);
	t->queue_cpu = target;
	t->off_flags |= OFF_MIGRATED;
	struct record *r = begin(KIND_MIGRATE, LOST_OTHERS, bpf_ktime_get_ns(), t->pid, t->tid);
	if (r) {
		r->nvcsw = target;
		submit(r);
	}
	return 0;
}

int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	void *child = (void *)ctx->args[1];
	u64 id = bpf_get_current_pid_tgid(), child_id = 0, now = bpf_ktime_get_ns();
	u32 pid = id >> 32, child_pid, child_tid, one = 1;
	if (!procs.lookup(&pid))
		return 0;
	bpf_probe_read_kernel(&child_id, 8, (char *)child + TASK_PID / 8);
	child_tid = child_id;
	child_pid = child_id >> 32;
	if (child_pid != pid)
		procs.update(&child_pid, &one);
	struct thread *t = new_thread(child_pid, child_tid);
	if (!t)
		return 0;
	t->off_since = now;
	t->off_flags = OFF_BIRTH;
	t->syscall = NO_SYSCALL;
	tell_name(KIND_FORK, now, child_pid, child_tid, child, pid, (u32)id);
	return 0;
}

/* An exec ends the other threads; a thread that was not the leader takes over the leader's number. */
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	u32 old_tid = ctx->args[1];
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, pid = id >> 32;
	if (!procs.lookup(&pid))
		return 0;
	if (old_tid != tid)
		threads.delete(&old_tid);
	void *task = get_current_task_btf();
	struct thread *t = threads.lookup(&tid);
	if (!t)
		t = new_thread(pid, tid);
	if (!t)
		return 0;
	t->depth = 0;
	t->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	tell_name(KIND_EXEC, bpf_ktime_get_ns(), pid, tid, task, 0, 0);
	return 0;
}

int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 tid = id, pid = id >> 32, live = 1, code = 0;
	void *task = get_current_task_btf(), *signal = 0;
	if (named.lookup(&tid))
		named.delete(&tid); /* the number may be given to somebody else */
	struct thread *t = threads.lookup(&tid);
	bpf_probe_read_kernel(&signal, 8, (char *)task + TASK_SIGNAL / 8);
	bpf_probe_read_kernel(&live, 4, (char *)signal + SIGNAL_LIVE / 8);
	if (t) {
		drop_abandoned(t, ~0ULL, now);
		struct record *r = begin(KIND_EXIT, LOST_OTHERS, now, pid, tid);
		if (r) {
			r->ret = FIELD(s32, task, TASK_EXIT_CODE);
			r->flags = (live ? 0 : EXIT_GROUP_DEAD) | (t->called ? EXIT_CALLED : 0);
			submit(r);
		}
		threads.delete(&tid);
	}
	if (!live)
		procs.delete(&pid);
	return 0;
}
