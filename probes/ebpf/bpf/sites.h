/* Places that calls were made from, with the native stack walked there: such a call needs no second walk.
 *
 * A place is a return address at a depth of one thread's stack, under the same callers. Frames further out are not
 * compared, so the first calls of a place are walked all the same, and one in SITE_AGAIN later; a place that was once
 * found with another stack is walked always. Programs with Python have no use for it: their lines differ where this is
 * the same.
 */
#define STACK_SPAN (8ULL << 20)
#define SITES 8192
#define SITE_STATES 4096
#define SITE_CALLERS 3 /* one of them may be the kernel's page for returns, in place of a function that is traced */
#define SITE_WORDS 16 /* of the stack, a power of two */
#define SITE_FIRST 16
#define SITE_AGAIN 64

/* Two threads may write an element at once, so it shows itself whether it is whole: `check` is the key, mixed with the
 * stack. No stack: a place of several. */
struct site {
	u64 check;
	u64 stack;
	u64 calls;
};

/* Of the processes whose numbers share it: since when places hold, and the last one with an interpreter. User space
 * writes it, too (probes/stacks/line_tracker.py). */
struct site_state {
	u64 since;
	u64 python;
};

static __always_inline u64 mix(u64 hash, u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

static __always_inline u32 site_slot(u64 key)
{
	return key >> 40 & (SITES - 1);
}

struct frame_words {
	u64 next;
	u64 caller;
};

/* The key of a place; 0 where none is kept. The stack's top is read at once: most frames lie there. */
static __always_inline u64 site_of(struct pt_regs *ctx, struct site_state *state, u32 pid)
{
	u64 near[SITE_WORDS + 1], sp = REG_SP, fp = REG_FP;
	if (!state || state->python == pid || bpf_probe_read_user(near, sizeof(near), (void *)sp))
		return 0;
	u64 key = mix(mix(state->since, (u64)pid << 32 ^ RETURN_IN(near)), sp);
#pragma unroll
	for (int i = 0; i < SITE_CALLERS; i++) {
		struct frame_words words;
		u64 above = fp - sp;
		if (above >= STACK_SPAN)
			break; /* the register holds anything: its code keeps no frame pointer */
		if (above < 8 * SITE_WORDS && !(above & 7)) {
			u64 place = above / 8;
			asm volatile("" : "+r"(place));
			words.next = near[place & (SITE_WORDS - 1)];
			words.caller = near[(place & (SITE_WORDS - 1)) + 1];
		} else if (bpf_probe_read_user(&words, sizeof(words), (void *)fp)) {
			break;
		}
		key = mix(key, fp ^ words.caller * 0xc2b2ae3d27d4eb4fULL);
		fp = words.next;
	}
	return key;
}

/* The stack of a place that needs no walk; 0 for one that does. */
static __always_inline u64 known_stack(struct site *s, u64 key)
{
	if (!s)
		return 0;
	u64 stack = s->stack;
	if (!stack || (s->check ^ stack) != key)
		return 0;
	u64 calls = s->calls++;
	return calls < SITE_FIRST || !(calls % SITE_AGAIN) ? 0 : stack;
}

/* Keeps a walk's stack for a place. */
static __always_inline void keep_stack(struct site *s, u64 key, u64 stack)
{
	if (!s)
		return;
	u64 before = s->stack;
	if ((s->check ^ before) != key) {
		s->calls = 0;
		s->stack = stack;
		s->check = key ^ stack;
	} else if (before != stack) {
		s->stack = 0;
		s->check = key;
	}
}
