"""Sums of a stretch of a recording that add up to those of the whole: of calls, threads, lines and waits.

A ``Tally`` takes a stretch in, and what the stretch that came next told. What comes out does not depend on
where a recording is cut, as long as it is cut between items: sums and histograms are integers, so this is
exact. Facts are no sums: who merges gives them to one tally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.engine.callers import Callers
from gputop.engine.calltable import CallTable, Totals
from gputop.engine.counters import Counters, add_up, settled
from gputop.engine.facts import Facts
from gputop.engine.failed_calls import FailedCalls
from gputop.engine.histogram import BUCKETS, Ints
from gputop.engine.kernels import Counts, KernelCounts
from gputop.engine.kernels import add as add_kernels
from gputop.engine.linesums import Sums, add, sums_of, waits_of
from gputop.engine.switches import OpenThreads, ThreadTick, slice_sums
from probes.api import MAX_ROWS
from probes.samples import told
from probes.schema import Kind, Records, select
from probes.source import APIS, COUNTERS, MARK, OPEN, SUMS, Item, Sample

VERSION = 1  # of what ``told`` returns
_TOTALS = ("count", "errors", "bytes", "sum_ns", "max_ns")
STATES = ("lived", "runnable", "blocked", "voluntary", "involuntary")  # of a thread in one tick
_SWITCHES = ("runnable", "blocked", "voluntary", "involuntary")
_MOST_ROWS = 16_384  # of one table; a table of calls holds no more either
_MOST_SUMS = 1 << 20


@dataclass(slots=True)
class Threads:
    """Sums slices thread by thread; a thread's life runs from its first record to its exit or the end."""

    sums: dict[int, ThreadTick] = field(default_factory=dict)
    born: dict[int, int] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)
    counted: dict[int, ThreadTick] = field(default_factory=dict)  # without eBPF, instead of slices
    counters: Counters | None = None

    def add(self, records: Records) -> None:
        """Takes slices, births and exits out of a batch."""
        kinds = records["kind"]
        off = kinds == np.uint8(Kind.OFFCPU)
        if off.any():
            for tid, part in slice_sums([select(records, off)], 0).items():
                self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)
        life = (kinds >= np.uint8(Kind.FORK)) & (kinds <= np.uint8(Kind.JOIN))
        if life.any():
            for row in select(records, life):
                tid, at = int(row["tid"]), int(row["t_end"])
                if row["kind"] == Kind.EXIT:
                    self.died[tid] = at
                else:
                    self.born.setdefault(tid, at)
                    # a thread that is not the leader and calls exec takes over the dead leader's number
                    self.died.pop(tid, None)
                    self.sums.setdefault(tid, ThreadTick(int(row["pid"])))

    def count(self, counters: Counters) -> None:
        """Takes a reading of the kernel's counters; readings need the one before, so they do not merge."""
        add_up(self.counted, counters.growth(self.counters, whole=True))
        self.counters = counters

    def merge(self, later: Threads) -> None:
        """Takes in what came next."""
        for tid, part in later.sums.items():
            self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)
        for tid, at in later.born.items():
            self.born.setdefault(tid, at)
            self.died.pop(tid, None)
        self.died.update(later.died)

    def finish(
        self, span_of: Callable[[int], tuple[int, int]], still_open: OpenThreads
    ) -> dict[int, ThreadTick]:
        """The sums with the slices that are open at the end, and each thread's life filled in.

        Args:
            span_of: From when to when a process was recorded.
            still_open: Threads at the end.
        """
        found: dict[int, ThreadTick] = {}
        for tid, part in self.sums.items():
            found[tid] = ThreadTick(part.pid)
            found[tid].add(part)
        rows = zip(still_open.tid, still_open.off_since, still_open.queued_since, strict=True)
        for tid, off, queued in rows:
            thread = found.get(tid)
            end_ns = span_of(thread.pid)[1] if thread is not None else 0
            if thread is not None and off and off < end_ns:
                waiting = queued if queued and queued < end_ns else end_ns
                thread.runnable += end_ns - waiting
                thread.blocked += waiting - off
        for tid, thread in found.items():
            start_ns, end_ns = span_of(thread.pid)
            thread.lived = self.died.get(tid, end_ns) - self.born.get(tid, start_ns)
        return found | {tid: settled(thread) for tid, thread in self.counted.items()}


class Tally:
    """What a stretch of a recording adds up to.

    Attributes:
        mark: The newest mark, None before the first.
        facts: Who is who, as far as it took that in.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.events = 0
        self.table, self.totals = CallTable(), Totals.zeros(0)
        self.threads = Threads()
        self.failed = FailedCalls()
        self.kernels = KernelCounts()
        self.lines: Sums = {}
        self.waits: Sums = {}
        self.mark: Sample | None = None
        self.still_open = OpenThreads()
        self.facts = Facts()
        self._callers = Callers()
        self._called: set[int] = set()

    def take(self, item: Item) -> None:
        """Takes one item in."""
        if not isinstance(item, Sample):
            self._records(item)
        elif item.kind == MARK:
            self.mark = item
        elif (threads := told(item, OPEN)) is not None:
            self.still_open = OpenThreads.from_sample(threads, ended=True)
        elif item.kind == SUMS:
            self.merge(item.data)
        elif item.kind == COUNTERS:
            self.threads.count(Counters.from_sample(item))
        else:
            self.facts.take(item)
            if item.kind == APIS:
                self.kernels.name(str(row[0]) for row in item.data.get("rows", ()))

    def _records(self, records: Records) -> None:
        self.events += len(records)
        calls = select(records, records["kind"] == np.uint8(Kind.CALL))
        self.table.add(calls, self.totals)
        add(self.lines, sums_of(calls))
        add(self.waits, waits_of(records))
        self.failed.add(calls)
        self.kernels.add(calls)
        self._callers.add(calls["tid"])
        self.threads.add(records)

    @property
    def callers(self) -> frozenset[int]:
        """Threads that made a call."""
        self._called |= self._callers.take()
        return frozenset(self._called)

    def __getstate__(self) -> dict[str, Any]:
        return self.told()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.merge(state)

    def told(self) -> dict[str, Any]:
        """The sums as plain data, without facts: for a file, or another process."""
        self.totals.grow(self.table.rows)
        rows = [row for row in np.flatnonzero(self.totals.count).tolist() if self.table.keys[row] is not None]
        rows = [0, *rows]  # what has no row of its own
        keys = [self.table.keys[row] or (0, 0, False) for row in rows]
        counts = self.table.counts[rows].reshape(-1)
        filled = np.flatnonzero(counts)
        threads = self.threads.sums
        return {
            "version": VERSION,
            "events": self.events,
            "calls": packed(
                [
                    (*key, *(int(getattr(self.totals, name)[row]) for name in _TOTALS))
                    for key, row in zip(keys, rows, strict=True)
                ]
            ),
            "buckets": np.diff(filled, prepend=0).astype("<u4").tobytes(),
            "counts": counts[filled].astype("<u4").tobytes(),
            "threads": packed(
                [(tid, one.pid, *(getattr(one, name) for name in _SWITCHES)) for tid, one in threads.items()]
            ),
            "born": packed(list(self.threads.born.items())),
            "died": packed(list(self.threads.died.items())),
            "lines": _packed_sums(self.lines),
            "waits": _packed_sums(self.waits),
            "callers": packed([(tid,) for tid in sorted(self.callers)]),
            "failed": self.failed.told(),
            "kernels": _packed_kernels(self.kernels.counts),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Takes in what the stretch that came next told.

        Raises:
            ValueError: It is no such data, or more than there can be.
        """
        if data.get("version") != VERSION:
            raise ValueError("sums of another version")
        self.events += int(data["events"])
        merge_calls(self.table, self.totals, data)
        threads = Threads(
            {tid: ThreadTick(pid, 0, *rest) for tid, pid, *rest in _rows(data, "threads", 6)},
            dict(_pairs(data, "born")),
            dict(_pairs(data, "died")),
        )
        self.threads.merge(threads)
        add(self.lines, told_sums(data, "lines"))
        add(self.waits, told_sums(data, "waits"))
        self._called |= told_callers(data)
        if "kernels" in data:
            add_kernels(self.kernels.counts, told_kernels(data))
        if "failed" in data:
            self.failed.merge(data["failed"])
        elif any(row[3 + _TOTALS.index("errors")] for row in _rows(data, "calls", 3 + len(_TOTALS))):
            raise ValueError("which calls failed was not told by the gputop that wrote these sums")


def merge_calls(
    table: CallTable, totals: Totals, data: Mapping[str, Any]
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Takes the calls that ``Tally.told`` told into a table; (places in its counts, what was added there).

    Raises:
        ValueError: It is no such data, or more than there can be.
    """
    rows = _rows(data, "calls", 3 + len(_TOTALS))
    if not 0 < len(rows) <= _MOST_ROWS:
        raise ValueError("calls of more functions than there can be")
    buckets = np.cumsum(np.frombuffer(data["buckets"], "<u4").astype(np.int64))
    counts = np.frombuffer(data["counts"], "<u4")
    if len(buckets) != len(counts) or (len(buckets) and int(buckets[-1]) >= len(rows) * BUCKETS):
        raise ValueError("histograms of other calls")
    keys = [None, *((pid, op & (MAX_ROWS - 1), bool(nested)) for pid, op, nested, *_ in rows[1:])]
    mine = table.rows_for(keys)
    totals.grow(table.rows)
    place = mine[buckets // BUCKETS] * BUCKETS + buckets % BUCKETS
    added = counts.astype(np.int32)
    np.add.at(table.counts.reshape(-1), place, added)
    for column, name in enumerate(_TOTALS, 3):
        values = np.array([row[column] for row in rows], np.int64)
        into = getattr(totals, name)
        (np.maximum if name == "max_ns" else np.add).at(into, mine, values)
    return place, added


def told_sums(data: Mapping[str, Any], name: str) -> Sums:
    """``lines`` or ``waits`` as ``Tally.told`` told them.

    Raises:
        ValueError: They are not there, or too many.
    """
    return {
        (pid, second, stack % 2**64): (count, ns) for pid, second, stack, count, ns in _rows(data, name, 5)
    }


def told_kernels(data: Mapping[str, Any]) -> Counts:
    """Launches by kernel, as ``Tally.told`` told them.

    Raises:
        ValueError: They are too many.
    """
    return {(pid, handle % 2**64): count for pid, handle, count in _rows(data, "kernels", 3)}


def told_callers(data: Mapping[str, Any]) -> set[int]:
    """The threads that made a call, as ``Tally.told`` told them."""
    return {tid for (tid,) in _rows(data, "callers", 1)}


def told_states(data: Mapping[str, Any]) -> dict[int, ThreadTick]:
    """Of a sample ``sums`` what each thread did in its tick."""
    return {tid: ThreadTick(pid, *rest) for tid, pid, *rest in _rows(data, "states", 2 + len(STATES))}


def tally(items: Iterable[Item]) -> Tally:
    """The sums of some items."""
    made = Tally()
    for item in items:
        made.take(item)
    return made


def packed(rows: list[tuple[int, ...]]) -> bytes:
    """Rows of integers, column by column, which compresses well."""
    return np.array(rows, "<i8").T.tobytes() if rows else b""


def _packed_sums(sums: Sums) -> bytes:
    return packed(
        [
            (pid, second, (stack + 2**63) % 2**64 - 2**63, count, ns)
            for (pid, second, stack), (count, ns) in sums.items()
        ]
    )


def _packed_kernels(counts: Counts) -> bytes:
    return packed([(pid, (handle + 2**63) % 2**64 - 2**63, n) for (pid, handle), n in counts.items()])


def _rows(data: Mapping[str, Any], name: str, width: int) -> list[list[int]]:
    """Rows of so many integers.

    Raises:
        ValueError: They are not there, or too many.
    """
    packed = data[name]
    if not isinstance(packed, bytes) or len(packed) % (8 * width) or len(packed) > 8 * width * _MOST_SUMS:
        raise ValueError(f"{name} are no such rows")
    rows: list[list[int]] = np.frombuffer(packed, "<i8").reshape(width, -1).T.tolist()
    return rows


def _pairs(data: Mapping[str, Any], name: str) -> list[tuple[int, int]]:
    return [(first, second) for first, second in _rows(data, name, 2)]
