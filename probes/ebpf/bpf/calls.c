/* Entry and return of CUDA calls: a stack of open calls for each thread, a record at each end.
 *
 * Where the kernel has sessions (Linux 6.13) one program, on_call, is at both; its entry decides whether it runs at the
 * return: an unwatched thread then pays for one trap in place of two.
 */
static u64 (*get_func_ip)(void *ctx) = (void *)173;
#define NO_RETURN 1
#define LAUNCHES 1
#define LAUNCHED_INSIDE 2 /* and its record is still to be sent */
#define API_ROW(cookie) ((cookie) & 1023)
#define RANK(cookie) ((cookie) >> 52 & 3)
#define IS_LAUNCH(cookie) (((cookie) >> 58 & 3) != 0)

/* `made` is the handle that a successful call left where its first argument points, else 0. */
static __always_inline void emit_call(struct thread *t, struct call *f, u64 now, u32 depth, s32 ret, u16 flags,
				      void *task, u64 made)
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
	r->stream = f->out == OUT_STREAM ? made : f->stream;
	r->aux = f->out == OUT_AUX ? made : f->aux;
	r->stack = f->stack;
	if (f->counted && task) {
		u64 delay = FIELD(u64, task, TASK_RUN_DELAY) - f->run_delay;
		u64 voluntary = FIELD(u64, task, TASK_NVCSW) - f->nvcsw;
		u64 involuntary = FIELD(u64, task, TASK_NIVCSW) - f->nivcsw;
		r->run_delay = delay < U32_MAX ? delay : U32_MAX;
		r->nvcsw = voluntary < U16_MAX ? voluntary : U16_MAX;
		r->nivcsw = involuntary < U16_MAX ? involuntary : U16_MAX;
		r->flags |= CALL_COUNTERS;
	} else if (!f->counted) {
		r->run_delay = f->run_delay;
	}
	submit(r);
}

/* Calls whose frame lies at or below `sp` will never return: longjmp, C++ exception, pthread_exit.
 *
 * At the same place in the stack the outer call is still open where the new one returns to the kernel's
 * return trampoline: it came by a tail jump out of a probed function, and both share one frame. */
static __always_inline void drop_abandoned(struct thread *t, u64 sp, u64 returns_to, u64 now)
{
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++) {
		u32 top = t->depth - 1;
		if (top >= MAX_DEPTH)
			return;
		struct call *f = call_at(t, top);
		if (f->sp > sp || (f->sp == sp && IS_TRAMPOLINE(returns_to)))
			return;
		emit_call(t, f, now, top, 0, CALL_ABANDONED, 0, 0);
		t->depth = top;
	}
}

/* Calls whose return address was overwritten were left, although they lie above the new one. Checked
 * only where a call of the same or a higher layer is made "inside" another: the usual driver call
 * inside its runtime call need not pay for the read. */
static __always_inline void drop_overwritten(struct thread *t, u64 now)
{
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++) {
		u32 top = t->depth - 1;
		if (top >= MAX_DEPTH)
			return;
		struct call *f = call_at(t, top);
		if (WILL_RETURN(f->sp))
			return;
		emit_call(t, f, now, top, 0, CALL_ABANDONED, 0, 0);
		t->depth = top;
	}
}

/* The driver's launch inside of the runtime's has no return probe, which would be a third of the cost of both: it is
 * reported with the outer call's times when that one returns, or when the next call shows that it is over. Only the
 * innermost open call can have made one. */
static __always_inline void report_inner(struct thread *t, u64 now, s32 ret)
{
	u32 top = t->depth - 1;
	if (top >= MAX_DEPTH - 1 || call_at(t, top)->launch != LAUNCHED_INSIDE)
		return;
	call_at(t, top)->launch = LAUNCHES;
	emit_call(t, call_at(t, top + 1), now, top + 1, ret, CALL_WITHIN, 0, 0);
}

/* Notes such a launch; false where the call is to be seen to its end. */
static __always_inline bool is_inner_launch(struct thread *t, struct registers *regs, u64 cookie)
{
	u32 depth = t->depth;
	if (!depth || depth >= MAX_DEPTH)
		return false;
	struct call *outer = call_at(t, depth - 1), *f = call_at(t, depth);
	if (!outer->launch)
		return false;
	if (outer->launch == LAUNCHED_INSIDE)
		report_inner(t, bpf_ktime_get_ns(), 0);
	if (!IS_LAUNCH(cookie) || RANK(cookie) >= outer->rank || outer->sp <= regs->sp)
		return false;
	f->start = outer->start;
	f->op = API_ROW(cookie);
	f->stream = outer->stream;
	f->aux = aux_argument(regs, cookie);
	f->bytes = f->run_delay = f->stack = 0;
	f->flags = f->counted = f->out = 0;
	outer->launch = LAUNCHED_INSIDE;
	return true;
}

static __always_inline int entered(struct pt_regs *ctx, bool session)
{
	u64 cookie = get_attach_cookie(ctx);
	if (is_stopped() || counts_elsewhere(cookie))
		return NO_RETURN;
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, pid = id >> 32;
	struct thread *t = threads.lookup(&tid);
	if (!t) {
		t = join(pid, tid, WATCH_ALL);
		if (!t)
			return NO_RETURN;
	}
	struct registers regs = {{REG_0, REG_1, REG_2, REG_3, REG_4, REG_5, REG_6, REG_7}, REG_SP};
	if (session && is_inner_launch(t, &regs, cookie))
		return NO_RETURN;
	u64 sp = regs.sp;
	u32 depth = t->depth;
	if (depth && depth <= MAX_DEPTH && call_at(t, depth - 1)->sp <= sp) {
		drop_abandoned(t, sp, RETURN_ADDRESS, bpf_ktime_get_ns());
		depth = t->depth;
	}
	u32 rank = RANK(cookie);
	if (depth && depth <= MAX_DEPTH) {
		struct call *outer = call_at(t, depth - 1);
		if (rank >= outer->rank && !WILL_RETURN(outer->sp)) {
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
	struct call *f = call_at(t, depth);
	f->op = API_ROW(cookie);
	f->rank = rank;
	f->sp = sp;
	f->counted = cookie >> 10 & 1;
	f->bytes = size_argument(&regs, cookie);
	f->flags = (argument(&regs, cookie >> 26 & 7, cookie >> 29 & 7, cookie >> 32 & 31) & 7) << COPY_SHIFT;
	struct shape shape;
	bool shaped = !depth && launch_arguments(&regs, cookie, shape.sizes, &f->stream);
	if (!shaped)
		f->stream = stream_argument(&regs, cookie);
	if (!f->stream && cookie >> 51 & 1)
		f->stream = 2; /* cudaStreamPerThread */
	f->aux = aux_argument(&regs, cookie);
	f->out = cookie >> 54 & 3;
	f->launch = IS_LAUNCH(cookie) ? LAUNCHES : 0;
	if (f->counted) {
		void *task = get_current_task_btf();
		f->run_delay = FIELD(u64, task, TASK_RUN_DELAY);
		f->nvcsw = FIELD(u64, task, TASK_NVCSW);
		f->nivcsw = FIELD(u64, task, TASK_NIVCSW);
	} else {
		f->run_delay = shaped ? number_of(&shape, pid, tid) : 0;
	}
	f->stack = 0;
	t->depth = depth + 1;
	t->called = 1;
	/* a lower layer's call inside is made by the same line */
	if (WANTS_LINE(cookie) && !(depth && call_at(t, depth - 1)->rank > rank && call_at(t, depth - 1)->stack)) {
		u32 slot = pid & (SITE_STATES - 1);
		u64 site = site_of(ctx, site_states.lookup(&slot), pid), known = 0;
		if (site) {
			slot = site_slot(site);
			known = known_stack(sites.lookup(&slot), site);
		}
		f->stack = known ? known : NO_PYTHON;
		if (!known)
			line_programs.call(ctx, 0); /* does not come back, unless lines are not sampled yet */
	}
	f->start = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void returned(struct pt_regs *ctx, bool session)
{
	if (is_stopped())
		return;
	u64 now = bpf_ktime_get_ns();
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *t = threads.lookup(&tid);
	if (!t)
		return;
	u64 sp = REG_SP - RETURN_POPS;
	u32 top = t->depth - 1;
	if (session && top < MAX_DEPTH)
		report_inner(t, now, call_at(t, top)->sp == sp ? REG_RETURN : 0);
	if (top < MAX_DEPTH && call_at(t, top)->sp < sp) {
		drop_abandoned(t, sp - 1, 0, now);
		top = t->depth - 1;
	}
	if (top >= MAX_DEPTH)
		return; /* its entry was not seen */
	struct call *f = call_at(t, top);
	if (f->sp != sp)
		return;
	s32 ret = REG_RETURN;
	u64 made = 0;
	/* a driver call inside of a runtime call leaves the same handle as that one */
	if (f->out && !ret && !(top && call_at(t, top - 1)->out == f->out))
		made = user_u64(f->out == OUT_STREAM ? f->stream : f->aux);
	emit_call(t, f, now, top, ret, 0, get_current_task_btf(), made);
	t->depth = top;
}

int on_entry(struct pt_regs *ctx)
{
	entered(ctx, false);
	return 0;
}

int on_return(struct pt_regs *ctx)
{
	returned(ctx, false);
	return 0;
}

int on_call(struct pt_regs *ctx)
{
	if (REG_IP == get_func_ip(ctx)) /* the place of the probe: not where a call goes back to */
		return entered(ctx, true);
	returned(ctx, true);
	return 0;
}
