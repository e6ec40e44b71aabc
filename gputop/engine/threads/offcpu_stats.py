"""Stays of threads off the CPU: count, mean and maximum; for the disk, or throttled.

A stay begins with a context switch and ends when the thread has a CPU again: it was blocked and then in a run
queue, or throttled by its control group. The wait of a new thread for its first CPU does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from gputop.documents.fields import NULLABLE, Mark, marked
from gputop.engine.accumulator import Part
from gputop.engine.fork_state import packed, unpacked
from gputop.engine.threads.switches import OpenThreads
from probes.samples import sample_data
from probes.schema import ALIASED, OffFlag, Records
from probes.source import OPEN, Sample


@dataclass(frozen=True, slots=True)
class Stays:
    """Stays off the CPU of one thread, or of several together; times in ns.

    Parts of them: ``disk``: blocked for block I/O, without the run queue after it; ``throttled``: without the
        time
    from the new quota to the CPU.
    """

    count: int = 0
    sum_ns: int = 0
    worst_ns: int = 0
    disk_count: int = 0
    disk_ns: int = 0
    throttled_count: Annotated[int, NULLABLE] = 0
    throttled_ns: Annotated[int, NULLABLE] = 0

    @property
    @marked(Mark())
    def average_ns(self) -> int | None:
        return self.sum_ns // self.count if self.count else None

    def plus(self, other: Stays) -> Stays:
        added = {row.name: getattr(self, row.name) + getattr(other, row.name) for row in fields(self)}
        return Stays(**{**added, "worst_ns": max(self.worst_ns, other.worst_ns)})


WIDTH = 1 + len(fields(Stays))  # integers of a row: a thread and its stays


class StaySums(Part):
    """Stays by thread."""

    def __init__(self) -> None:
        self.known = True  # False if a gputop without these sums reduced the records
        self._sums: dict[int, Stays] = {}
        self._flags: dict[int, int] = {}

    def add_offcpu(self, stays: Records) -> None:
        self._add_rows(_sums_of(stays))

    def _add_rows(self, rows: Iterable[tuple[int, Stays]]) -> None:
        for tid, stays in rows:
            known = self._sums.get(tid)
            self._sums[tid] = stays if known is None else known.plus(stays)

    def add_sample(self, sample: Sample) -> None:
        """Keep the ``OffFlag`` of threads that are off their CPU at a mark."""
        if (threads := sample_data(sample, OPEN)) is not None:
            tids, flags = threads.get("tid", ()), threads.get("flags", ())
            self._flags = dict(zip(map(int, tids), map(int, flags), strict=False))

    def rows(self) -> list[tuple[int, ...]]:
        """Return all sums, ``WIDTH`` integers each."""
        return [(tid, *astuple(stays)) for tid, stays in self._sums.items()]

    def payload(self) -> dict[str, Any]:
        """Return ``stays``; None: unknown."""
        return {"stays": packed(self.rows()) if self.known else None}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data are invalid, or lack the stays although there were threads.
        """
        if "stays" not in data:
            if unpacked(data, "threads", 6):
                raise ValueError("these sums lack the stays off the CPU")
        elif data["stays"] is None:  # sums in place of records, by a gputop without these
            self.known = False
        else:
            self._add_rows((tid, Stays(*numbers)) for tid, *numbers in unpacked(data, "stays", WIDTH))

    def finish(self, still_open: OpenThreads, end_of: Callable[[int], int]) -> Mapping[int, Stays]:
        """Return the stays by thread, with those that are open at the end, up to there."""
        found = dict(self._sums)
        rows = zip(still_open.pid, still_open.tid, still_open.off_since, still_open.queued_since, strict=True)
        for pid, tid, off, queued in rows:
            end_ns, flags = end_of(pid), self._flags.get(tid, 0)
            if not off or off >= end_ns or flags & OffFlag.BIRTH:
                continue
            blocked = (queued if queued and queued < end_ns else end_ns) - off
            stay = Stays(1, end_ns - off, end_ns - off)
            if flags & OffFlag.THROTTLED:
                stay = replace(stay, throttled_count=1, throttled_ns=blocked)
            elif flags & OffFlag.IOWAIT and not flags & OffFlag.QUEUED:
                stay = replace(stay, disk_count=1, disk_ns=blocked)
            found[tid] = found.get(tid, Stays()).plus(stay)
        return found if self.known else {}


def _sums_of(stays: Records) -> list[tuple[int, Stays]]:
    """OFFCPU records by thread."""
    rows = stays.view(ALIASED)
    flags = rows["flags"]
    rows = rows[flags & OffFlag.BIRTH == 0]
    flags = rows["flags"]
    tids, where = np.unique(rows["tid"], return_inverse=True)
    duration = rows["duration"].astype(np.int64)
    before_queue = np.maximum(duration - rows["runnable"].astype(np.int64), 0)
    throttled = flags & OffFlag.THROTTLED != 0
    disk = (flags & (OffFlag.IOWAIT | OffFlag.QUEUED) == OffFlag.IOWAIT) & ~throttled
    worst = np.zeros(len(tids), np.int64)
    np.maximum.at(worst, where, duration)
    counts = [
        np.bincount(where[which], minlength=len(tids)) for which in (np.ones_like(disk), disk, throttled)
    ]
    sums = [np.zeros(len(tids), np.int64) for _ in range(3)]
    for into, which, values in zip(
        sums, (slice(None), disk, throttled), (duration, before_queue, before_queue), strict=True
    ):
        np.add.at(into, where[which], values[which])
    columns = (counts[0], sums[0], worst, counts[1], sums[1], counts[2], sums[2])
    return [
        (tid, Stays(*numbers))
        for tid, *numbers in zip(tids.tolist(), *(column.tolist() for column in columns), strict=True)
    ]


def together(rows: Iterable[Stays | None]) -> Stays | None:
    """Return the stays of several threads; None if all are unknown."""
    known = [row for row in rows if row is not None]
    whole = Stays()
    for row in known:
        whole = whole.plus(row)
    return whole if known else None
