"""Generates the entries of NVIDIA's mathematical libraries.

They are not counted in the log: no probe is on them, and their launches go through the driver's exported
names, which are.
"""

from __future__ import annotations

from gputop.simgpu.codegen import Definitions

_ENTRY = """
	.globl {symbol}
	.type {symbol},@function
	.p2align 4
{symbol}:
	.cfi_startproc
{endbr}	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register 6
{refusal}	pop %rbp
	.cfi_def_cfa 7, 8
	jmp {target}
	.cfi_endproc
	.size {symbol}, .-{symbol}
"""
_REFUSAL = "\tlea name_{index}(%rip), %rdi\n\tlea told+{index}(%rip), %rsi\n"


def math_exports(symbols: list[str], definitions: Definitions, *, endbr: bool) -> str:
    """The assembly file of a library: an entry jumps to the simulation's function or to the refusal.

    Args:
        symbols: The exported names.
        definitions: Functions of the library's C sources.
        endbr: Whether to start with ``endbr64``.
    """
    parts = ["\t.text\n"]
    names = []
    for index, symbol in enumerate(symbols):
        target = definitions.target(symbol)
        refusal = ""
        if target is None:
            refusal = _REFUSAL.format(index=index)
            names.append(f'name_{index}:\n\t.asciz "{symbol}"\n')
        jump = "sg_refuse" if target is None else f"impl_{target}"
        head = "\tendbr64\n" if endbr else ""
        parts.append(_ENTRY.format(symbol=symbol, endbr=head, refusal=refusal, target=jump))
    parts += ["\n\t.section .rodata\n", *names, f"\t.local told\n\t.comm told,{len(symbols)},1\n"]
    parts.append('\t.section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)
