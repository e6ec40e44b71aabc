/* Lines of calls: a text of its own, compiled after the other one and only where lines are requested.
 *
 * on_entry of calls.c ends in `on_line`, once this is loaded. The maps of the other text are reached by marks
 * that probes/stacks/programs.py puts in front as PROCS_FD, THREADS_FD and STOPPED_FD, and that probes/ebpf/module.py
 * changes into their file descriptors. Forks, execs and exits come by the same tracepoints once
 * more: they are rare.
 */
#define OTHERS(fd, key) bpf_map_lookup_elem_(bpf_pseudo_fd(1, fd), key)

static __always_inline bool is_stopped(void)
{
#ifdef STOPPED_FD
	u32 zero = 0, *word = OTHERS(STOPPED_FD, &zero);
	return word && *word;
#else
	return false;
#endif
}

/* Drops the places that are kept of a process. */
static __always_inline void forget_places(u32 pid, u32 python)
{
	u32 slot = pid & (SITE_STATES - 1);
	struct site_state *s = OTHERS(SITE_STATES_FD, &slot);
	if (!s)
		return;
	if (python)
		s->python = python;
	s->since = bpf_ktime_get_ns();
}

static __always_inline struct scratch *new_scratch(u32 pid, u32 tid)
{
	u32 zero = 0;
	struct python *p = pythons.lookup(&pid);
	struct scratch *empty = empty_scratch.lookup(&zero), *s;
	if (!p || !empty)
		return 0;
	scratches.update(&tid, empty);
	s = scratches.lookup(&tid);
	if (!s)
		return 0;
	s->python = *p;
	s->stack.head.pid = pid;
	return s;
}

#ifdef TASK_FSBASE
/* The interpreter's state of the thread with this FS base. */
static __always_inline u64 state_of(struct python *p, u64 base)
{
	u64 value = user_u64(base + p->slot);
	if (p->module)
		value = user_u64(value + TLS_MODULE_BYTES * p->module);
	return (p->inner || p->module) && value ? user_u64(value + p->inner) : value;
}

/* Where this interpreter's threads keep their state: under a key, or in a variable that each of them has. */
static __always_inline bool find_slot(struct python *p, struct interpreter *o, u64 bias, u64 base)
{
	u32 key = ~0;
	if (o->key == NO_FRAME) {
		p->slot = -o->state_offset;
		if (!o->state_module)
			return true;
		u64 module = user_u64(bias + o->state_module);
		u64 block = user_u64(user_u64(base + TLS_MODULES) + TLS_MODULE_BYTES * module);
		p->slot = block + o->state_offset - base;
		if (base - block <= TLS_STATIC)
			return true;
		p->slot = TLS_MODULES;
		p->inner = o->state_offset;
		p->module = module;
		return module < TLS_MOST_MODULES;
	}
	bpf_probe_read_user(&key, sizeof(key), (void *)(bias + o->runtime + o->key));
	p->slot = TLS_SLOTS + 16 * key;
	if (key >= TLS_KEYS) {
		p->slot = TLS_BLOCKS + 8 * (key / TLS_KEYS);
		p->inner = 8 + 16 * (key % TLS_KEYS);
	}
	return key < TLS_MOST_KEYS;
}

static __always_inline u64 stack_of(struct scratch *s, u64 sp, struct stack_head *natives, u64 chain)
{
	u32 row = s->python.row, one = 1;
	struct interpreter *o = interpreters.lookup(&row);
	if (!o)
		return NO_PYTHON;
	u64 base = FIELD(u64, get_current_task_btf(), TASK_FSBASE);
	u64 state = state_of(&s->python, base);
	if (!state)
		return NO_PYTHON; /* a thread that Python does not know */
	u8 *head = s->u.windows[0].data;
	if (bpf_probe_read_user(head, 192, (void *)state) || *(u64 *)(head + (o->thread_id & 255)) != base)
		return NOT_READ;
	u64 frame = *(u64 *)(head + (o->frame & 127));
	if (o->cframe != NO_FRAME)
		frame = user_u64(frame + o->cframe);
	if (!frame)
		return NO_PYTHON;
	if (!walk(s, o, frame, sp))
		return NOT_READ;
	u64 id = (chain ? mix(s->hash, chain) : s->hash) >> 2 | FIRST_STACK;
	if (reported.lookup(&id))
		return id;
	u64 runtime = s->python.code_type - o->code_type + o->runtime;
	if (o->first_only && user_u64(user_u64(runtime + o->interpreters) + o->next_interpreter))
		return NOT_READ; /* more than one interpreter, and the thread may be in another one than that of its slot */
	if (!report_stack(s, o, id, natives))
		return NO_ROOM;
	reported.update(&id, &one);
	return id;
}
#endif

/* The identifier of the calling thread's Python stack, with the native code above it if that was walked; or why
 * there is none. */
static __always_inline u64 mixed_stack(u32 pid, u32 tid, u64 sp, u64 looks, struct stack_head *natives,
				       u64 chain)
{
#ifdef TASK_FSBASE
	struct scratch *s = scratches.lookup(&tid);
	if (!s)
		s = new_scratch(pid, tid);
	if (!s)
		return NO_PYTHON;
	if (s->busy)
		return NOT_READ;
	s->busy = 1;
	s->serial = s->python.serial ^ looks;
	asm volatile("" ::: "memory");
	u64 id = stack_of(s, sp, natives, chain);
	asm volatile("" ::: "memory");
	s->busy = 0;
	return id;
#else
	return NO_PYTHON;
#endif
}

static __always_inline u64 python_stack(u32 pid, u32 tid, u64 sp, u64 looks)
{
	return mixed_stack(pid, tid, sp, looks, 0, 0);
}

/* The end of on_entry: the line of the call that it has opened. */
int on_line(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, pid = id >> 32;
	struct thread *t = OTHERS(THREADS_FD, &tid);
	if (!t)
		return 0;
	struct call *f = call_at(t, t->depth - 1);
	u32 slot = pid & (SITE_STATES - 1);
	u64 site = site_of(ctx, OTHERS(SITE_STATES_FD, &slot), pid); /* as it is before the walk */
	struct stack_head natives = {.pid = pid};
	u64 chain = native_chain(ctx, &natives, RETURN_ADDRESS, 0);
	u64 stack = mixed_stack(pid, tid, REG_SP, 0, chain ? &natives : 0, chain);
	if (stack == NO_PYTHON && chain)
		stack = native_stack(&natives, chain, 0);
	if (site && stack >= FIRST_STACK && !pythons.lookup(&pid)) {
		slot = site_slot(site);
		keep_stack(OTHERS(SITES_FD, &slot), site, stack);
	}
	f->stack = stack;
	f->start = bpf_ktime_get_ns();
	return 0;
}

/* A timer of each CPU: the line that a watched thread is at, unless it is in a call, which has its own. The
 * thread itself is interrupted, so its stack stands still. */
int on_timer(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id;
	struct thread *t = OTHERS(THREADS_FD, &tid);
	if (!t || t->depth || is_stopped())
		return 0;
	struct line_record r = {.kind = LINE_RECORD, .pid = id >> 32, .tid = tid, .syscall = NO_SYSCALL};
	struct {
		u64 argument;
		SYSCALL_TYPE number;
	} frame = {0, -1};
	void *user = task_registers(get_current_task_btf());
	bpf_probe_read_kernel(&frame, sizeof(frame.argument) + sizeof(frame.number), (char *)user + SYSCALL_FRAME);
	if (frame.number >= 0 && frame.number < NO_SYSCALL) { /* an interrupt of the program itself has none */
		r.syscall = frame.number;
		r.argument = frame.argument;
	}
	r.time = bpf_ktime_get_ns();
	r.stack = python_stack(r.pid, tid, 0, SAMPLED);
	if (r.stack == NO_PYTHON) {
		struct stack_head natives = {.pid = r.pid};
		u64 chain = native_chain(ctx, &natives, 0, SAMPLED);
		if (chain)
			r.stack = native_stack(&natives, chain, SAMPLED);
	}
	if (r.stack >= FIRST_STACK)
		stacks.ringbuf_output(&r, sizeof(r), 1 /* BPF_RB_NO_WAKEUP */);
	return 0;
}

/* The stack pointer of the program that is in the kernel now. */
static __always_inline u64 user_sp(struct pt_regs *ctx)
{
	return REG_SP;
}

/* The end of on_switch: where a thread is that goes to sleep between two calls. Most are in a system call, but a
 * page that is missing makes them sleep anywhere, as a timer meets them. Preempted threads are left out. */
int on_leave(struct bpf_raw_tracepoint_args *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, pid = id >> 32;
	struct thread *t = OTHERS(THREADS_FD, &tid);
	if (!t || !pythons.lookup(&pid))
		return 0;
	t->off_stack = python_stack(pid, tid, user_sp(task_registers(get_current_task_btf())), SAMPLED);
	return 0;
}

/* Adds an interpreter, if it is initialised and knows this thread: `bias` is added to its file's addresses. */
static __always_inline void know(u32 pid, u32 row, struct interpreter *o, u64 bias)
{
#ifdef TASK_FSBASE
	if (pid == OWN_PID || (!WATCH_ALL && !OTHERS(PROCS_FD, &pid)))
		return;
	u64 base = FIELD(u64, get_current_task_btf(), TASK_FSBASE);
	struct python p = {.serial = bpf_ktime_get_ns(), .row = row};
	p.code_type = bias + o->code_type;
	if (!find_slot(&p, o, bias, base))
		return;
	u64 state = state_of(&p, base);
	if (state && user_u64(state + o->thread_id) == base) {
		pythons.insert(&pid, &p); /* or user space was faster: threads may have its serial already */
		forget_places(pid, pid);
	}
#endif
}

/* Py_RunMain: the first line is to come. */
int on_python(struct pt_regs *ctx)
{
	u32 row = get_attach_cookie(ctx);
	struct interpreter *o = interpreters.lookup(&row);
	if (o && !is_stopped())
		know(bpf_get_current_pid_tgid() >> 32, row, o, REG_IP - o->run_main);
	return 0;
}

static __always_inline void forget(u64 serial, u64 code)
{
	struct code_key key = {serial, code};
	if (!seen.lookup(&key))
		return;
	seen.delete(&key);
	u32 slot = generation_slot(serial, code);
	u64 *generation = generations.lookup(&slot);
	if (generation)
		__sync_fetch_and_add(generation, 1);
}

/* The code type's deallocator: the address may be another code object's soon. Programs that embed Python may never
 * come by Py_RunMain, but the modules that an interpreter begins with leave code behind. */
int on_code_free(struct pt_regs *ctx)
{
	if (is_stopped())
		return 0;
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct python *p = pythons.lookup(&pid);
	if (!p) {
		u32 row = get_attach_cookie(ctx);
		struct interpreter *o = interpreters.lookup(&row);
		if (o)
			know(pid, row, o, REG_IP - o->code_free);
		return 0;
	}
	forget(p->serial, REG_0);
	forget(p->serial ^ SAMPLED, REG_0);
	return 0;
}

/* The loader is about to map or unmap a library, or has done so: other code may have these addresses soon. */
int on_loader(struct pt_regs *ctx)
{
	if (is_stopped())
		return 0;
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct native *p = natives.lookup(&pid);
	if (p) {
		__sync_fetch_and_add(&p->generation, 1);
		forget_places(pid, 0);
	}
	return 0;
}

/* A child has its parent's libraries and interpreter, and its own code from here on. */
int on_python_fork(struct bpf_raw_tracepoint_args *ctx)
{
	void *child = (void *)ctx->args[1];
	u64 child_id = 0;
	bpf_probe_read_kernel(&child_id, 8, (char *)child + TASK_PID / 8);
	u32 pid = bpf_get_current_pid_tgid() >> 32, child_pid = child_id >> 32;
	if (child_pid == pid)
		return 0;
	if (OTHERS(PROCS_FD, &pid)) {
		struct fork_record r = {.kind = FORK_RECORD, .pid = child_pid, .parent = pid};
		r.time = bpf_ktime_get_ns();
		stacks.ringbuf_output(&r, sizeof(r), 1 /* BPF_RB_NO_WAKEUP */);
	}
	struct python *p = pythons.lookup(&pid);
	if (!p)
		return 0;
	struct python copy = *p;
	copy.serial = bpf_ktime_get_ns() ^ child_id << 32;
	pythons.update(&child_pid, &copy);
	forget_places(child_pid, child_pid);
	return 0;
}

static __always_inline void forget_program(u32 pid)
{
	u32 slot = pid & (SITE_STATES - 1);
	struct site_state *s = OTHERS(SITE_STATES_FD, &slot);
	if (s && s->python == pid)
		s->python = 0;
	pythons.delete(&pid);
	if (!natives.delete(&pid))
		forget_places(pid, 0);
}

int on_python_exec(struct bpf_raw_tracepoint_args *ctx)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32, old_tid = ctx->args[1];
	u32 tid = bpf_get_current_pid_tgid();
	scratches.delete(&tid);
	scratches.delete(&old_tid);
	forget_program(pid);
	return 0;
}

int on_python_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), signal = 0;
	u32 tid = id, pid = id >> 32, live = 1;
	bpf_probe_read_kernel(&signal, 8, (char *)get_current_task_btf() + TASK_SIGNAL / 8);
	bpf_probe_read_kernel(&live, 4, (char *)signal + SIGNAL_LIVE / 8);
	scratches.delete(&tid);
	if (!live)
		forget_program(pid);
	return 0;
}
