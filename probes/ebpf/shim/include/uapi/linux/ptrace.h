/* struct pt_regs: the registers of a traced thread. Stable ABI of each architecture. */
#ifndef __SHIM_PTRACE_H
#define __SHIM_PTRACE_H
#if defined(__aarch64__)
struct pt_regs {
	unsigned long long regs[31];
	unsigned long long sp;
	unsigned long long pc;
	unsigned long long pstate;
};
#else
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#endif
#endif
