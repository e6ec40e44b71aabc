"""The gain of a change: the loop is simulated without a cause.

The host's time line is kept as it was, without the cause's pieces of host time, calls and waits. The GPU's
queue runs with the estimated durations. A wait ends when the host has reached it and the work before it has
ended: time saved before a wait may be lost again in it. One queue stands for all streams of a process; the
calls of all its threads are one time line, as in PyTorch, where the main thread waits while autograd's works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputop.analysis.estimates.estimate import Estimate
from gputop.analysis.evidence.api_classes import D2H, H2D, ON_GPU, Group, Role, Trait
from gputop.analysis.evidence.call_context import enqueued_work
from gputop.analysis.evidence.columns import (
    AT_ONCE,
    FOREVER,
    Floats,
    Ints,
    Mask,
    among,
    length,
    subtract,
    union,
)
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime, KernelTime
from gputop.analysis.proofs.work_queue import BIG_COPY, START_NS

EARLY_NS = 20_000  # a copy that returns so long before the work before it has ended does not wait for it
MARGIN = 0.3  # of the gain, for indirect effects: caches, CPU time of others
LEAST_MARGIN = 0.01  # of the time, added to a gain

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Removal:
    """The host time and calls that are removed with a cause."""

    # begin, end: pieces of the host's time; they may overlap
    begin: Ints
    end: Ints
    calls: Ints  # rows of calls that are no longer made: they enqueue nothing and wait for nothing
    instead: Ints  # moments of other host work in their place
    instead_ns: int = 0  # duration of each


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """The operations of one GPU, a row each."""

    row: Ints  # of the call
    thread: Ints  # row of the thread that enqueued it
    ready: Ints  # the earliest time at which the GPU could begin it, ns
    duration_ns: Floats  # its duration

    @classmethod
    def of(cls, estimate: Estimate) -> DeviceWork:
        """Return the work of an estimate."""
        queue = estimate.queue
        return cls(queue.row, queue.thread, queue.ready, estimate.duration_ns)

    @classmethod
    def known(cls, evidence: Evidence, gpu: KernelTime, device: int) -> DeviceWork:
        """Return the work by the GPU's own clock: a call's kernels one after the other."""
        rows, call = enqueued_work(evidence, *ON_GPU)
        mine = (call >= 0) & (rows["device"] == gpu.devices.index[device])
        begin, end = (rows[name][mine].astype(np.int64) for name in ("begin", "end"))
        row, which = np.unique(call[mine], return_inverse=True)
        duration = np.bincount(which, weights=end - begin, minlength=len(row))
        first = np.full(len(row), FOREVER)
        np.minimum.at(first, which, begin)
        ready = np.minimum(evidence.calls["end"][row] + START_NS, first)
        return cls(row, evidence.calls["row"][row].astype(np.int64), ready, duration.astype(np.float64))


class Loop:
    """One process's calls on one GPU, to be simulated."""

    def __init__(
        self,
        evidence: Evidence,
        gpu: GpuTime,
        work: DeviceWork,
        pid: int,
        stretch: tuple[int, int],
        waits: int,
        working: Callable[[int, int], int],
    ) -> None:
        """Collect the operations and waits of a process.

        Args:
            evidence, gpu, work: The GPU's operations and proofs.
            pid: The process.
            stretch: Begin and end, ns.
            waits: At most so many are simulated.
            working: Returns the most time that the GPU may have worked between two times, ns.
        """
        calls = evidence.calls
        own = np.flatnonzero(evidence.threads.pid[work.thread] == pid)
        order = own[np.argsort(work.ready[own], kind="stable")]
        inside = (work.ready[order] > stretch[0]) & (work.ready[order] < stretch[1])
        order = order[inside]
        rows = _waiting(evidence, gpu, pid, stretch)
        low, high = _middle(calls["begin"][rows], calls["end"][rows], stretch, waits)
        rows = rows[(calls["begin"][rows] >= low) & (calls["end"][rows] <= high)]
        order = order[(work.ready[order] >= low) & (work.ready[order] <= high)]
        self.low, self.high = low, high
        self.rows: Ints = rows
        self._row: Ints = work.row[order]
        self._ready: Ints = work.ready[order]
        self._duration: Ints = np.rint(work.duration_ns[order]).astype(np.int64)
        # kernels of several streams run side by side: in one queue they would last longer than the GPU worked
        if (counted := int(self._duration.sum())) > (most := working(low, high)):
            self._duration = self._duration * most // counted
        self._begin, self._end = calls["begin"][rows], calls["end"][rows]
        self._sure: Mask = (evidence.group_of(rows) == Group.SYNC) | (
            evidence.role_of(rows) == Role.COPY_SYNC
        )
        slices = evidence.slices
        submit = np.isin(slices["row"], np.unique(work.thread[order]))
        # when any of its submitters was in a run queue
        self._queued = union(
            np.maximum(slices["queued"][submit], low), np.minimum(slices["end"][submit], high)
        )
        # a wait covers the operations enqueued before it or its event, a read also itself
        reads = calls["direction"][rows] == D2H
        before = np.where(reads, self._end, gpu.waited_for(rows)) + START_NS
        self._until = np.searchsorted(self._ready, before, side="right")
        self.whole_ns = self._run(Removal(*(np.zeros(0, np.int64),) * 4), None)

    @property
    def worth(self) -> bool:
        """True if there is anything to simulate."""
        return bool(len(self._ready)) and self.whole_ns > 0

    def without(self, removals: Sequence[Removal]) -> int:
        """Return the time of the loop without some causes, ns."""
        removal = Removal(
            np.concatenate([one.begin for one in removals]),
            np.concatenate([one.end for one in removals]),
            np.concatenate([one.calls for one in removals]),
            np.zeros(0, np.int64),
        )
        instead = [(one.instead, one.instead_ns) for one in removals if len(one.instead)]
        return min(self._run(removal, self._extra, instead), self.whole_ns)

    def busy_without(self, removals: Sequence[Removal]) -> int:
        """Return the GPU's work without some causes, ns."""
        gone = np.isin(self._row, np.concatenate([one.calls for one in removals]))
        return int(self._duration[~gone].sum())

    def done_for(self, removals: Sequence[Removal]) -> int:
        """Return the GPU's work for the removed calls, with the late returns of their waits, ns."""
        calls = np.concatenate([one.calls for one in removals])
        late = self._extra[np.isin(self.rows, calls) & (self._extra != _NEVER)]
        return int(self._duration[np.isin(self._row, calls)].sum() + late.sum())

    def queued_without(self, removals: Sequence[Removal]) -> int:
        """Return the submitters' time in run queues without some causes, ns."""
        gone = np.isin(self.rows, np.concatenate([one.calls for one in removals]))
        begin = np.concatenate([*(one.begin for one in removals), self._begin[gone]])
        end = np.concatenate([*(one.end for one in removals), self._end[gone]])
        return length(*subtract(self._queued, union(begin, end)))

    def _run(self, removal: Removal, extra: Ints | None, instead: Sequence[tuple[Ints, int]] = ()) -> int:
        """Simulate; return the time. Without ``extra`` it computes ``_extra``.

        Args:
            removal: Host time and calls that are left out.
            extra: Time of each wait beside the GPU's work.
            instead: (moments, ns) of other host work in their place.
        """
        cuts = union(np.clip(removal.begin, self.low, self.high), np.clip(removal.end, self.low, self.high))
        more = [(np.sort(at[(at > self.low) & (at < self.high)]), ns) for at, ns in instead]

        def moved(moments: Ints) -> Ints:
            added = [np.searchsorted(at, moments, side="right") * ns for at, ns in more]
            return moments - _cut(*cuts, moments) + sum(added)

        ready, begin, end = moved(self._ready), moved(self._begin), moved(self._end)
        high = int(moved(np.array([self.high]))[0])
        gone: Mask = np.isin(self.rows, removal.calls)
        duration = np.where(np.isin(self._row, removal.calls), 0, self._duration)
        found = np.zeros(len(begin), np.int64)
        queue = _Ends(self._pieces(ready, duration), self.low)
        saved = 0
        for wait, (start, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
            done = queue.until(wait)
            arrived, returned = start - saved, stop - saved
            if extra is None:
                if returned < done - EARLY_NS and not self._sure[wait]:
                    found[wait] = _NEVER
                else:
                    found[wait] = max(returned - max(arrived, done), 0)
                    queue.ended(wait, returned)
            elif extra[wait] != _NEVER:
                own = min(int(extra[wait]), returned - arrived)
                saved += returned - (arrived if gone[wait] else max(arrived, done) + own)
            queue.saved.append(saved)
        done = queue.whole()
        if extra is None:
            self._extra = found
        return max(high - saved, done) - self.low

    def _pieces(self, ready: Ints, duration: Ints) -> _Pieces:
        """The queue in pieces: cut where a wait's part of it ends, and where a wait lies among launches."""
        until = np.searchsorted(self._ready, self._end + START_NS, side="right")
        bounds = np.unique(np.concatenate([[0], self._until, until, [len(ready)]])).astype(np.int64)
        total = np.append(0, np.cumsum(duration))
        head = bounds[:-1]
        latest = head
        if len(head):
            latest = np.maximum.reduceat(ready - total[:-1], head) + total[head]
        return _Pieces(
            latest.tolist(),
            np.diff(total[bounds]).tolist(),
            np.searchsorted(until, head, side="right").tolist(),
            np.searchsorted(bounds, self._until).tolist(),
        )


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A queue in pieces: the last of one ends at ``max(latest, end of what came before) + work``."""

    latest: list[int]  # the latest begin of each piece by its enqueues, if nothing is saved
    work: list[int]  # duration of each
    after: list[int]  # number of waits before its enqueue
    wanted: list[int]  # number of pieces covered by each wait


class _Ends:
    """The ends of a queue's pieces, computed as needed."""

    def __init__(self, pieces: _Pieces, low: int) -> None:
        self._pieces, self._ends = pieces, [low]
        self.saved = [0]  # the host's saved time before the first wait, after it, after the second, …

    def until(self, wait: int) -> int:
        """Return the end of the work covered by a wait; earlier waits must have been computed."""
        return self._end(self._pieces.wanted[wait])

    def whole(self) -> int:
        """Return the end of all work."""
        return self._end(len(self._pieces.work))

    def ended(self, wait: int, at: int) -> None:
        """Bound the end of the work covered by a wait, if nothing later has been computed."""
        if self._pieces.wanted[wait] == len(self._ends) - 1:
            self._ends[-1] = min(self._ends[-1], at)

    def _end(self, count: int) -> int:
        pieces, ends = self._pieces, self._ends
        for piece in range(len(ends) - 1, count):
            # a call counts as enqueued at its return: a copy may be enqueued before its own wait ends
            saved = self.saved[min(pieces.after[piece], len(self.saved) - 1)]
            ends.append(max(pieces.latest[piece] - saved, ends[-1]) + pieces.work[piece])
        return ends[count]


def _waiting(evidence: Evidence, gpu: GpuTime, pid: int, stretch: tuple[int, int]) -> Ints:
    """The calls of a process that wait for the GPU: synchronisations, and copies that do.

    Copies to and from pageable memory wait for their stream; small ones to the device need not.
    """
    calls = evidence.calls
    groups = evidence.group(calls)
    maybe = among(groups, (Group.SYNC, Group.COPY, Group.FREE))
    maybe &= (calls["pid"] == pid) & (calls["begin"] > stretch[0]) & (calls["end"] < stretch[1])
    rows = np.flatnonzero(maybe)
    direction = calls["direction"][rows]
    pageable = ~gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    pageable &= (direction == D2H) | ((direction == H2D) & (calls["bytes"][rows] >= BIG_COPY))
    sure = (evidence.group_of(rows) == Group.SYNC) | (evidence.role_of(rows) == Role.COPY_SYNC)
    sure |= evidence.apis.has(calls["op"][rows], Trait.WAITS)
    rows = rows[sure | pageable]
    rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
    # of two threads that wait at once the later one counts
    reach = np.maximum.accumulate(calls["end"][rows]) if len(rows) else rows
    alone: Mask = np.append(True, calls["begin"][rows][1:] >= reach[:-1])[: len(rows)]
    return np.asarray(rows[alone], np.int64)


def _middle(begin: Ints, end: Ints, stretch: tuple[int, int], waits: int) -> tuple[int, int]:
    """(begin, end) of a part in the middle with at most so many waits: a loop repeats itself."""
    if len(begin) <= waits:
        return stretch
    first = (len(begin) - waits) // 2
    return int(end[first]), int(end[first + waits - 1])


def _cut(begin: Ints, end: Ints, moments: Ints) -> Ints:
    """The time of disjoint, ordered intervals before each moment, ns."""
    if not len(begin):
        return np.zeros(len(moments), np.int64)
    total = np.append(0, np.cumsum(end - begin))
    passed = np.empty(len(moments), np.int64)
    for low in range(0, len(moments), AT_ONCE):
        some = moments[low : low + AT_ONCE]
        place = np.searchsorted(begin, some, side="right")
        over = np.where(place > 0, np.maximum(end[np.maximum(place - 1, 0)] - some, 0), 0)
        passed[low : low + AT_ONCE] = total[place] - over
    return passed


def bound(whole_ns: int, without_ns: int, busy_ns: int, queued_ns: int) -> int:
    """Return the upper bound of a gain, ns.

    Args:
        whole_ns: The time now.
        without_ns: The simulated time without the cause.
        busy_ns: The GPU's work in that time, which stays, but for ``MARGIN`` of it.
        queued_ns: Its threads' time in run queues, which may shrink.
    """
    gain = max(whole_ns - without_ns, 0)
    most = max(whole_ns - busy_ns * (1 - MARGIN), gain)
    more = max(gain * MARGIN, queued_ns)
    return int(min(gain + more + LEAST_MARGIN * whole_ns, most))
