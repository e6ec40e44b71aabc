"""Where in a function a probe costs least: where the kernel emulates the instruction, before the stack moves.

x86-64. The kernel emulates ``push``, ``nop``, ``jmp`` and ``call``; anything else it executes out of line,
with two traps, which costs ten times as much. A function's first instructions are walked over as long as each
is known to leave the stack pointer, the argument registers and the control flow alone: what a probe reads
behind them is then what it would have read at the first one, the return address on top of the stack included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CODE_LIMIT = 1 << 16  # bytes of a function that are searched for jumps back to its beginning
_WALK_LIMIT = 32  # bytes that are walked over at most
_MOST_JUMPS = 2000  # that are checked; a function of 64 KiB with more could be made of nothing else

_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_PUSH = range(0x50, 0x58)
_EMULATED = {*_PUSH, 0x90, 0xE8, 0xE9, 0xEB}  # push, nop, call, jmp
# rsp and rdi, rsi, rdx, rcx, r8, r9, by the processor's numbers: never written by what is walked over
_KEPT = {4, 7, 6, 2, 1, 8, 9}
_TO_RM, _TO_REG = {0x89, 0x31, 0x29}, {0x8B, 0x33, 0x2B}  # mov, xor, sub; which operand they write
_LEA, _MOV_LOAD, _TEST = 0x8D, 0x8B, 0x85

# every place where a jump backwards could stand, instruction or not: too many is safe, too few is not
_SHORT_JUMP = re.compile(rb"(?=[\x70-\x7f\xe0-\xe3\xeb]([\x80-\xff]))", re.DOTALL)
_LONG_JUMP = re.compile(rb"(?=(?:[\xe8\xe9]|\x0f[\x80-\x8f])(...\xff))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Site:
    """Where to probe a function."""

    offset: int  # bytes after its first instruction
    cheap: bool  # whether the kernel emulates the instruction there; else it is single-stepped


def choose(code: bytes) -> Site:
    """The probe site for a function whose instructions are ``code``: the first emulated one that is safe.

    Give the whole function (up to ``CODE_LIMIT``): a jump back to between its first instruction and the site
    would be counted as another call, so where there may be one, the site is the first instruction.
    """
    offset = 0
    passed: set[int] = set()  # where instructions begin, behind the first one up to the site
    while offset < min(len(code), _WALK_LIMIT):
        if _emulated(code, offset):
            return Site(0, cheap=False) if _jumps_to(code, offset, passed) else Site(offset, cheap=True)
        length = _harmless(code, offset)
        if length == 0:
            break
        offset += length
        passed.add(offset)
    return Site(0, cheap=False)


def _emulated(code: bytes, at: int) -> bool:
    if code[at] == 0x41:  # REX.B alone: push of r8 to r15
        return at + 1 < len(code) and code[at + 1] in _PUSH
    return code[at] in _EMULATED


def _jumps_to(code: bytes, begin: int, targets: set[int]) -> bool:
    """True if anything from ``begin`` on may be a jump back to one of ``targets``."""
    if not targets:
        return False
    for pattern, size in ((_SHORT_JUMP, 2), (_LONG_JUMP, 5)):
        for number, match in enumerate(pattern.finditer(code, begin)):
            if number >= _MOST_JUMPS:
                return True
            distance = int.from_bytes(match[1], "little", signed=True)
            longer = size == 5 and code[match.start()] == 0x0F  # jcc has one byte more
            if match.start() + size + longer + distance in targets:
                return True
    return False


def _harmless(code: bytes, at: int) -> int:
    """Length of an instruction that may be walked over; 0 for any other."""
    if code.startswith(_ENDBR64, at):
        return len(_ENDBR64)
    length = _long_nop(code, at)
    if length:
        return length
    rex = code[at] if 0x40 <= code[at] <= 0x4F else 0
    start = at + bool(rex)
    if start + 1 >= len(code):
        return 0
    opcode, modrm = code[start], code[start + 1]
    if 0xB8 <= opcode <= 0xBF:  # mov register, immediate
        target = opcode - 0xB8 | (rex & 1) << 3
        return 0 if target in _KEPT else (start - at) + (9 if rex & 8 else 5)
    reg, rm = modrm >> 3 & 7 | (rex & 4) << 1, modrm & 7 | (rex & 1) << 3
    if modrm >> 6 == 3:
        written = {**dict.fromkeys(_TO_RM, rm), **dict.fromkeys(_TO_REG, reg), _TEST: -1}.get(opcode)
        return 0 if written is None or written in _KEPT else start - at + 2
    # of memory only what lies at a fixed place is read: a fault would end the call before the probe
    fixed = opcode == _MOV_LOAD and modrm & 0xC7 == 0x05
    if (opcode == _LEA or fixed) and reg not in _KEPT:
        return start - at + 1 + _operand_length(code, start + 1)
    return 0


def _long_nop(code: bytes, at: int) -> int:
    """Length of the multi-byte nop at a place (``66 90``, ``[66 …] [2e] [REX] 0f 1f /0``), or 0."""
    position = at
    while position < len(code) and code[position] in (0x66, 0x2E):
        position += 1
    if code[position : position + 1] == b"\x90":
        return position + 1 - at
    if position < len(code) and 0x40 <= code[position] <= 0x4F:
        position += 1
    if code[position : position + 2] == b"\x0f\x1f" and position + 2 < len(code):
        return position + 2 + _operand_length(code, position + 2) - at
    return 0


def _operand_length(code: bytes, at: int) -> int:
    """Length of a ModRM byte with the SIB byte and the displacement that follow it."""
    mod, rm = code[at] >> 6, code[at] & 7
    length = 1 + {0: 0, 1: 1, 2: 4, 3: 0}[mod]
    if mod == 3:
        return length
    base = rm
    if rm == 4:
        length += 1
        base = code[at + 1] & 7 if at + 1 < len(code) else 0
    if mod == 0 and base == 5:
        length += 4
    return length
