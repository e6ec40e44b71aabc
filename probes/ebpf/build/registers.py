"""Where each architecture keeps arguments, return values and return addresses of calls.

The BPF programs name these places by macros (``REG_0``, ``STACK_ARGUMENT(n)``, …), defined here for
the machine that they are compiled on. Adding an architecture is adding a table.

x86-64 (System V ABI): six registers, then the stack. A call pushes the return address: the seventh
argument lies 8 above the stack pointer at entry, which is 8 lower than after the return.
arm64 (AAPCS64): eight registers, so the seventh and eighth are not on the stack. A call leaves the
stack pointer alone and the return address in x30.
"""

from __future__ import annotations

_X86_64: dict[str, str] = {
    **{f"REG_{row}": f"ctx->{name}" for row, name in enumerate(("di", "si", "dx", "cx", "r8", "r9"))},
    "REG_6": "0",
    "REG_7": "0",
    "REG_SP": "ctx->sp",
    "REG_FP": "ctx->bp",
    "REG_IP": "ctx->ip",
    "REG_RETURN": "ctx->ax",
    "RETURN_POPS": "8",
    "RETURN_ADDRESS": "user_u64(ctx->sp)",
    "RETURN_IN(stack)": "(stack)[0]",  # the same, of a copy of the stack from its pointer on
    # true if an open call that was entered at this stack pointer can still return
    "WILL_RETURN(sp)": "IS_TRAMPOLINE(user_u64(sp))",
    # true if eight bytes of code end in a call: e8, or ff /2 with an operand of 1 to 6 bytes
    "IS_CALL(code)": "((((code) >> 24 & 255) == 0xe8) | (((code) >> 48 & 0x38ff) == 0x10ff)"
    " | (((code) >> 40 & 0x38ff) == 0x10ff) | (((code) >> 32 & 0x38ff) == 0x10ff)"
    " | (((code) >> 16 & 0x38ff) == 0x10ff) | (((code) >> 8 & 0x38ff) == 0x10ff))",
    # the n-th argument after the sixth
    "STACK_ARGUMENT(n)": "user_u64(regs->sp + 8 * (n))",
    # the first two or three of them; not 0 where they cannot be read
    "BEHIND_THE_SIXTH(to, n)": "bpf_probe_read_user(to, 8 * (n), (void *)(regs->sp + 8))",
    # a large structure that is passed by value: its copy lies on the stack, and uses no register
    "VALUE_ADDRESS(n)": "(regs->sp + 8)",
    "VALUE_REGISTERS": "0",
    # the kernel's page for returns is requested at the end of the address space, above all code
    "IS_TRAMPOLINE(address)": "((u64)(address) - 0x7fffffff0000ULL < 0x10000)",
    "SYSCALL_FRAME": "112",  # pt_regs.di, then orig_ax
    "SYSCALL_TYPE": "s64",
}

_AARCH64: dict[str, str] = {
    **{f"REG_{row}": f"ctx->regs[{row}]" for row in range(8)},
    "REG_SP": "ctx->sp",
    "REG_FP": "ctx->regs[29]",
    "REG_IP": "ctx->pc",
    "REG_RETURN": "ctx->regs[0]",
    "RETURN_POPS": "0",
    "RETURN_ADDRESS": "ctx->regs[30]",
    "RETURN_IN(stack)": "ctx->regs[30]",
    "IS_CALL(code)": "((((code) >> 32 & 0xfc000000) == 0x94000000)"  # bl, blr
    " | (((code) >> 32 & 0xfffffc1f) == 0xd63f0000))",
    "WILL_RETURN(sp)": "1",  # the address was in a register, not on the stack
    "STACK_ARGUMENT(n)": "((n) <= 2 ? reg(regs, 5 + (n)) : user_u64(regs->sp + 8 * ((n) - 3)))",
    "BEHIND_THE_SIXTH(to, n)": "((to)[0] = reg(regs, 6), (to)[1] = reg(regs, 7),"
    " (n) > 2 ? bpf_probe_read_user(&(to)[2], 8, (void *)regs->sp) : 0)",
    # a large structure that is passed by value: a register points to its copy
    "VALUE_ADDRESS(n)": "reg(regs, n)",
    "VALUE_REGISTERS": "1",
    # its address space ends at 2^39, 2^48 or 2^52, by the kernel's configuration
    "IS_TRAMPOLINE(address)": "((address) >> 16 == 0x7fffffULL || (address) >> 16 == 0xffffffffULL"
    " || (address) >> 16 == 0xfffffffffULL)",
    "SYSCALL_FRAME": "272",  # pt_regs.orig_x0, which no return value replaces, then syscallno
    "SYSCALL_TYPE": "s32",
}

MACHINES: dict[str, dict[str, str]] = {"x86_64": _X86_64, "aarch64": _AARCH64}


def defines(machine: str) -> list[str]:
    """The ``#define`` lines for a machine, as ``uname -m`` calls it.

    Raises:
        KeyError: An architecture whose registers are not described here.
    """
    return [f"#define {name} {place}" for name, place in MACHINES[machine].items()]
