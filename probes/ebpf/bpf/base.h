/* The beginning of both texts of BPF programs: helpers by their numbers, and access to the kernel's structures. */
#include <uapi/linux/ptrace.h>

static void *(*get_current_task_btf)(void) = (void *)158;
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;
static void *(*task_registers)(void *task) = (void *)175;

#define FIELD(type, base, bits) (*(type *)((char *)(base) + (bits) / 8))

/* An open call. The mask keeps the kernel's verifier content, and must not seem needless to the compiler. */
static __always_inline struct call *call_at(struct thread *t, u64 depth)
{
	asm volatile("" : "+r"(depth));
	return &t->calls[depth & (MAX_DEPTH - 1)];
}
