"""The 64-bit cookie of a probe: where the BPF programs find the arguments of a function.

Made from the rows of probes/api.py, decoded by probes/ebpf/bpf/arguments.h (docs/probes.md, "The cookie").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from probes import api
from probes.schema import CallOut

REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


class ApiTableError(ValueError):
    """A row's argument specification cannot be encoded."""


# bits 0-9 op | 10 counters | 11-13 bytes mode | 14-16 a | 17-19 b | 20-25 offset/8
# 26-28 kind mode | 29-31 value | 32-36 offset/8 | 37-39 stream mode | 40-42 value | 43-46 offset/8
# 47 aux present | 48-50 register | 51 per-thread default stream | 52-53 rank of the layer
# 54-55 what the call leaves at its first argument (CallOut) | 56 aux has 32 bits | 57 slow
# 58-59 where the shape of a launch is | 63 the link is a process's own
BYTES_NONE, BYTES_REG, BYTES_PRODUCT, BYTES_STRUCT, BYTES_NCCL = range(5)
ARG_NONE, ARG_REG, ARG_STACK, ARG_STRUCT, ARG_CONST = range(5)
_SHAPES: dict[api.ShapeAt, int] = {"": 0, "dim3": 1, "words": 2, "config": 3}
OWN_LINK = 1 << 63
_RANKS = {api.DRIVER: 0, api.RUNTIME: 1, api.NCCL: 2}  # a layer calls those below it


def _bytes_spec(spec: str) -> tuple[int, int, int, int]:
    """(mode, a, b, offset): registers by number, shift or count in b, struct offset in eights."""
    if not spec:
        return BYTES_NONE, 0, 0, 0
    if match := re.fullmatch(r"nccl\((\w+),(\w+)\)", spec):
        return BYTES_NCCL, REGISTERS.index(match[1]), REGISTERS.index(match[2]), 0
    if match := re.fullmatch(r"(\w+)->(\d+)\*(\d)", spec):
        return BYTES_STRUCT, REGISTERS.index(match[1]), int(match[3]), int(match[2]) // 8
    if match := re.fullmatch(r"(\w+)\*(\w+)", spec):
        return BYTES_PRODUCT, REGISTERS.index(match[1]), REGISTERS.index(match[2]), 0
    if match := re.fullmatch(r"(\w+)(?:<<(\d))?", spec):
        return BYTES_REG, REGISTERS.index(match[1]), int(match[2] or 0), 0
    raise ApiTableError(f"bytes={spec}")


def _argument_spec(spec: str) -> tuple[int, int, int]:
    """(mode, value, offset): register number, stack slot, or constant; struct offset in eights."""
    if not spec:
        return ARG_NONE, 0, 0
    if spec in REGISTERS:
        return ARG_REG, REGISTERS.index(spec), 0
    if spec.isdigit():
        return ARG_CONST, int(spec), 0
    if match := re.fullmatch(r"\[(\d+)\]", spec):
        return ARG_STACK, int(match[1]) // 8, 0
    if match := re.fullmatch(r"(\w+)->(\d+)", spec):
        return ARG_STRUCT, REGISTERS.index(match[1]), int(match[2]) // 8
    raise ApiTableError(f"argument={spec}")


def _pack(parts: Iterable[tuple[int, int]]) -> int:
    """Packs (value, bits) pairs, first in the lowest bits."""
    cookie = shift = 0
    for value, bits in parts:
        if not 0 <= value < 1 << bits:
            raise ApiTableError(f"{value} does not fit {bits} bits")
        cookie |= value << shift
        shift += bits
    return cookie


def _aux_spec(spec: str) -> tuple[int, int, int]:
    """(present, register number, whether only its lower 32 bits count)."""
    if not spec:
        return 0, 0, 0
    narrow = spec.startswith("e")
    return 1, REGISTERS.index("r" + spec[1:] if narrow else spec), int(narrow)


def _out_spec(row: api.Api) -> tuple[CallOut, str, str]:
    """(the result where the first argument points, stream, aux); both without the star."""
    stream, aux = row.stream.removeprefix("*"), row.aux.removeprefix("*")
    if (stream, aux) == (row.stream, row.aux):
        return CallOut.NONE, stream, aux
    out, register = (CallOut.STREAM, stream) if stream != row.stream else (CallOut.AUX, aux)
    if register != "rdi" or row.stream[:1] == row.aux[:1]:
        raise ApiTableError(f"stream={row.stream} aux={row.aux}")
    return out, stream, aux


def encode(row: api.Api, symbol: str) -> int:
    """The 64-bit BPF cookie from which the entry program decodes this symbol's arguments."""
    mode, a, b, offset = _bytes_spec(row.bytes)
    kind_mode, kind_value, kind_offset = _argument_spec(row.kind)
    out, stream, aux = _out_spec(row)
    stream_mode, stream_value, stream_offset = _argument_spec(stream)
    aux_present, aux_register, aux_narrow = _aux_spec(aux)
    return _pack(
        [
            (api.OP_OF[row.name], 10),
            (int(row.group in api.COUNTED_GROUPS), 1),
            (mode, 3),
            (a, 3),
            (b, 3),
            (offset, 6),
            (kind_mode, 3),
            (kind_value, 3),
            (kind_offset, 5),
            (stream_mode, 3),
            (stream_value, 3),
            (stream_offset, 4),
            (aux_present, 1),
            (aux_register, 3),
            (int(api.is_per_thread(symbol)), 1),
            (_RANKS[row.layer], 2),
            (out, 2),
            (aux_narrow, 1),
            (int(row.group in api.COSTLY_GROUPS), 1),
            (_SHAPES[row.shape], 2),
        ]
    )
