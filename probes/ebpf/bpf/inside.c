/* Messages of the library inside a program (probes/inside/messages.py), each the argument of a call of an empty
 * function. probes/inside/hearing.py puts MESSAGE_BYTES, INSIDE_PAGES and PROCS_FD in front.
 */
#define OTHERS(fd, key) bpf_map_lookup_elem_(bpf_pseudo_fd(1, fd), key)

struct inside_record {
	u64 time;
	u32 pid, tid, bytes, unused;
	char message[MESSAGE_BYTES];
};
BPF_RINGBUF_OUTPUT(inside, INSIDE_PAGES);

int on_inside(struct pt_regs *ctx)
{
	u64 who = bpf_get_current_pid_tgid();
	u32 pid = who >> 32;
	if (!OTHERS(PROCS_FD, &pid))
		return 0;
	u64 bytes = REG_1;
	if (!bytes || bytes > MESSAGE_BYTES)
		return 0;
	struct inside_record *r = inside.ringbuf_reserve(sizeof(struct inside_record));
	if (!r)
		return 0; /* each message has the number of rows before it */
	r->time = bpf_ktime_get_ns();
	r->pid = pid;
	r->tid = who;
	r->bytes = bytes;
	r->unused = 0;
	if (bpf_probe_read_user(r->message, bytes, (void *)REG_0))
		r->bytes = 0;
	inside.ringbuf_submit(r, 1 /* BPF_RB_NO_WAKEUP */);
	return 0;
}
