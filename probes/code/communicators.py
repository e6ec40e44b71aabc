"""The functions that make and end NCCL communicators, and their cookies.

They are not rows of probes/api.py: programs of their own read them (probes/ebpf/bpf/communicators.c), so that
rare calls cost the others nothing. Sources: nccl.h and the disassembly of NCCL 2.32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from probes import api
from probes.schema import Communicator

_MARK = 1 << 63  # no cookie of probes/code/cookies.py has it
NO_ROW = api.MAX_ROWS - 1  # in place of the number of an API; sorts behind all of them


class Id(IntEnum):
    """How the common id of the ranks is passed."""

    NONE = 0
    VALUE = 1  # by value: on x86-64 on the stack, on arm64 by a register before those behind it
    POINTER = 2
    PARENT = 3  # the communicator that is split


@dataclass(frozen=True, slots=True)
class Function:
    """One function. Numbers are those of its register arguments, from 0 on."""

    what: Communicator  # what it does
    made: int  # the new communicator; of a function that ends one, that one
    first: int = 0  # number of ranks, or the colour of a part
    second: int = 0  # this rank, or the key by which ranks of a part are ordered
    by: Id = Id.NONE  # how the id is passed
    id: int = 0  # the id's argument, unless by value


_JOINS = Function(Communicator.JOINED, 0, 1, 2, Id.VALUE)
_LEAVES = Function(Communicator.LEFT, 0)
FUNCTIONS: dict[str, Function] = {
    "ncclCommInitRank": _JOINS,
    "ncclCommInitRankConfig": _JOINS,
    "ncclCommInitRankScalable": Function(Communicator.JOINED, 0, 1, 2, Id.POINTER, 4),
    "ncclCommInitAll": Function(Communicator.ALL, 0, 1),
    "ncclCommSplit": Function(Communicator.SPLIT, 3, 1, 2, Id.PARENT, 0),
    "ncclCommDestroy": _LEAVES,
    "ncclCommAbort": _LEAVES,
}


def cookie_of(symbol: str, layer: str) -> int | None:
    """The cookie of an exported function; None where it is none of these."""
    function = FUNCTIONS.get(api.base_name(symbol)) if layer == api.NCCL else None
    if function is None:
        return None
    parts = (function.what, 10), (function.made, 12), (function.first, 15), (function.second, 18)
    cookie = _MARK | NO_ROW | function.by << 21 | function.id << 23
    for value, place in parts:
        cookie |= value << place
    return cookie


def is_one(cookie: int) -> bool:
    """True if a cookie is that of such a function."""
    return bool(cookie & _MARK)
