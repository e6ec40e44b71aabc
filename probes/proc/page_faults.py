"""Page faults of watched processes and their threads, by the kernel's counts, reported once a second.

No fault is traced: ``/proc`` has the sums, and the record of a thread's end has those of its whole life. So
the count of an ended process is exact, and that of a live one at most a second old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from probes.proc import procfs
from probes.schema import ALIASED, ExitFlag, Kind, Records, select
from probes.source import FAULTS, Sample

LOOK_NS = 1_000_000_000
WHOLE = 0  # in place of a thread: the process
_MOST_PROCESSES = 128  # are read in a second, in turn; each costs 10 us
_MOST_THREADS = 256
_MOST_AT_END = 4096  # of both, since it is not read again
_MOST_ROWS = 8192  # of a sample, which is bounded
_READINGS = 3  # for one of a process and its threads between which nothing happened
_COLUMNS = ("kind", "pid", "tid", "flags", "minor", "major")
_FORKED, _EXITED = np.uint8(Kind.FORK), np.uint8(Kind.EXIT)

Counts: TypeAlias = tuple[int, int]  # minor, major
NONE: Counts = (0, 0)


def _plus(one: Counts, other: Counts) -> Counts:
    return one[0] + other[0], one[1] + other[1]


def _growth(now: Counts, before: Counts) -> Counts:
    """Never negative: a process and its threads are not read at one moment."""
    return max(now[0] - before[0], 0), max(now[1] - before[1], 0)


@dataclass(slots=True)
class _Process:
    """Counts as last reported, since birth; ``ended``: those of its threads that are no more.

    ``complete``: all of its threads are known, so that its end has its own sum.
    """

    counted: Counts = NONE
    ended: Counts = NONE
    threads: dict[int, Counts] = field(default_factory=dict)
    complete: bool = True
    looked: bool = False
    turn: int = 0


class PageFaults:
    """Consumes births and ends, reads ``/proc`` at marks, and yields the growth."""

    def __init__(self, born_since_ns: int | None = None) -> None:
        """Start without processes.

        Args:
            born_since_ns: Where no records show births: processes that began later (CLOCK_MONOTONIC) are
                counted from their birth on, not from the first look.
        """
        self._born_since_ns = born_since_ns
        self._processes: dict[int, _Process] = {}
        self._added: dict[tuple[int, int], Counts] = {}  # not yet reported
        self._due_ns = 0
        self._turn = 0

    def notice(self, records: Records) -> None:
        """Consumes births of processes, whose counts begin at 0, and ends of threads."""
        kinds = records["kind"]
        rare = (kinds == _FORKED) | (kinds == _EXITED)
        if not rare.any():
            return
        for kind, pid, tid, flags, *counts in select(records, rare).view(ALIASED)[[*_COLUMNS]].tolist():
            if kind == Kind.FORK:
                if pid == tid:
                    self._processes[pid] = _Process()
            elif pid in self._processes:
                self._end(pid, tid, (counts[0], counts[1]), dead=bool(flags & ExitFlag.GROUP_DEAD))

    def add(self, pid: int) -> None:
        """Adds a process that is watched from now on: its counts so far are not reported."""
        self._begin(pid, _MOST_AT_END)

    def _end(self, pid: int, tid: int, counts: Counts, *, dead: bool) -> None:
        process = self._processes[pid]
        before = process.threads.pop(tid, NONE if process.complete else None)
        process.ended = _plus(process.ended, counts)
        if before is not None:
            self._add(pid, tid, _growth(counts, before))
        if dead:
            if process.complete:
                self._add(pid, WHOLE, _growth(process.ended, process.counted))
            del self._processes[pid]

    def _add(self, pid: int, tid: int, counts: Counts) -> None:
        self._added[pid, tid] = _plus(self._added.get((pid, tid), NONE), counts)

    def samples(self, alive: Collection[int], now_ns: int, *, last: bool = False) -> Iterator[Sample]:
        """The growth since the last report; of new processes, that they are counted from here on."""
        if now_ns < self._due_ns and not last:
            return
        self._due_ns = now_ns + LOOK_NS
        for pid in self._processes.keys() - alive:
            del self._processes[pid]  # its end was lost
        self._turn = 0 if last else self._turn
        left = _MOST_AT_END if last else _MOST_THREADS
        for pid in self._chosen(sorted(alive), _MOST_AT_END if last else _MOST_PROCESSES):
            left -= self._look(pid, left)
        rows = [(*key, *counts) for key, counts in self._added.items()]
        self._added = {}
        for start in range(0, len(rows), _MOST_ROWS):
            columns = map(list, zip(*rows[start : start + _MOST_ROWS], strict=True))
            yield Sample(FAULTS, now_ns, dict(zip(("pid", "tid", "minor", "major"), columns, strict=True)))

    def _chosen(self, pids: list[int], most: int) -> list[int]:
        """The next ones in turn."""
        if self._turn >= len(pids):
            self._turn = 0
        chosen = pids[self._turn : self._turn + most]
        self._turn += len(chosen)
        return chosen

    def _look(self, pid: int, left: int) -> int:
        """Reads a process, and its threads where it counted something; returns how many threads it read."""
        process = self._processes.get(pid)
        counts = procfs.page_faults(pid)
        if counts is None:  # the record of its end is on its way
            return 0
        if process is None and not self._is_young(pid):
            return self._begin(pid, left)
        process = self._processes.setdefault(pid, _Process())
        if counts == process.counted and process.looked:
            return 0
        process.looked = True
        self._add(pid, WHOLE, _growth(counts, process.counted))
        process.counted = counts
        tids = procfs.threads(pid)
        if process.turn >= len(tids):
            process.turn = 0
        tids = tids[process.turn : process.turn + max(left, 0)]
        process.turn += len(tids)
        for tid, now in _counts_of(pid, tids):
            before = process.threads.get(tid, NONE if process.complete else now)
            if now != before or tid not in process.threads:
                self._add(pid, tid, _growth(now, before))
            process.threads[tid] = now
        return len(tids)

    def _is_young(self, pid: int) -> bool:
        """True if it began within sight, without a record of it."""
        start = procfs.start_of(pid) if self._born_since_ns is not None else None
        if start is None or self._born_since_ns is None:
            return False
        return start[1] - procfs.boot_offset_ns() >= self._born_since_ns

    def _begin(self, pid: int, left: int) -> int:
        """Sets the counts so far of a process and its threads as zero."""
        read = 0
        for _ in range(_READINGS):
            before = procfs.page_faults(pid)
            tids = procfs.threads(pid)
            threads = dict(_counts_of(pid, tids[: max(left, 0)]))
            read += len(threads)
            counts = procfs.page_faults(pid)
            if counts == before:
                break
        if counts is None:
            return read
        process = self._processes[pid] = _Process(counts, threads=threads, looked=True)
        process.complete = len(tids) == len(threads)
        process.ended = _growth(
            counts, (sum(row[0] for row in threads.values()), sum(row[1] for row in threads.values()))
        )
        self._add(pid, WHOLE, NONE)
        for tid in threads:
            self._add(pid, tid, NONE)
        return read


def _counts_of(pid: int, tids: Iterable[int]) -> Iterator[tuple[int, Counts]]:
    """Of the threads that are still there."""
    for tid in tids:
        counts = procfs.page_faults(pid, tid)
        if counts is not None:
            yield tid, counts
