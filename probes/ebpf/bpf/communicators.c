/* Joins and ends of NCCL communicators: programs of their own, so that no other call pays for them.
 *
 * The cookie is that of probes/code/communicators.py. The ranks' common id never leaves the kernel, only a
 * hash of it.
 */
#define ID_WORDS 16 /* ncclUniqueId: 128 bytes */
#define MOST_MADE 16 /* communicators that one ncclCommInitAll reports */
#define IN_PROGRESS 7 /* ncclInProgress: not done yet, and no failure */

struct joining {
	u64 start;
	u64 made; /* where the communicator will be */
	u64 id;
	u32 ranks, rank;
	u32 what, reserved;
};
BPF_TABLE("lru_hash", u64, struct joining, joins, 1024);

static __always_inline void report_communicator(struct joining *j, u64 now, u64 who, u64 communicator, u32 rank,
						s32 ret)
{
	struct record *r = begin(KIND_COMMUNICATOR, LOST_OTHERS, now, who >> 32, who);
	if (!r)
		return;
	r->duration = now - j->start;
	r->op = j->what;
	r->ret = ret;
	r->bytes = (u64)j->ranks << 32 | rank;
	r->stream = j->id;
	r->aux = communicator;
	submit(r);
}

/* The words one after the other through a multiplication and a fold, as murmur's last steps do. Never 0. */
static __always_inline u64 hash_of(u64 address)
{
	u64 words[ID_WORDS] = {}, hash = 0x9e3779b97f4a7c15ULL;
	bpf_probe_read_user(words, sizeof(words), (void *)address);
#pragma unroll
	for (int i = 0; i < ID_WORDS; i++) {
		hash = (hash ^ words[i]) * 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
	}
	return hash ? hash : 1;
}

int on_joining(struct pt_regs *ctx)
{
	if (is_stopped())
		return 0;
	u64 who = bpf_get_current_pid_tgid(), cookie = get_attach_cookie(ctx);
	u32 tid = who, pid = who >> 32;
	if (!threads.lookup(&tid) && !join(pid, tid, WATCH_ALL))
		return 0;
	struct registers own = {{REG_0, REG_1, REG_2, REG_3, REG_4, REG_5, REG_6, REG_7}, REG_SP}, *regs = &own;
	u32 by = cookie >> 21 & 3;
	struct joining j = {.start = bpf_ktime_get_ns(), .what = cookie >> 10 & 3};
	j.made = reg(regs, cookie >> 12 & 7);
	if (j.what == COMMUNICATOR_LEFT) {
		report_communicator(&j, j.start, who, j.made, 0, 0);
		return 0;
	}
	j.ranks = reg(regs, cookie >> 15 & 7);
	j.rank = reg(regs, (cookie >> 18 & 7) + (by == 1 ? VALUE_REGISTERS : 0));
	if (by == 1)
		j.id = hash_of(VALUE_ADDRESS(2));
	else if (by == 2)
		j.id = hash_of(reg(regs, cookie >> 23 & 7));
	else if (by == 3)
		j.id = reg(regs, cookie >> 23 & 7); /* the communicator that is split */
	else
		j.id = who ^ j.start; /* its ranks are all here */
	joins.update(&who, &j);
	return 0;
}

int on_joined(struct pt_regs *ctx)
{
	if (is_stopped())
		return 0;
	u64 who = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct joining *found = joins.lookup(&who);
	if (!found)
		return 0;
	struct joining j = *found;
	joins.delete(&who);
	s32 ret = REG_RETURN;
	if (ret && ret != IN_PROGRESS)
		return 0;
	if (j.what != COMMUNICATOR_ALL) {
		report_communicator(&j, now, who, user_u64(j.made), j.rank, ret);
		return 0;
	}
	for (u32 rank = 0; rank < MOST_MADE; rank++) {
		/* a comparison with a number of its own: Linux 5.15 forgets the bounds of what is kept on the stack */
		asm volatile("" : "+r"(rank));
		if (rank >= j.ranks)
			break;
		report_communicator(&j, now, who, user_u64(j.made + 8 * rank), rank, ret);
	}
	return 0;
}
