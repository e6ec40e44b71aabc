"""The 64 bits that each probe carries: where the BPF program finds the arguments of its function.

The table of functions is ``probes/api.py``, the decoder ``probes/bpf/arguments.h`` and ``calls.c``; what the
bits mean is written in docs/probes.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from probes import api


class ApiTableError(ValueError):
    """A row's argument specification cannot be encoded."""


# bits 0-9 op | 10 counters | 11-13 bytes mode | 14-16 a | 17-19 b | 20-25 offset/8
# 26-28 kind mode | 29-31 value | 32-36 offset/8 | 37-39 stream mode | 40-42 value | 43-46 offset/8
# 47 aux present | 48-50 register | 51 per-thread default stream | 52-53 rank of the layer
BYTES_NONE, BYTES_REG, BYTES_PRODUCT, BYTES_STRUCT, BYTES_NCCL = range(5)
_RANKS = {api.DRIVER: 0, api.RUNTIME: 1, api.NCCL: 2}  # a layer calls those below it
ARG_NONE, ARG_REG, ARG_STACK, ARG_STRUCT, ARG_CONST = range(5)


def _bytes_spec(spec: str) -> tuple[int, int, int, int]:
    """(mode, a, b, offset): registers by number, shift or count in b, struct offset in eights."""
    if not spec:
        return BYTES_NONE, 0, 0, 0
    if match := re.fullmatch(r"nccl\((\w+),(\w+)\)", spec):
        return BYTES_NCCL, api.REGISTERS.index(match[1]), api.REGISTERS.index(match[2]), 0
    if match := re.fullmatch(r"(\w+)->(\d+)\*(\d)", spec):
        return BYTES_STRUCT, api.REGISTERS.index(match[1]), int(match[3]), int(match[2]) // 8
    if match := re.fullmatch(r"(\w+)\*(\w+)", spec):
        return BYTES_PRODUCT, api.REGISTERS.index(match[1]), api.REGISTERS.index(match[2]), 0
    if match := re.fullmatch(r"(\w+)(?:<<(\d))?", spec):
        return BYTES_REG, api.REGISTERS.index(match[1]), int(match[2] or 0), 0
    raise ApiTableError(f"bytes={spec}")


def _argument_spec(spec: str) -> tuple[int, int, int]:
    """(mode, value, offset): register number, stack slot, or constant; struct offset in eights."""
    if not spec:
        return ARG_NONE, 0, 0
    if spec in api.REGISTERS:
        return ARG_REG, api.REGISTERS.index(spec), 0
    if spec.isdigit():
        return ARG_CONST, int(spec), 0
    if match := re.fullmatch(r"\[(\d+)\]", spec):
        return ARG_STACK, int(match[1]) // 8, 0
    if match := re.fullmatch(r"(\w+)->(\d+)", spec):
        return ARG_STRUCT, api.REGISTERS.index(match[1]), int(match[2]) // 8
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


def encode(row: api.Api, symbol: str) -> int:
    """The 64-bit BPF cookie from which the entry program decodes this symbol's arguments."""
    mode, a, b, offset = _bytes_spec(row.bytes)
    kind_mode, kind_value, kind_offset = _argument_spec(row.kind)
    stream_mode, stream_value, stream_offset = _argument_spec(row.stream)
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
            (int(bool(row.aux)), 1),
            (api.REGISTERS.index(row.aux) if row.aux else 0, 3),
            (int(api.is_per_thread(symbol)), 1),
            (_RANKS[row.layer], 2),
        ]
    )
