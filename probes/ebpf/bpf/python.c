/* Which Python line makes a call: the interpreter's frames of the calling thread, as an identifier.
 *
 * How the structures of an interpreter lie comes from probes/code/layout.py. A stack is a hash over its code
 * objects and instructions; the first time it is met, its frames go out through a ring of their own, and each
 * code object that was not met before goes out with its names and its table of lines, so that lines outlive
 * code and process. An address that goes to another code object counts a generation up, which is part of
 * the hash. A copy of the program's memory belongs to the thread: another one may preempt this on its CPU.
 */
#define FRAME_BYTES 80  /* that are needed of a frame */
#define HEAP_BYTES 104  /* the same, where frames are objects */
#define MAX_WALK 96     /* frames that are walked: a call from C into Python has one more */
#define MAX_STEPS 96    /* to report a stack: frames and parts of tables */
#define NO_CODE 3       /* owners from here on have frames without code: FRAME_OWNED_BY_CSTACK, _INTERPRETER */
#define TAG_BITS 3ULL   /* of a reference in a frame: how its count of references is kept, from 3.14 on */
#define STRING_LENGTH 16
#define STRING_STATE 32
#define BYTES_SIZE 16
#define BYTES_DATA 32
#define OBJECT_TYPE 8
#define MOST_HEAD 16 /* an object's head is longer by so much without the GIL */
#define LOCAL_COUNT 12 /* of references by the object's own thread, without the GIL */
#define SHARED_COUNT 16 /* of those by others, above two flags */
#define COPIES_DATA 8
#define GENERATIONS 4096
#define SPREAD 0xc2b2ae3d27d4eb4fULL /* odd: no count of generations meets another one, nor SAMPLED */
#define FULL_NS 1000000000ULL
/* A timer may find a frame whose code is being freed, which a call never does. So code seen by
 * timers is kept apart, under the bit SAMPLED of the serial: no call may be reported by it. */

struct window {
	u64 base;
	u64 limit; /* a frame may begin so far behind it */
	u8 data[WINDOW + 256];
};

struct scratch {
	struct python python;
	u64 serial; /* the process's, or that with another bit: see SAMPLED */
	u64 address;
	u64 hash;
	u64 busy; /* a timer's interrupt must not walk where the thread's own program does */
	u64 table; /* address of a table of lines, while it is sent */
	u32 reporting; /* which frame's code */
	u32 part; /* of its table, the next one */
	u32 steps; /* of a loop */
	struct stack_record stack;
	union {
		struct window windows[2]; /* the interpreter's stack, and the C stack */
		struct code_record code;
	} u;
};

struct code_key {
	u64 serial;
	u64 code;
};

BPF_RINGBUF_OUTPUT(stacks, STACK_PAGES);
BPF_ARRAY(interpreters, struct interpreter, MAX_INTERPRETERS);
BPF_TABLE("hash", u32, struct python, pythons, MAX_PROCS);
BPF_F_TABLE("hash", u32, struct scratch, scratches, MAX_THREADS, 1 /* BPF_F_NO_PREALLOC: 10 KB each */);
BPF_ARRAY(empty_scratch, struct scratch, 1);
BPF_TABLE("hash", struct code_key, u64, seen, MAX_CODES); /* -> generation */
BPF_TABLE("lru_hash", u64, u32, reported, 32768);             /* stacks */
BPF_ARRAY(generations, u64, GENERATIONS);
BPF_ARRAY(full, u64, 1); /* when `seen` had no room: for a while no code is sent in vain */

static __always_inline u32 generation_slot(u64 serial, u64 code)
{
	return mix(serial, code) >> 52;
}

/* A frame's copy, with what lies around it: downwards on the interpreter's stack, where callers are, upwards on
 * the C stack. Which of them it is, is a guess that costs time only when it is wrong. */
static __always_inline u8 *frame_at(struct scratch *s, struct interpreter *o, u64 address, u64 sp)
{
	u64 at = address - s->u.windows[0].base;
	if (at < s->u.windows[0].limit)
		return &s->u.windows[0].data[at & (WINDOW - 1)];
	at = address - s->u.windows[1].base;
	if (at < s->u.windows[1].limit)
		return &s->u.windows[1].data[at & (WINDOW - 1)];
	u32 native = address - sp < STACK_SPAN;
	u64 before = native || o->heap ? 0 : address & (WINDOW - 1);
	u64 needed = o->heap ? HEAP_BYTES : FRAME_BYTES, size = before + needed;
	if (native && WINDOW - (address & (WINDOW - 1)) > size)
		size = WINDOW - (address & (WINDOW - 1));
	struct window *w = &s->u.windows[native & 1];
	asm volatile("" : "+r"(size));
	if (size > WINDOW + FRAME_BYTES)
		return 0;
	if (bpf_probe_read_user(w->data, size, (void *)(address - before))) {
		size = before + needed;
		asm volatile("" : "+r"(size));
		if (size > WINDOW + FRAME_BYTES || bpf_probe_read_user(w->data, size, (void *)(address - before)))
			return 0;
	}
	w->base = address - before;
	w->limit = size - needed + 1;
	return &w->data[before & (WINDOW - 1)];
}

/* At the beginning of a loop: keeps the compiler from placing its end before it, which then runs on into the
 * beginning instead of jumping there. Linux 6.1 refuses such a loop ("back-edge"). The jump is never made. */
#define BEGINS_HERE(i, out) asm volatile goto("if %0 s< 0 goto %l1" : : "r"((s64)(i)) : : out)

enum { ON, OVER, FAILED }; /* how a step of a loop ended */

/* Steps until one is not ON, so many at most; how the last one ended. What differs by step is kept in memory: the
 * verifier would follow each by itself else. With may_goto (Linux 6.9 and later), which ends a loop that runs on for
 * ever, it verifies a step until nothing new is found; else each of them, which costs it a second for a program.
 * Compilers before LLVM 19 have no name for the instruction. */
#ifdef MAY_GOTO
#define REPEATED(s, most, step) ({ \
	__label__ out; \
	int how = ON; \
	s->steps = 0; \
	for (;;) { \
		asm volatile goto("1:.byte 0xe5; .byte 0; .long ((%l0 - 1b - 8) / 8) & 0xffff; .short 0" : : : : out); \
		if (s->steps++ >= most) \
			break; \
		how = (step); \
		if (how != ON) \
			break; \
	} \
out: \
	how; \
})
#else
#define REPEATED(s, most, step) ({ \
	__label__ out; \
	int how = ON; \
	_Pragma("clang loop unroll(disable)") \
	for (int i = 0; i < most; i++) { \
		BEGINS_HERE(i, out); \
		how = (step); \
		if (how != ON) \
			break; \
	} \
out: \
	how; \
})
#endif

#ifdef MAY_GOTO
/* Without the GIL a thread has a copy of a function's bytecode of its own, from 3.14 on: where an instruction of it
 * is in the one that follows the code object. The array of copies is replaced when it grows; data read from an
 * old one stays valid. False where neither is there any more. */
static __always_inline bool in_first_copy(struct interpreter *o, u64 code, u32 copy, u64 *instruction)
{
	u64 array = user_u64(code + o->copies), count = user_u64(array), first = user_u64(array + COPIES_DATA);
	u64 own = user_u64(array + COPIES_DATA + 8 * (u64)copy), begin = code + o->first_instruction;
	*instruction += begin - own;
	/* one condition: the verifier would follow each by itself */
	u64 wrong = (first ^ begin) | (u64)(copy >= count) | (u64)!own;
	asm volatile("" : "+r"(wrong));
	return !wrong;
}
#endif

/* The next frame into `s->stack`, and its part of the hash. */
static __always_inline int walk_step(struct scratch *s, struct interpreter *o, u64 sp)
{
	u64 address = s->address;
	u32 count = s->stack.head.count;
	if (!address || count >= MAX_FRAMES)
		return OVER;
	u8 *f = frame_at(s, o, address, sp);
	if (!f)
		return FAILED;
	u64 code = *(u64 *)(f + (o->code & 127)) & ~TAG_BITS, instruction = *(u64 *)(f + (o->instruction & 127));
	s->address = *(u64 *)(f + (o->previous & 127));
	if (o->heap)
		instruction = (u32)instruction;
	else if (*(f + (o->owner & 127)) >= NO_CODE)
		return ON;
	u32 copy = o->copy == NO_FRAME ? 0 : *(u32 *)(f + (o->copy & 127));
#ifdef MAY_GOTO
	if (copy && !in_first_copy(o, code, copy, &instruction))
		return FAILED;
#else
	if (copy) /* a verifier that follows each step of the loop accepts no more of them */
		return FAILED;
#endif
	u32 slot = generation_slot(s->serial, code);
	u64 *generation = generations.lookup(&slot);
	if (!generation)
		return FAILED;
	asm volatile("" : "+r"(count)); /* its bounds, which the compiler knows, may be lost to the verifier */
	struct py_frame *to = &s->stack.frames[count & (MAX_FRAMES - 1)];
	to->code = code;
	to->instruction = instruction;
	to->generation = *generation;
	s->hash = mix(mix(s->hash, code ^ *generation * SPREAD), instruction);
	s->stack.head.count = count + 1;
	return ON;
}

/* Frames from the innermost on into `s->stack`, their hash into `s->hash`. */
static __always_inline bool walk(struct scratch *s, struct interpreter *o, u64 frame, u64 sp)
{
	s->address = frame;
	s->hash = s->serial;
	s->stack.head.count = 0;
	s->u.windows[0].limit = s->u.windows[1].limit = 0;
	return REPEATED(s, MAX_WALK, walk_step(s, o, sp)) != FAILED && s->stack.head.count > 0;
}

/* A string's characters, of a long one the last: the name of a file is at its end. Those of a subclass of str lie
 * somewhere else, behind a pointer. */
static __always_inline bool read_text(u64 string, struct interpreter *o, u32 *length, u32 *state, u8 *to, u32 room)
{
	u8 head[STRING_STATE + 8 + MOST_HEAD];
	if (bpf_probe_read_user(head, sizeof(head), (void *)string))
		return false;
	u8 *body = head + (o->head & MOST_HEAD);
	*length = *(u64 *)(body + STRING_LENGTH);
	*state = *(u32 *)(body + STRING_STATE);
	u32 bits = *state >> (o->kind & 31), kind = bits & 7, compact = bits >> 3 & 1, ascii = bits >> 4 & 1;
	u64 size = (u64)*length * kind, from = string + (compact && ascii ? o->ascii : o->compact);
	if (!compact && bpf_probe_read_user(&from, 8, (void *)from))
		return false;
	if (size > room) {
		from += size - room;
		size = room;
	}
	asm volatile("" : "+r"(size));
	if (size > room)
		return false;
	return !bpf_probe_read_user(to, size, (void *)from);
}

/* Reads the reported parts of a code object beside its table. */
static __always_inline bool read_code(struct scratch *s, struct interpreter *o, struct py_frame *f)
{
	struct code_record *c = &s->u.code;
	u64 size = OBJECT_BYTES - 48 + (o->head & MOST_HEAD);
	if (bpf_probe_read_user(c->object, size, (void *)f->code))
		return false;
	if (*(u64 *)(c->object + OBJECT_TYPE + (o->head & MOST_HEAD)) != s->python.code_type)
		return false;
	/* no references: it is being freed, in the frame that had the last one. Above the count are flags, from 3.14 on */
	if (!o->head && !*(u32 *)c->object)
		return false;
	if (o->head && !*(u32 *)(c->object + LOCAL_COUNT) && !(*(u64 *)(c->object + SHARED_COUNT) >> 2))
		return false;
	c->kind = CODE_RECORD;
	c->pid = s->stack.head.pid;
	c->serial = s->serial;
	c->code = f->code;
	c->generation = f->generation;
	c->row = s->python.row;
	if (!read_text(*(u64 *)(c->object + (o->filename & 255)), o, &c->file_length, &c->file_state, c->file, FILE_BYTES))
		return false;
	if (!read_text(*(u64 *)(c->object + (o->name & 255)), o, &c->name_length, &c->name_state, c->name, NAME_BYTES))
		return false;
	s->table = *(u64 *)(c->object + (o->table & 255));
	s->table += o->head & MOST_HEAD;
	if (bpf_probe_read_user(&size, 8, (void *)(s->table + BYTES_SIZE)))
		return false;
	c->table_bytes = size;
	return true;
}

/* Sends the next part of a code object's table, with all the rest. */
static __always_inline bool report_part(struct scratch *s)
{
	struct code_record *c = &s->u.code;
	u64 at = s->part * TABLE_BYTES, left = c->table_bytes - at;
	if (left > TABLE_BYTES)
		left = TABLE_BYTES;
	c->table_at = at;
	c->part = left;
	asm volatile("" : "+r"(left));
	if (left > TABLE_BYTES || bpf_probe_read_user(c->table, left, (void *)(s->table + BYTES_DATA + at)))
		return false;
	s->part++;
	return !stacks.ringbuf_output(c, sizeof(*c) - TABLE_BYTES + left, 1 /* BPF_RB_NO_WAKEUP */);
}

/* A step of reporting a stack's code: a frame whose code is known, or a part of a table. */
static __always_inline int report_step(struct scratch *s, struct interpreter *o)
{
	u32 at = s->reporting;
	if (at >= s->stack.head.count)
		return OVER;
	struct py_frame *f = &s->stack.frames[at & (MAX_FRAMES - 1)];
	struct code_key key = {s->serial, f->code};
	u32 zero = 0;
	u64 *generation = seen.lookup(&key), *since = full.lookup(&zero);
	if (!since)
		return FAILED;
	if (s->part == 0 && generation && *generation == f->generation) {
		s->reporting++;
		return ON;
	}
	if (s->part == 0 && (bpf_ktime_get_ns() - *since < FULL_NS || !read_code(s, o, f)))
		return FAILED;
	if (!report_part(s))
		return FAILED;
	if (s->part < TABLE_PARTS && s->u.code.table_bytes > (u64)s->part * TABLE_BYTES)
		return ON;
	s->part = 0;
	s->reporting++;
	if (!seen.update(&key, &f->generation))
		return ON;
	*since = bpf_ktime_get_ns();
	return FAILED;
}

/* Sends a stack that was not met before; code objects first, so that a reader seldom has to wait for them. The
 * part beyond the steps is reported when the stack is met again. `natives` is the native code above it, if native.c
 * has walked that. */
static __always_inline bool report_stack(struct scratch *s, struct interpreter *o, u64 id, struct stack_head *natives)
{
	s->reporting = s->part = 0;
	if (REPEATED(s, MAX_STEPS, report_step(s, o)) == FAILED || s->reporting < s->stack.head.count)
		return false;
	if (natives) {
		u32 count = s->stack.head.count;
		s->stack.head = *natives;
		s->stack.head.count = count;
	} else {
		s->stack.head.native_count = 0;
	}
	s->stack.head.kind = STACK_RECORD;
	s->stack.head.serial = s->serial;
	s->stack.head.row = s->python.row;
	s->stack.head.id = id;
	s->stack.head.time = bpf_ktime_get_ns();
	u64 size = s->stack.head.count * sizeof(struct py_frame) + sizeof(s->stack) - sizeof(s->stack.frames);
	asm volatile("" : "+r"(size));
	if (size > sizeof(s->stack))
		return false;
	return !stacks.ringbuf_output(&s->stack, size, 1 /* BPF_RB_NO_WAKEUP */);
}
