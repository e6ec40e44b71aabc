"""The time of threads in a tick: on a CPU, in a run queue, blocked; and their context switches.

Per thread and tick: on_cpu + runnable + blocked = its lifetime in the tick. Stays that are open at the mark
come from the ``open`` sample; the part of a stay that an earlier tick has counted is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final

import numpy as np

from gputop.engine.accumulator import Part
from gputop.engine.fork_state import packed, pairs_of, unpacked
from probes.samples import OpenData
from probes.schema import ALIASED, Kind, OffFlag, Records

_LIFE: Final = ("kind", "pid", "tid", "t_end")
_EXITED: Final = int(Kind.EXIT)


@dataclass(slots=True)
class ThreadTick:
    """One thread in one tick; times in ns."""

    pid: int
    lived: int = 0
    runnable: int = 0
    blocked: int = 0
    voluntary: int = 0
    involuntary: int = 0

    @property
    def on_cpu(self) -> int:
        """The rest of its lifetime; never negative, although marks and stays are from two clock reads."""
        return max(self.lived - self.runnable - self.blocked, 0)

    def add(self, other: ThreadTick) -> None:
        """Add another tick of the same thread."""
        self.lived += other.lived
        self.runnable += other.runnable
        self.blocked += other.blocked
        self.voluntary += other.voluntary
        self.involuntary += other.involuntary


class ThreadSums(Part):
    """Stays off the CPU by thread, births and exits, of a whole recording."""

    since_ns = 0

    def __init__(self) -> None:
        self.sums: dict[int, ThreadTick] = {}
        self.born: dict[int, int] = {}  # tid -> ns
        self.died: dict[int, int] = {}

    def add_offcpu(self, stays: Records) -> None:
        self._add(stay_sums(stays, self.since_ns))

    def _add(self, sums: Mapping[int, ThreadTick]) -> None:
        for tid, part in sums.items():
            self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)

    def add_lives(self, lives: Records) -> None:
        # a job may fork hundreds of times a second: plain numbers are ten times as fast as rows
        for kind, pid, tid, at in lives[[*_LIFE]].tolist():
            if kind == _EXITED:
                self.died[tid] = at
            else:
                self.born.setdefault(tid, at)
                # a thread other than the leader gets the dead leader's number when it calls exec
                self.died.pop(tid, None)
                if tid not in self.sums:
                    self.sums[tid] = ThreadTick(pid)

    def payload(self) -> dict[str, Any]:
        return {
            "threads": packed([(tid, pid, *sums) for tid, (pid, _lived, *sums) in _rows(self.sums)]),
            "born": packed([*self.born.items()]),
            "died": packed([*self.died.items()]),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        self._add({tid: ThreadTick(pid, 0, *rest) for tid, pid, *rest in unpacked(data, "threads", 6)})
        for tid, at in pairs_of(data, "born"):
            self.born.setdefault(tid, at)
            self.died.pop(tid, None)
        self.died.update(pairs_of(data, "died"))

    def finish(
        self, span_of: Callable[[int], tuple[int, int]], still_open: OpenThreads
    ) -> dict[int, ThreadTick]:
        """Return tid -> sums of each thread from its birth to its exit, or the ends of the recording."""
        found = {tid: replace(part) for tid, part in self.sums.items()}
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
        return found


class TickThreads(ThreadSums):
    """The sums of one tick: time before ``since_ns`` is cut off, which an earlier tick has counted."""

    def __init__(self, since_ns: int) -> None:
        super().__init__()
        self.since_ns = since_ns
        self._exited: dict[int, int] = {}  # tid -> pid

    def add_lives(self, lives: Records) -> None:
        super().add_lives(lives)
        exits = lives[lives["kind"] == _EXITED]
        self._exited.update(zip(exits["tid"].tolist(), exits["pid"].tolist(), strict=True))

    def close(
        self, mark_ns: int, open_now: OpenThreads, alive_before: frozenset[int]
    ) -> dict[int, ThreadTick]:
        """Return tid -> sums of each thread up to the mark."""
        lives = {tid: (pid, mark_ns) for tid, pid in zip(open_now.tid, open_now.pid, strict=True)}
        for tid, at in self.died.items():
            lives.setdefault(tid, (self._exited[tid], at))
        found: dict[int, ThreadTick] = {}
        for tid, (pid, until) in lives.items():
            born = self.born.get(tid, 0) if tid not in alive_before else 0
            found[tid] = ThreadTick(pid, lived=max(until - max(born, self.since_ns), 0))
        for tid, part in self.sums.items():
            if tid in found:
                found[tid].add(part)
            elif part != ThreadTick(part.pid):  # its exit record was lost: its lifetime is that of its stays
                found[tid] = replace(part, lived=part.runnable + part.blocked)
        for tid, off, queued in zip(open_now.tid, open_now.off_since, open_now.queued_since, strict=True):
            if off and off < mark_ns:
                begin = max(off, self.since_ns)
                waiting = max(queued, begin) if queued and queued < mark_ns else mark_ns
                found[tid].runnable += mark_ns - waiting
                found[tid].blocked += waiting - begin
        return found


def _rows(threads: Mapping[int, ThreadTick]) -> list[tuple[int, tuple[int, ...]]]:
    return [(tid, astuple(thread)) for tid, thread in threads.items()]


def state_rows(threads: Mapping[int, ThreadTick]) -> bytes:
    """Return the sums of each thread in its tick, for a ``sums`` sample."""
    return packed([(tid, *row) for tid, row in _rows(threads)])


def states_of(data: Mapping[str, Any]) -> dict[int, ThreadTick]:
    """Return the sums of each thread from a ``sums`` sample."""
    return {tid: ThreadTick(*row) for tid, *row in unpacked(data, "states", 1 + len(fields(ThreadTick)))}


def stay_sums(stays: Records, since_ns: int) -> dict[int, ThreadTick]:
    """Return tid -> runnable, blocked and switches of OFFCPU records, without time before ``since_ns``."""
    rows = stays.view(ALIASED)
    tids, first, where = np.unique(rows["tid"], return_index=True, return_inverse=True)
    ends = rows["t_end"].astype(np.int64)
    inside = ends - np.maximum(ends - rows["duration"].astype(np.int64), since_ns)
    inside = np.maximum(inside, 0)
    runnable = np.minimum(rows["runnable"].astype(np.int64), inside)
    counted = (rows["flags"] & OffFlag.BIRTH) == 0
    forced = (rows["flags"] & OffFlag.INVOLUNTARY) != 0
    sums = [
        np.bincount(where, weights=column, minlength=len(tids)).astype(np.int64).tolist()
        for column in (runnable, inside - runnable, counted & ~forced, counted & forced)
    ]
    pids = rows["pid"][first].tolist()
    return {
        tid: ThreadTick(pid, 0, *values) for tid, pid, *values in zip(tids.tolist(), pids, *sums, strict=True)
    }


@dataclass(frozen=True, slots=True)
class OpenThreads:
    """All watched threads at a mark, column by column (the ``open`` sample)."""

    pid: Sequence[int] = ()
    tid: Sequence[int] = ()
    off_since: Sequence[int] = ()
    queued_since: Sequence[int] = ()
    op: Sequence[int] = ()
    call_since: Sequence[int] = ()

    @classmethod
    def from_sample(cls, data: OpenData, *, ended: bool = False) -> OpenThreads:
        """Read a sample; columns of different lengths (a damaged file) are cut to the shortest.

        Args:
            data: Of the sample.
            ended: Include threads of a merged recording whose part has ended, as they were then.
        """
        names = ("pid", "tid", "off_since", "queued_since", "op", "call_since")
        found = [data.get(name) for name in names]
        columns = [column if isinstance(column, list) else [] for column in found]
        size = min(len(column) for column in columns)
        gone = data.get("ended")
        if not ended and isinstance(gone, list) and any(gone):
            columns = [
                [value for value, over in zip(column, gone, strict=False) if not over] for column in columns
            ]
            size = min(len(column) for column in columns)
        return cls(*([int(value) for value in column[:size]] for column in columns))
