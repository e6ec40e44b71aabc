"""Ranks of processes in communicators over time, from the calls that made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gputop.analysis.evidence.columns import FOREVER
from probes.samples import sample_data
from probes.schema import Communicator, Kind, Records, select
from probes.source import PROBLEM, Item

_COMMUNICATOR: Final = np.uint8(Kind.COMMUNICATOR)
_NO_COLOUR: Final = 2**32 - 1  # NCCL_SPLIT_NOCOLOR: the rank is in no part
BUDGET: Final = "budget"  # a problem about it: less is observed from then on


@dataclass(frozen=True, slots=True)
class Membership:
    """One rank of one communicator."""

    pid: int  # its process
    handle: int  # the process's handle of the communicator
    id: str  # identifier common to all ranks on all hosts, 16 hexadecimal digits
    rank: int  # its number; of a sub-communicator: its number in the parent
    ranks: int | None  # number of ranks; None if unknown, as of sub-communicators
    # since_ns, until_ns: CLOCK_MONOTONIC. A handle may be reused
    since_ns: int
    until_ns: int = FOREVER


class Memberships:
    """Gathers memberships from the items of a recording, in order."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], Membership] = {}
        self._over: list[Membership] = []
        self._splits: dict[tuple[int, int, int], int] = {}
        self.blind_ns = FOREVER  # from here on calls may have been missed; FOREVER: none was

    def consume(self, item: Item) -> None:
        """Consume an item; records of other kinds are ignored."""
        if isinstance(item, np.ndarray):
            mine = item["kind"] == _COMMUNICATOR
            for row in select(item, mine) if mine.any() else ():
                self._record(row)
        elif (
            (problem := sample_data(item, PROBLEM)) and problem.get("about") == BUDGET and problem.get("text")
        ):
            self.blind_ns = min(self.blind_ns, item.time_ns)

    def all(self) -> Iterable[Membership]:
        """Return ended memberships, then open ones."""
        return (*self._over, *self._open.values())

    def _record(self, row: Records) -> None:
        what, pid, handle, now = int(row["op"]), int(row["pid"]), int(row["aux"]), int(row["t_end"])
        first, second = divmod(int(row["bytes"]), 2**32)
        begun = now - int(row["duration"])
        if what == Communicator.LEFT:
            self._end(pid, handle, now)
        elif what == Communicator.SPLIT:
            self._split(pid, int(row["stream"]), handle, first, begun)
        elif handle and what in (Communicator.JOINED, Communicator.ALL):
            made = Membership(pid, handle, f"{int(row['stream']):016x}", second, first, begun)
            self._begin(made)

    def _split(self, pid: int, parent: int, handle: int, colour: int, begun: int) -> None:
        """All ranks split a communicator in the same order, so split number and colour identify a part."""
        whole = self._open.get((pid, parent))
        since = whole.since_ns if whole is not None else 0
        number = self._splits[pid, parent, since] = self._splits.get((pid, parent, since), 0) + 1
        if whole is None or not handle or colour == _NO_COLOUR:
            return  # parts of an unknown communicator are unknown
        words = f"{whole.id} {number} {colour}".encode()
        part = hashlib.blake2b(words, digest_size=8).hexdigest()
        self._begin(Membership(pid, handle, part, whole.rank, None, begun))

    def _begin(self, made: Membership) -> None:
        self._end(made.pid, made.handle, made.since_ns)
        self._open[made.pid, made.handle] = made

    def _end(self, pid: int, handle: int, now: int) -> None:
        ended = self._open.pop((pid, handle), None)
        if ended is not None:
            self._over.append(replace(ended, until_ns=now))
