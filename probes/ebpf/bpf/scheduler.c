/* Scheduling of watched threads: switches, wakeups, migrations, births and ends. */

static __always_inline void enqueue(struct thread *t, u64 now, u32 number)
{
	struct cpu *c = cpu_of(number);
	if (t->queued_since || !c)
		return;
	if (!c->since)
		c->since = now; /* the running thread runs on, and withholds the CPU from this one from now on */
	t->queued_since = now;
	t->queue_cpu = number;
	t->first_queue_cpu = number;
	__sync_fetch_and_add(&c->queued, 1);
}

/* `now` is when a thread leaves its CPU because its group's quota is used up. Nothing is traced when the group
 * gets a new one, but its run queue adds up how long it was throttled, and has the time since when it is, both by its
 * own clock, which was read for this switch. */
static __always_inline void throttle(struct thread *t, void *task, u64 now)
{
#ifdef TASK_THROTTLED
	u64 group = 0, since = 0, total = 0, queue = 0, clock = 0;
	if (!(FIELD(u8, task, TASK_THROTTLED) >> (TASK_THROTTLED & 7) & 1))
		return;
	bpf_probe_read_kernel(&group, 8, (char *)task + TASK_CFS_RQ / 8);
	bpf_probe_read_kernel(&since, 8, (char *)group + CFS_RQ_SINCE / 8);
	bpf_probe_read_kernel(&total, 8, (char *)group + CFS_RQ_THROTTLED_TIME / 8);
	bpf_probe_read_kernel(&queue, 8, (char *)group + CFS_RQ_RQ / 8);
	bpf_probe_read_kernel(&clock, 8, (char *)queue + RQ_CLOCK / 8);
	t->group = group;
	t->group_time = since + (now - clock) - total;
	t->off_flags |= OFF_THROTTLED;
#endif
}

/* How much of a slice that ends `now` was waiting in a run queue. */
static __always_inline u64 runnable_time(struct thread *t, u64 now)
{
#ifdef TASK_THROTTLED
	if (t->off_flags & OFF_THROTTLED) {
		u64 total = 0, let_go;
		bpf_probe_read_kernel(&total, 8, (char *)t->group + CFS_RQ_THROTTLED_TIME / 8);
		let_go = t->group_time + total;
		/* not after it left: another group's thread now, and never let go by this one */
		return let_go > t->off_since && let_go < now ? now - let_go : 0;
	}
#endif
	return now - t->queued_since;
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
			r->flags = t->off_flags | t->waker_flags;
			r->ret = t->state;
			r->stream = ((u64)t->waker_tid << 32) | t->waker_pid;
			r->aux = ((u64)t->next_tid << 32) | t->next_pid;
			r->run_delay = t->argument;
			r->nvcsw = t->first_queue_cpu;
			r->nivcsw = t->faults < U16_MAX ? t->faults : U16_MAX;
			r->stack = t->off_stack;
			if (t->queued_since)
				r->bytes = runnable_time(t, now);
			else
				r->flags |= OFF_WAKE_MISSED;
			submit(r);
		}
	}
	t->off_since = 0;
	t->off_stack = 0;
	t->queued_since = 0;
	t->waker_pid = t->waker_tid = t->waker_flags = 0;
}

/* `now` it leaves its CPU, and its return was not seen: the kernel hides some switches from BPF programs.
 * It has been on a CPU since for as long as the kernel has counted; this switch brought the count up to date. */
static __always_inline void missed_return(struct thread *t, void *task, u64 now)
{
	u64 back = t->queued_since ? t->queued_since : now;
#ifdef TASK_RAN
	u64 ran = FIELD(u64, task, TASK_RAN) - t->ran, least = t->queued_since ? t->queued_since : t->off_since;
	back = least < now && ran < now - least ? now - ran : least;
#endif
	t->off_flags |= OFF_RETURN_MISSED;
	take_cpu(t, back);
}

static __always_inline void leave_cpu(struct thread *t, void *task, u64 now, u32 number, bool preempt,
				      s64 state, void *next, u64 next_id)
{
	u64 nivcsw = FIELD(u64, task, TASK_NIVCSW);
	u32 faults = FIELD(u64, task, TASK_MIN_FLT);
	struct pt_regs *user = task_registers(task);
	if (t->off_since)
		missed_return(t, task, now);
	t->off_since = now;
#ifdef TASK_RAN
	t->ran = FIELD(u64, task, TASK_RAN);
#endif
	t->state = state;
	t->off_flags = nivcsw != t->nivcsw ? OFF_INVOLUNTARY : 0;
	t->nivcsw = nivcsw;
	t->faults = faults - t->min_flt;
	t->min_flt = faults;
	if (FIELD(u8, task, TASK_IN_IOWAIT) >> (TASK_IN_IOWAIT & 7) & 1)
		t->off_flags |= OFF_IOWAIT;
	struct {
		u64 argument;
		SYSCALL_TYPE number;
	} frame = {0, -1};
	bpf_probe_read_kernel(&frame, sizeof(frame.argument) + sizeof(frame.number), (char *)user + SYSCALL_FRAME);
	t->syscall = frame.number < 0 || frame.number > NO_SYSCALL ? NO_SYSCALL : frame.number;
	t->argument = t->syscall == NO_SYSCALL ? 0 : frame.argument;
	t->next_pid = next_id >> 32;
	t->next_tid = next_id;
	if (preempt || !state) {
		t->off_flags |= OFF_QUEUED;
		t->waker_pid = t->waker_tid = t->waker_flags = 0;
		throttle(t, task, now);
		enqueue(t, now, number);
		name_once(now, t->next_pid, t->next_tid, next);
	}
}

static __always_inline u32 number_in(u64 task, u32 bits)
{
#ifdef TYPED /* the kernel knows the types of the tracepoint's arguments: a plain load, which costs nothing */
	asm volatile("" : "+r"(task)); /* bcc would make a call of it */
	return FIELD(u32, task, bits);
#else
	u32 number = 0;
	bpf_probe_read_kernel(&number, 4, (char *)task + bits / 8);
	return number;
#endif
}

#define tid_of(task) number_in(task, TASK_PID)
#define pid_of(task) number_in(task, TASK_PID + 32) /* tgid is behind pid */

int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u32 number = bpf_get_smp_processor_id(), prev_tid, prev_pid, next_tid;
	struct cpu *c = cpu_of(number);
	if (!c)
		return 0;
#ifdef TYPED
	prev_tid = tid_of(ctx->args[1]);
	prev_pid = pid_of(ctx->args[1]);
#else
	u64 id = bpf_get_current_pid_tgid();
	prev_tid = id;
	prev_pid = id >> 32;
#endif
	/* Neither thread is watched, and no watched one waits here: it is over before anything is called. The begin of
	 * this slice is not needed, unless a watched thread is queued meanwhile: then from that moment on. */
	if (!(maybe_watched(tid_of(ctx->args[2])) | maybe_watched(prev_tid) | maybe_watched(prev_pid)) &&
	    c->queued <= 0 && !c->force) {
		if (c->since) /* not written at each switch: other CPUs' are in the same lines */
			c->since = 0;
		return 0;
	}
	bool preempt = ctx->args[0];
	void *prev = get_current_task_btf(), *next = (void *)ctx->args[2];
	u64 now = bpf_ktime_get_ns(), next_id = 0;
#ifdef TASK_STATE /* before Linux 5.18 the tracepoint has no fourth argument */
	u32 state = FIELD(u32, prev, TASK_STATE);
#else
	u32 state = ctx->args[3];
#endif
	bpf_probe_read_kernel(&next_id, 8, (char *)next + TASK_PID / 8); /* pid, then tgid */
	next_tid = next_id;

	struct thread *t = 0;
	bool blocks = false; /* between two calls: inside one, that one's line is the place */
	if (prev_tid) {
		t = threads.lookup(&prev_tid);
		if (!t) {
			t = join(prev_pid, prev_tid, false);
			if (t && (preempt || !state))
				t->nivcsw--; /* the kernel has counted this switch already */
		}
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
	if (t) {
		blocks = !preempt && state && !t->depth;
		leave_cpu(t, prev, now, number, preempt, state, next, next_id);
	}
	if (next_tid) {
		t = threads.lookup(&next_tid);
		if (t)
			take_cpu(t, now);
	}
	if (blocks)
		leave_programs.call(ctx, 0); /* does not come back, unless lines are not recorded */
	return 0;
}

static __always_inline struct thread *thread_of(u64 task)
{
	u32 tid = tid_of(task);
	return maybe_watched(tid) ? threads.lookup(&tid) : 0;
}

#define IN_INTERRUPT 0x00ff0000 /* linux/preempt.h: hardirq and NMI */
#define IN_SOFTIRQ 0x00000100   /* serving one; the bits above it count sections with softirqs disabled */

/* The preemption count of this CPU, which shows interrupts; 0 where it cannot be found. */
static __always_inline u32 preempt_count(void)
{
	u32 count = 0;
#ifdef TASK_PREEMPT /* arm64 */
	count = FIELD(u32, get_current_task_btf(), TASK_PREEMPT);
#endif
#ifdef RUNQUEUE_TO_PREEMPT /* x86-64: a per-CPU variable, at a fixed distance from another one */
	u32 number = bpf_get_smp_processor_id();
	struct cpu *c = cpu_of(number);
	if (!c)
		return 0;
	if (!c->preempt) {
		u64 queue = 0;
		s32 owner = -1;
		bpf_probe_read_kernel(&queue, 8, (char *)get_current_task_btf() + TASK_CFS_RQ / 8);
		bpf_probe_read_kernel(&queue, 8, (char *)queue + CFS_RQ_RQ / 8);
		bpf_probe_read_kernel(&owner, 4, (char *)queue + RQ_CPU / 8);
		if (owner != number)
			return 0;
		c->preempt = queue + RUNQUEUE_TO_PREEMPT;
	}
	bpf_probe_read_kernel(&count, 4, (void *)c->preempt);
#endif
	return count;
}

/* The waker: here `current` is right, in sched_wakeup it is wrong for up to 12 % (remote wakeups).
 * Unless this is an interrupt: then `current` is the interrupted thread. A softirq may be either: a send through
 * the loopback runs the receiver's side in the sender, a timer runs in any thread on the CPU. */
int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *t = thread_of(ctx->args[0]);
	if (!t)
		return 0;
	u64 id = bpf_get_current_pid_tgid();
	u32 count = preempt_count();
	t->waker_flags = count & IN_SOFTIRQ ? OFF_WAKER_SOFTIRQ : 0;
	if (!(u32)id || count & IN_INTERRUPT) {
		t->waker_flags = OFF_WAKER_IRQ;
		id = 0;
	}
	t->waker_tid = id;
	t->waker_pid = id >> 32;
	return 0;
}

static __always_inline void woken(u64 task)
{
	struct thread *t = thread_of(task);
	u32 number = 0;
	if (!t || !t->off_since)
		return; /* it had not left its CPU yet */
	bpf_probe_read_kernel(&number, 4, (void *)task + TASK_CPU / 8);
	enqueue(t, bpf_ktime_get_ns(), number);
}

/* When it enters a run queue: the start of sched_info.run_delay. */
int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	woken(ctx->args[0]);
	return 0;
}

int on_wakeup_new(struct bpf_raw_tracepoint_args *ctx)
{
	woken(ctx->args[0]);
	return 0;
}

int on_migrate(struct bpf_raw_tracepoint_args *ctx)
{
	u32 target = ctx->args[1];
	struct thread *t = thread_of(ctx->args[0]);
	if (!t || !t->queued_since || t->queue_cpu == target)
		return 0;
	struct cpu *from = cpu_of(t->queue_cpu), *to = cpu_of(target);
	u64 now = bpf_ktime_get_ns();
	if (!from || !to)
		return 0;
	if (!to->since)
		to->since = now;
	__sync_fetch_and_add(&from->queued, -1);
	from->force = 1;
	__sync_fetch_and_add(&to->queued, 1);
	t->queue_cpu = target;
	t->off_flags |= OFF_MIGRATED;
	struct record *r = begin(KIND_MIGRATE, LOST_OTHERS, now, t->pid, t->tid);
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
	u32 pid = id >> 32, child_pid, child_tid;
	bpf_probe_read_kernel(&child_id, 8, (char *)child + TASK_PID / 8);
	child_tid = child_id;
	child_pid = child_id >> 32;
	if (!procs.lookup(&pid))
		return 0;
	if (child_pid != pid)
		watch_process(child_pid);
	struct thread *t = new_thread(child_pid, child_tid);
	if (!t)
		return 0;
	t->off_since = now;
	t->off_flags = OFF_BIRTH;
	t->syscall = NO_SYSCALL;
	report_name(KIND_FORK, now, child_pid, child_tid, child, pid, (u32)id);
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
		forget_thread(old_tid);
	void *task = get_current_task_btf();
	struct thread *t = threads.lookup(&tid);
	if (!t)
		t = new_thread(pid, tid);
	if (!t)
		return 0;
	t->depth = 0;
	t->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	t->min_flt = FIELD(u64, task, TASK_MIN_FLT);
	report_name(KIND_EXEC, bpf_ktime_get_ns(), pid, tid, task, 0, 0);
	return 0;
}

int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 tid = id, pid = id >> 32, live = 1;
	void *task = get_current_task_btf(), *signal = 0;
	if (named.lookup(&tid))
		named.delete(&tid); /* the number may be reused */
	struct thread *t = threads.lookup(&tid);
	bpf_probe_read_kernel(&signal, 8, (char *)task + TASK_SIGNAL / 8);
	bpf_probe_read_kernel(&live, 4, (char *)signal + SIGNAL_LIVE / 8);
	bool watched = t || procs.lookup(&pid);
	if (t) {
		report_inner(t, now, 0);
		drop_abandoned(t, ~0ULL, 0, now);
	} else if (watched)
		report_name(KIND_JOIN, now, pid, tid, task, 0, 0); /* it slept ever since it is watched */
	if (watched) {
		struct record *r = begin(KIND_EXIT, LOST_OTHERS, now, pid, tid);
		if (r) {
			r->ret = FIELD(s32, task, TASK_EXIT_CODE);
			r->bytes = FIELD(u64, task, TASK_MIN_FLT);
			r->stream = FIELD(u64, task, TASK_MAJ_FLT);
			r->flags = (live ? 0 : EXIT_GROUP_DEAD) | (t && t->called ? EXIT_CALLED : 0);
			submit(r);
		}
		forget_thread(tid);
	}
	if (!live)
		forget_process(pid);
	return 0;
}

/* The kernel is short of memory and has chosen whom it ends. */
int on_oom(struct bpf_raw_tracepoint_args *ctx)
{
	u64 now = bpf_ktime_get_ns();
#ifdef OOM_TELLS_TASK
	u64 id = 0;
	bpf_probe_read_kernel(&id, 8, (char *)ctx->args[0] + TASK_PID / 8); /* pid, then tgid */
	u32 tid = id, pid = id >> 32;
#else
	u32 tid = ctx->args[0], pid = tid; /* a thread that has memory: the first one, as long as it lives */
	struct thread *t = threads.lookup(&tid);
	if (t)
		pid = t->pid;
#endif
	if (!procs.lookup(&pid))
		return 0;
	struct record *r = begin(KIND_OOM, LOST_OTHERS, now, pid, tid);
	if (r)
		submit(r);
	return 0;
}
