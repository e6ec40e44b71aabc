"""Counts since the daemon's start, by process and function, for /metrics; and sums by process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gputop.engine.accumulator import Accumulator, Part
from gputop.engine.calls import histogram
from gputop.engine.calls.cuda_errors import failed
from gputop.engine.calls.histogram import Ints
from gputop.engine.threads.switches import OpenThreads, ThreadTick, TickThreads
from probes import api
from probes.samples import sample_data
from probes.schema import COPY_SHIFT, CallFlag, Records, select
from probes.source import MARK, OPEN, OTHERS, Item, Sample

GRACE_NS = 120_000_000_000  # an ended process stays this long, so that rare scrapes get its last counts
OTHER = 0  # pid of all processes beyond the limit
# group of a function -> its class in metrics; others: "other"
CLASSES = {
    "launch": "launch", "sync": "sync", "copy": "copy", "set": "copy", "alloc": "alloc", "free": "alloc",
    "host": "alloc", "graph": "graph", "collective": "collective",
}  # fmt: skip
DIRECTIONS = ("h2h", "h2d", "d2h", "d2d", "unknown")
_CLASS_NAMES = tuple(dict.fromkeys((*CLASSES.values(), "other")))
_CLASS_OF = np.array([_CLASS_NAMES.index(CLASSES.get(row.group, "other")) for row in api.BY_OP], np.int64)
_IS_COPY = np.array([row.group == "copy" for row in api.BY_OP])
_IS_ALLOC = np.array([row.group == "alloc" for row in api.BY_OP])


@dataclass(slots=True)
class FunctionCalls:
    """Outermost calls of one function in one process."""

    count: int = 0
    errors: int = 0
    sum_ns: int = 0


@dataclass(slots=True)
class Process:
    """Counts of one process since its first observation."""

    calls: dict[int, FunctionCalls] = field(default_factory=dict)  # by number of the function
    # by class of functions: numbers of calls with 2**i <= ns < 2**(i+1), and the sum of ns
    lengths: dict[str, tuple[Ints, int]] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)  # bytes by direction
    allocated: int = 0
    threads: ThreadTick = field(default_factory=lambda: ThreadTick(0))
    ended_ns: int | None = None  # time of its end; None while it lives


class DaemonTotals(Part):
    """Consumes items in one thread; other threads read under ``held``.

    Calls are summed by function, class and direction, not by ``CallCounts``: without a histogram for each
    function a row has a few hundred bytes, and the number of rows is bounded.
    """

    def __init__(self, start_ns: int = 0, most_rows: int = 5_000) -> None:
        """Start with zero counts.

        Args:
            start_ns: Start of the session.
            most_rows: Most functions and classes of processes; further ones are counted for the
                process OTHER.
        """
        self._most_rows, self.rows = most_rows, 0
        self.held = threading.RLock()
        self.processes: dict[int, Process] = {}
        self._open = OpenThreads()
        self._alive: frozenset[int] = frozenset()
        self._calls_now: dict[int, int] = {}
        self._begin(start_ns)

    def _begin(self, since_ns: int) -> None:
        self._threads = TickThreads(since_ns)
        self._tick = Accumulator(self, self._threads)

    def consume(self, item: Item) -> Sample | None:
        """Consume an item; at a mark, return the sums of each process since the previous one."""
        if not isinstance(item, Sample):
            with self.held:
                self._tick.add(item)
        elif (threads := sample_data(item, OPEN)) is not None:
            self._open = OpenThreads.from_sample(threads)
        elif item.kind == MARK:
            with self.held:
                return self._close(item.time_ns)
        return None

    def process_totals(self, pid: int) -> Process:
        found = self.processes.get(pid)
        if found is None:
            # counters must only grow: a process stays in the row of its first count
            found = self.processes.setdefault(OTHER if self.rows >= self._most_rows else pid, Process())
            self.rows += 1
        return found

    def _calls_of(self, pid: int, op: int) -> FunctionCalls:
        rows = self.process_totals(pid).calls
        if op not in rows:
            if self.rows >= self._most_rows:
                rows = self.processes.setdefault(OTHER, Process()).calls
            self.rows += op not in rows
        return rows.setdefault(op, FunctionCalls())

    def add_calls(self, calls: Records) -> None:
        """Add the outermost of CALL records."""
        nested = calls["flags"] & np.uint16(CallFlag.NESTED) != 0
        if nested.all():
            return
        if nested.any():
            calls = select(calls, ~nested)
        ops = np.minimum(calls["op"], len(_CLASS_OF) - 1).astype(np.int64)
        lengths = calls["duration"].astype(np.int64)
        errors = failed(calls["ret"])
        keys = calls["pid"].astype(np.int64) << 16 | ops
        for key, count, wrong, sum_ns in _summed(keys, errors, lengths):
            row = self._calls_of(key >> 16, key & 0xFFFF)
            row.count, row.errors, row.sum_ns = row.count + count, row.errors + wrong, row.sum_ns + sum_ns
            self._calls_now[key >> 16] = self._calls_now.get(key >> 16, 0) + count
        exponents = histogram.bucket_of(calls["duration"]) // histogram.STEPS
        self._histograms(calls["pid"].astype(np.int64), _CLASS_OF[ops], exponents, lengths)
        sizes = calls["bytes"].astype(np.int64)
        moved = _IS_COPY[ops] & (sizes > 0) & ~errors
        if moved.any():
            ways = np.minimum(calls["flags"][moved].astype(np.int64) >> COPY_SHIFT, len(DIRECTIONS) - 1)
            keys = calls["pid"][moved].astype(np.int64) << 16 | ways
            for key, _count, _zero, size in _summed(keys, np.zeros(len(keys), np.bool_), sizes[moved]):
                copied, way = self.process_totals(key >> 16).copied, DIRECTIONS[key & 0xFFFF]
                copied[way] = copied.get(way, 0) + size
        got = _IS_ALLOC[ops] & (sizes > 0) & ~errors
        if got.any():
            for key, _count, _zero, size in _summed(
                calls["pid"][got].astype(np.int64), np.zeros(int(got.sum()), np.bool_), sizes[got]
            ):
                self.process_totals(key).allocated += size

    def _histograms(self, pids: Ints, classes: Ints, exponents: Ints, lengths: Ints) -> None:
        keys, where = np.unique(pids << 8 | classes, return_inverse=True)
        size = histogram.EXPONENTS
        counts = np.bincount(where * size + exponents, minlength=len(keys) * size).reshape(-1, size)
        for key, row, ns in zip(keys.tolist(), counts, _sums(where, lengths, len(keys)), strict=True):
            found, name = self.process_totals(key >> 8).lengths, _CLASS_NAMES[key & 0xFF]
            self.rows += name not in found
            before, sum_ns = found.get(name, (np.zeros(size, np.int64), 0))
            found[name] = before + row, sum_ns + ns

    def _close(self, mark_ns: int) -> Sample:
        self._tick.settle()
        sums: dict[int, ThreadTick] = {}
        for thread in self._threads.close(mark_ns, self._open, self._alive).values():
            sums.setdefault(thread.pid, ThreadTick(thread.pid)).add(thread)
        self._alive = frozenset(self._open.tid)
        self._begin(mark_ns)
        for pid, thread in sums.items():
            self.process_totals(pid).threads.add(thread)
        calls, self._calls_now = self._calls_now, {}
        self._forget(mark_ns)
        return _open_sample(mark_ns, sums, calls)

    def _forget(self, now_ns: int) -> None:
        living = set(self._open.pid)
        for pid, row in list(self.processes.items()):
            if pid in living or pid == OTHER:
                row.ended_ns = None
            elif row.ended_ns is None:
                row.ended_ns = now_ns
            elif row.ended_ns < now_ns - GRACE_NS:
                del self.processes[pid]
                self.rows -= 1 + len(row.calls) + len(row.lengths)


def _open_sample(mark_ns: int, sums: dict[int, ThreadTick], calls: dict[int, int]) -> Sample:
    pids = sorted({*sums, *calls})
    rows = [sums.get(pid, ThreadTick(pid)) for pid in pids]
    data = {
        "pid": pids,
        "calls": [calls.get(pid, 0) for pid in pids],
        "lived_ns": [row.lived for row in rows],
        "runnable_ns": [row.runnable for row in rows],
        "blocked_ns": [row.blocked for row in rows],
        "voluntary": [row.voluntary for row in rows],
        "involuntary": [row.involuntary for row in rows],
    }
    return Sample(OTHERS, mark_ns, data)


def _sums(where: Ints, values: Ints, size: int) -> list[int]:
    """Exact integer sums by index: floating point would round those of days."""
    found = np.zeros(size, np.int64)
    np.add.at(found, where, values)
    sums: list[int] = found.tolist()
    return sums


def _summed(keys: Ints, flags: npt.NDArray[np.bool_], values: Ints) -> Iterable[tuple[int, int, int, int]]:
    """Yield (key, count, flagged count, sum of values) of each key."""
    names, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    flagged = np.bincount(where[flags], minlength=len(names))
    return zip(
        names.tolist(), counts.tolist(), flagged.tolist(), _sums(where, values, len(names)), strict=True
    )
