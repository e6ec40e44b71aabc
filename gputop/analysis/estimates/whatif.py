"""What a change can win: the loop is run again without a cause.

The host's time line is kept as it was, less what goes away with the cause: pieces of host time, calls,
waits. The GPU's queue is run with the durations that the estimate found. A wait ends when the host has come
to it and the work before it has ended: time that is taken away before a wait may be lost again in it. One
queue stands for all streams of a process; the calls of all its threads are one time line, as in PyTorch,
where the main thread waits while autograd's works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputop.analysis.estimates.estimate import Estimate
from gputop.analysis.evidence.api_classes import D2H, H2D, ON_GPU, Group, Role, Trait
from gputop.analysis.evidence.call_context import enqueued_work
from gputop.analysis.evidence.columns import FOREVER, Floats, Ints, Mask, among, length, subtract, union
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime, KernelTime
from gputop.analysis.proofs.work_queue import BIG_COPY, START_NS

EARLY_NS = 20_000  # a copy that returns so long before the work before it has ended does not wait for it
MARGIN = 0.3  # what else may go with the work: caches, the CPU that it took from others
LEAST_MARGIN = 0.01  # of the time, too

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes away with a cause.

    Attributes:
        begin, end: Pieces of the host's time; they may overlap.
        calls: Rows of calls that are no longer made: they give no work and wait for none.
        instead: Moments at which the host does something else instead.
        instead_ns: How long that takes each time.
    """

    begin: Ints
    end: Ints
    calls: Ints
    instead: Ints
    instead_ns: int = 0


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """What one GPU was given, one row each.

    Attributes:
        row: Of the call.
        thread: Row of the thread that gave it.
        ready: When the GPU could begin with it at the earliest, ns.
        duration_ns: How long it took.
    """

    row: Ints
    thread: Ints
    ready: Ints
    duration_ns: Floats

    @classmethod
    def of(cls, estimate: Estimate) -> DeviceWork:
        """As the estimate has it."""
        queue = estimate.queue
        return cls(queue.row, queue.thread, queue.ready, estimate.duration_ns)

    @classmethod
    def known(cls, evidence: Evidence, gpu: KernelTime, device: int) -> DeviceWork:
        """As the GPU's own clock has it: a call's kernels one after the other."""
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
    """One process's calls on one GPU, ready to be run again."""

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
        """Reads what the process enqueued and waited for.

        Args:
            evidence, gpu, given: What is known of the GPU.
            pid: The process.
            stretch: From when to when.
            waits: At most so many are run again.
            working: For how long the GPU may have worked between two times, ns.
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
        # kernels of several streams run side by side: in one queue they would take longer than the GPU did
        if (counted := int(self._duration.sum())) > (most := working(low, high)):
            self._duration = self._duration * most // counted
        self._begin, self._end = calls["begin"][rows], calls["end"][rows]
        self._sure: Mask = (evidence.group_of(rows) == Group.SYNC) | (
            evidence.role_of(rows) == Role.COPY_SYNC
        )
        self._queued = _queued(evidence, np.unique(work.thread[order]), low, high)
        # a wait is for what was given before it or its event, and a read for itself, too
        reads = calls["direction"][rows] == D2H
        before = np.where(reads, self._end, gpu.waited_for(rows)) + START_NS
        self._until = np.searchsorted(self._ready, before, side="right")
        self.whole_ns = self._run(Removal(*(np.zeros(0, np.int64),) * 4), None)

    @property
    def worth(self) -> bool:
        """Whether there is anything to run."""
        return bool(len(self._ready)) and self.whole_ns > 0

    @property
    def busy_ns(self) -> int:
        """What the GPU works now, by the durations of its kernels."""
        return int(self._duration.sum())

    def without(self, removals: Sequence[Removal]) -> int:
        """How long it takes without these, ns."""
        removal = Removal(
            np.concatenate([one.begin for one in removals]),
            np.concatenate([one.end for one in removals]),
            np.concatenate([one.calls for one in removals]),
            np.zeros(0, np.int64),
        )
        instead = [(one.instead, one.instead_ns) for one in removals if len(one.instead)]
        return min(self._run(removal, self._extra, instead), self.whole_ns)

    def busy_without(self, removals: Sequence[Removal]) -> int:
        """What the GPU works without these, ns."""
        gone = np.isin(self._row, np.concatenate([one.calls for one in removals]))
        return int(self._duration[~gone].sum())

    def done_for(self, removals: Sequence[Removal]) -> int:
        """What the GPU does for calls that are no longer made, and how late their waits return, ns.

        Both look like work of the GPU, and go with them.
        """
        calls = np.concatenate([one.calls for one in removals])
        late = self._extra[np.isin(self.rows, calls) & (self._extra != _NEVER)]
        return int(self._duration[np.isin(self._row, calls)].sum() + late.sum())

    def queued_without(self, removals: Sequence[Removal]) -> int:
        """How long the threads that give the GPU work wait for a CPU in what is left without these, ns."""
        gone = np.isin(self.rows, np.concatenate([one.calls for one in removals]))
        begin = np.concatenate([*(one.begin for one in removals), self._begin[gone]])
        end = np.concatenate([*(one.end for one in removals), self._end[gone]])
        return length(*subtract(self._queued, union(begin, end)))

    def _run(self, removal: Removal, extra: Ints | None, instead: Sequence[tuple[Ints, int]] = ()) -> int:
        """The time that it takes; without ``extra`` it finds out what waits take beside the GPU's work.

        Args:
            removal: What goes away.
            extra: What each wait takes beside the GPU's work.
            instead: (moments, ns): when the host does something else instead, and for how long.
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
    """A queue in pieces: the last of one ends at ``max(latest, end of what came before) + work``.

    Attributes:
        latest: Of each piece the latest begin that what it was given when allows, if nothing is saved.
        work: What it takes.
        after: After how many waits it was given.
        wanted: For each wait how many pieces it waits for.
    """

    latest: list[int]
    work: list[int]
    after: list[int]
    wanted: list[int]


class _Ends:
    """The ends of a queue's pieces, found as far as they are needed.

    Attributes:
        saved: The time that the host had saved before the first wait, after it, after the second, …
    """

    def __init__(self, pieces: _Pieces, low: int) -> None:
        self._pieces, self._ends = pieces, [low]
        self.saved = [0]

    def until(self, wait: int) -> int:
        """When everything that a wait waits for has ended; the waits before it are through."""
        return self._end(self._pieces.wanted[wait])

    def whole(self) -> int:
        """When everything has ended."""
        return self._end(len(self._pieces.work))

    def ended(self, wait: int, at: int) -> None:
        """What a wait waited for had ended by then, if nothing after it was looked at."""
        if self._pieces.wanted[wait] == len(self._ends) - 1:
            self._ends[-1] = min(self._ends[-1], at)

    def _end(self, count: int) -> int:
        pieces, ends = self._pieces, self._ends
        for piece in range(len(ends) - 1, count):
            # a call counts as given where it returned: a copy may have been given before its own wait ended
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


def _queued(evidence: Evidence, threads: Ints, low: int, high: int) -> tuple[Ints, Ints]:
    """(begin, end) of when any of these threads was in a run queue between two times."""
    slices = evidence.slices
    own = np.isin(slices["row"], threads)
    return union(np.maximum(slices["queued"][own], low), np.minimum(slices["end"][own], high))


def _middle(begin: Ints, end: Ints, stretch: tuple[int, int], waits: int) -> tuple[int, int]:
    """(begin, end) of a part in the middle with at most so many waits: a loop repeats itself."""
    if len(begin) <= waits:
        return stretch
    first = (len(begin) - waits) // 2
    return int(end[first]), int(end[first + waits - 1])


def _cut(begin: Ints, end: Ints, moments: Ints) -> Ints:
    """How much of disjoint, ordered intervals lies before each moment, ns."""
    if not len(begin):
        return np.zeros(len(moments), np.int64)
    total = np.append(0, np.cumsum(end - begin))
    place = np.searchsorted(begin, moments, side="right")
    over = np.where(place > 0, np.maximum(end[np.maximum(place - 1, 0)] - moments, 0), 0)
    passed: Ints = np.asarray(total[place] - over, np.int64)
    return passed


def bound(whole_ns: int, without_ns: int, busy_ns: int, queued_ns: int) -> int:
    """The most that a change can win of a time, ns, given what a run without the cause takes.

    Args:
        whole_ns: The time now.
        without_ns: The time without the cause.
        busy_ns: What the GPU works in that time: that stays, but for ``MARGIN`` of it.
        queued_ns: What its threads still wait for a CPU in that time: who sleeps less may wait less.
    """
    gain = max(whole_ns - without_ns, 0)
    most = max(whole_ns - busy_ns * (1 - MARGIN), gain)
    more = max(gain * MARGIN, queued_ns)
    return int(min(gain + more + LEAST_MARGIN * whole_ns, most))
