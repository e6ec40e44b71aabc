"""What a process asks of the GPU, over all its threads, in order: a number for each kind of thing it asks.

A kind is a kernel (its handle), a copy of one direction and about one size, a graph, a collective, a
``memset``. Waits, queries and small reads are no work; where nothing else tells one step from the next they
may be asked for, all as one kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gputop.explain.evidence.apiclass import D2H, H2D, Group, Role
from gputop.explain.evidence.evidence import Column, Evidence
from gputop.explain.evidence.identity import numbered
from gputop.explain.evidence.linked import kernels_given
from gputop.explain.evidence.ranges import Ints, Mask

SMALL_READ = 64 << 10  # bytes; up to here a copy to the host looks at a result, whenever it comes
_BINS = 2  # of copies' sizes, in each power of two
_FEW = 0.005  # part of the copies; a size that so few have joins no two groups of sizes
_LAUNCHED = 0.01  # part of the operations
_CODE_BITS, _CLASS_BITS = 20, 8


class Work(IntEnum):
    """What sort of thing a symbol stands for."""

    KERNEL = 0
    SEND = 1  # a copy to the device
    READ = 2  # a large copy to the host
    COPY = 3  # any other copy
    SET = 4
    GRAPH = 5
    COLLECTIVE = 6
    WAIT = 7  # a wait or a small read


@dataclass(frozen=True, slots=True)
class Sequence:
    """One row per operation, by begin.

    Attributes:
        rows: Its row in the calls.
        begin, end: Of its call, ns.
        symbol: What it is, as a number from 0.
        since: When the process was done with what it did before it, waits included, ns.
        waited: Whether the next thing that the process does is to wait or to read a result.
        work: ``Work`` of each symbol.
    """

    rows: Ints
    begin: Ints
    end: Ints
    symbol: Ints
    since: Ints
    waited: Mask
    work: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def launches(self) -> bool:
        """Whether it is not only copies that the process gives the GPU."""
        kinds = (Work.KERNEL, Work.GRAPH, Work.COLLECTIVE)
        counts = np.bincount(self.work[self.symbol], minlength=len(Work))
        return bool(counts[list(kinds)].sum() > _LAUNCHED * counts.sum())

    def part(self, low: int, high: int) -> Sequence:
        """The operations from ``low`` up to ``high``."""
        cut = slice(low, high)
        return Sequence(
            self.rows[cut],
            self.begin[cut],
            self.end[cut],
            self.symbol[cut],
            self.since[cut],
            self.waited[cut],
            self.work,
        )


def sequence(evidence: Evidence, threads: Ints, *, waits: bool = False, since_ns: int = 0) -> Sequence:
    """What these threads of one process ask for; with ``waits`` also where they wait.

    Of a window only what it holds whole counts, from ``since_ns`` on: what is kept of older times is not all.
    """
    rows = rows_of(evidence, threads)
    rows = rows[evidence.calls["begin"][rows] >= since_ns]
    work = _work(evidence, rows)
    chosen = np.flatnonzero(work <= Work.WAIT)
    rows, work = rows[chosen], work[chosen]
    calls = evidence.calls
    begin = calls["begin"][rows]
    if len(threads) > 1:
        order = np.argsort(begin, kind="stable")
        rows, work, begin = rows[order], work[order], begin[order]
    waited = np.append(work[1:] == Work.WAIT, False)
    over = np.maximum.accumulate(calls["end"][rows])
    since = np.minimum(np.append(begin[:1], over[:-1]), begin)
    if not waits:
        chosen = np.flatnonzero(work < Work.WAIT)
        rows, work, begin = rows[chosen], work[chosen], begin[chosen]
        since, waited = since[chosen], waited[chosen]
    symbol, kinds = _symbols(evidence, rows, work)
    return Sequence(rows, begin, calls["end"][rows], symbol, since, waited, kinds)


def rows_of(evidence: Evidence, threads: Ints) -> Ints:
    """The rows of some threads' calls."""
    column = evidence.calls["row"]
    low, high = np.searchsorted(column, threads), np.searchsorted(column, threads, side="right")
    parts = [np.arange(first, last) for first, last in zip(low.tolist(), high.tolist(), strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


_NOTHING = 255
_OF_GROUP = np.full(256, _NOTHING, np.uint8)
_OF_GROUP[Group.LAUNCH] = Work.KERNEL
_OF_GROUP[Group.COPY] = Work.COPY
_OF_GROUP[Group.SET] = Work.SET
_OF_GROUP[Group.GRAPH] = Work.GRAPH
_OF_GROUP[Group.COLLECTIVE] = Work.COLLECTIVE


def _work(evidence: Evidence, rows: Ints) -> npt.NDArray[np.uint8]:
    """``Work`` of each call, ``_NOTHING`` of those that are neither work nor wait."""
    calls = evidence.calls
    groups, roles = evidence.group(calls).take(rows), evidence.role(calls).take(rows)
    work = _OF_GROUP.take(groups)
    gives = (roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)
    work[~gives] = _NOTHING
    copies = np.flatnonzero(work == Work.COPY)
    direction = calls["direction"][rows[copies]]
    small = calls["bytes"][rows[copies]] <= SMALL_READ
    read = np.where(small, np.uint8(Work.WAIT), np.uint8(Work.READ))
    sort = np.where(direction == D2H, read, np.uint8(Work.COPY))
    work[copies] = np.where(direction == H2D, np.uint8(Work.SEND), sort)
    work[groups == Group.SYNC] = Work.WAIT
    return work


def _symbols(evidence: Evidence, rows: Ints, work: Column) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """(symbol of each row, ``Work`` of each symbol)."""
    calls = evidence.calls
    handled = (work == Work.KERNEL) | (work == Work.GRAPH)
    handle, _values = numbered(np.where(handled, _handles(evidence)[rows], np.uint64(0)))
    code = np.zeros(len(rows), np.int64)
    for kind in (Work.SEND, Work.READ, Work.COPY):
        mine = np.flatnonzero(work == kind)
        code[mine] = _sizes(calls["bytes"][rows[mine]])
    named = np.flatnonzero((work == Work.SET) | (work == Work.COLLECTIVE))
    code[named] = calls["op"][rows[named]]
    # exact: a handle's number, a code and a class lie side by side
    key = (handle << (_CODE_BITS + _CLASS_BITS)) | (code << _CLASS_BITS) | work
    symbol, values = numbered(key.astype(np.uint64))
    return symbol, (values & np.uint64((1 << _CLASS_BITS) - 1)).astype(np.uint8)


def _handles(evidence: Evidence) -> Column:
    """The kernel or graph of each call; of an imported file, where calls have no handles, by its name."""
    given = kernels_given(evidence).astype(np.uint64)
    return (
        np.where(evidence.calls["aux"] == 0, given, evidence.calls["aux"])
        if given.any()
        else evidence.calls["aux"]
    )


def _sizes(size: Ints) -> Ints:
    """Groups of sizes: batches of varying length are one, where no factor of two between them is missing."""
    if not len(size):
        return size
    place = np.floor(np.log2(np.maximum(size, 1)) * _BINS).astype(np.int64)
    used = np.flatnonzero(np.bincount(place, minlength=64 * _BINS) > _FEW * len(size))
    first = used[np.append(True, np.diff(used) > _BINS)]
    numbers: Ints = np.searchsorted(first, place, side="right")
    return numbers
