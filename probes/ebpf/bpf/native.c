/* Which native code makes a call: the caller's address, exactly, and those behind it by frame pointers.
 *
 * Code that keeps no frame pointer leaves anything in that register, so the kernel's walk may end in values that are
 * no return addresses and are others at each call. A value that does not lie behind a call instruction ends the chain;
 * this is checked once for each chain, by the hash of all that was walked. User space finds files and functions
 * (probes/stacks/native_frames.py), and where a frame pointer was missing. Other code at one address: see on_loader.
 */
#define BPF_F_USER_STACK (1ULL << 8)

struct chain {
	u64 hash;
	u64 count; /* addresses that may be reported */
};

BPF_TABLE("hash", u32, struct native, natives, MAX_PROCS);
BPF_TABLE("lru_hash", u64, struct chain, chains, 32768); /* hash of a walk -> its valid part */

/* Whether the instruction before this address is a call. */
static __always_inline bool called_before(u64 address)
{
	u64 code = 0;
	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - 8)))
		return false;
	return IS_CALL(code) || IS_TRAMPOLINE(address);
}

static __always_inline struct native *native_process(u32 pid)
{
	struct native *p = natives.lookup(&pid);
	if (p)
		return p;
	struct native made = {.serial = bpf_ktime_get_ns() ^ (u64)pid << 32};
	natives.insert(&pid, &made);
	return natives.lookup(&pid);
}

/* The hash of this thread's chain, its addresses in `h`: from `caller` on, or from where the thread was interrupted.
 * Elements of the map are used again at any time, so a found one is copied at once. */
static __always_inline u64 native_chain(void *ctx, struct stack_head *h, u64 caller, u64 looks)
{
	struct native *p = native_process(h->pid);
	if (!p)
		return 0;
	h->native_serial = p->serial;
	h->generation = p->generation;
	bpf_get_stack(ctx, h->natives, sizeof(h->natives), BPF_F_USER_STACK);
	if (caller)
		h->natives[0] = caller; /* in place of the function that is called */
	u64 begin = mix(h->native_serial ^ looks, h->generation), walked = begin;
#pragma unroll
	for (int i = 0; i < MAX_NATIVES; i++) {
		if (!h->natives[i])
			break;
		walked = mix(walked, h->natives[i]);
	}
	struct chain *known = chains.lookup(&walked);
	if (!known) {
		struct chain found = {.hash = begin};
#pragma unroll
		for (int i = 0; i < MAX_NATIVES; i++) {
			if (!h->natives[i] || (i && !called_before(h->natives[i])))
				break;
			found.hash = mix(found.hash, h->natives[i]);
			found.count = i + 1;
		}
		chains.update(&walked, &found);
		known = chains.lookup(&walked); /* after this the verifier forgets the path that led here */
		if (!known)
			return 0;
	}
	u64 hash = known->hash;
	h->native_count = known->count;
	return hash;
}

/* The identifier of a chain that no Python called. */
static __always_inline u64 native_stack(struct stack_head *h, u64 chain, u64 looks)
{
	struct python *p = pythons.lookup(&h->pid);
	u32 one = 1;
	h->row = p ? p->row : NO_FRAME;
	u64 id = mix(chain, h->row) >> 2 | FIRST_STACK;
	if (reported.lookup(&id))
		return id;
	h->kind = STACK_RECORD;
	h->serial = h->native_serial ^ looks;
	h->id = id;
	h->time = bpf_ktime_get_ns();
	if (stacks.ringbuf_output(h, sizeof(*h), 1 /* BPF_RB_NO_WAKEUP */))
		return NO_ROOM;
	reported.update(&id, &one);
	return id;
}
