/* Names of the driver's handles of kernels: reported once each, where a program gets them from the driver.
 *
 * The cookie has the kind of function, see probes/stacks/handles.py. A process that is watched by its first call
 * may get its kernels before: no process is left out that may be watched later.
 */
struct naming {
	u64 made; /* where the function leaves the handle */
	u64 second, third;
	u64 caller;
	u64 how;
};
BPF_TABLE("lru_hash", u64, struct naming, namings, 1024);

int on_naming(struct pt_regs *ctx)
{
	if (is_stopped())
		return 0;
	u64 who = bpf_get_current_pid_tgid();
	u32 pid = who >> 32;
	if (pid == OWN_PID || (!WATCH_ALL && !OTHERS(PROCS_FD, &pid)))
		return 0;
	struct naming n = {.made = REG_0, .second = REG_1, .third = REG_2};
	n.caller = RETURN_ADDRESS;
	n.how = get_attach_cookie(ctx);
	namings.update(&who, &n);
	return 0;
}

int on_named(struct pt_regs *ctx)
{
	u64 who = bpf_get_current_pid_tgid();
	struct naming *found = namings.lookup(&who);
	if (!found)
		return 0;
	struct naming n = *found;
	namings.delete(&who);
	if ((s32)REG_RETURN)
		return 0;
	struct handle_record *r = stacks.ringbuf_reserve(sizeof(struct handle_record));
	if (!r)
		return 0; /* without a name */
	u64 made = user_u64(n.made);
	r->kind = HANDLE_RECORD;
	r->pid = who >> 32;
	r->time = bpf_ktime_get_ns();
	r->caller = n.caller;
	r->handle = n.how == HANDLE_QUERIED ? n.second : made;
	r->other = n.how == HANDLE_SAME ? n.second : 0;
	r->name[0] = 0;
	if (n.how != HANDLE_SAME)
		bpf_probe_read_user_str(r->name, HANDLE_NAME_BYTES, (void *)(n.how == HANDLE_QUERIED ? made : n.third));
	stacks.ringbuf_submit(r, 1 /* BPF_RB_NO_WAKEUP */);
	return 0;
}
