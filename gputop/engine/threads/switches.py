"""Where threads spent a tick: on a CPU, in a run queue, blocked; and how often they were switched.

Per thread and tick: on_cpu + runnable + blocked = the time it lived in the tick. Slices that are still
open at the mark come from the ``open`` sample, and the part of a slice that an earlier tick already
counted is cut off, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probes.samples import OpenData
from probes.schema import ALIASED, Kind, OffFlag, Records, select


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
        """What is left of its life; never negative although marks and slices come from two clocks reads."""
        return max(self.lived - self.runnable - self.blocked, 0)

    def add(self, other: ThreadTick) -> None:
        """Sums another tick of the same thread."""
        self.lived += other.lived
        self.runnable += other.runnable
        self.blocked += other.blocked
        self.voluntary += other.voluntary
        self.involuntary += other.involuntary


@dataclass(slots=True)
class SwitchTick:
    """Collects one tick. ``since_ns`` is the mark before it."""

    since_ns: int
    slices: list[Records] = field(default_factory=list)
    births: dict[int, tuple[int, int]] = field(default_factory=dict)  # tid -> (pid, ns)
    exits: dict[int, tuple[int, int]] = field(default_factory=dict)
    threads: dict[int, ThreadTick] = field(default_factory=dict)

    def add(self, records: Records) -> None:
        """Takes slices, births and exits out of a batch."""
        kinds = records["kind"]
        off = kinds == Kind.OFFCPU
        if off.any():
            self.slices.append(select(records, off))
        life = (kinds >= Kind.FORK) & (kinds <= Kind.JOIN)
        if life.any():
            for row in select(records, life):
                tid, at = int(row["tid"]), (int(row["pid"]), int(row["t_end"]))
                if row["kind"] == Kind.EXIT:
                    self.exits[tid] = at
                else:
                    self.births.setdefault(tid, at)

    def close(self, mark_ns: int, open_now: OpenThreads, alive_before: frozenset[int]) -> None:
        """Fills ``threads``."""
        for tid, pid in zip(open_now.tid, open_now.pid, strict=True):
            self._live(tid, pid, mark_ns, alive_before)
        for tid, (pid, at) in self.exits.items():
            if tid not in self.threads:
                self._live(tid, pid, at, alive_before)
        self._count_slices()
        for tid, off, queued in zip(open_now.tid, open_now.off_since, open_now.queued_since, strict=True):
            if off and off < mark_ns:
                begin = max(off, self.since_ns)
                waiting = max(queued, begin) if queued and queued < mark_ns else mark_ns
                self.threads[tid].runnable += mark_ns - waiting
                self.threads[tid].blocked += waiting - begin

    def _live(self, tid: int, pid: int, until: int, alive_before: frozenset[int]) -> None:
        begin = self.since_ns
        if tid not in alive_before and tid in self.births:
            begin = max(self.births[tid][1], begin)
        self.threads[tid] = ThreadTick(pid, lived=max(until - begin, 0))

    def _count_slices(self) -> None:
        for tid, part in slice_sums(self.slices, self.since_ns).items():
            thread = self.threads.get(tid)
            if thread is None:  # its exit record was lost: alive as long as its slices show
                part.lived = part.runnable + part.blocked
                self.threads[tid] = part
            else:
                thread.add(part)


def slice_sums(batches: list[Records], since_ns: int) -> dict[int, ThreadTick]:
    """tid -> runnable, blocked and switches of OFFCPU records; time before ``since_ns`` is cut off."""
    if not batches:
        return {}
    rows = np.concatenate(batches).view(ALIASED)
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
        """From the sample's data; columns of different lengths (a damaged file) are cut to the shortest.

        Args:
            data: Of the sample.
            ended: Threads of a merged recording whose part has ended are there as well, as they were then.
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
