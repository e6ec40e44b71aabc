"""What a change can win: the loop is run again without a cause.

The host's time line is kept as it was, less what goes away with the cause: pieces of host time, calls,
waits. The GPU's queue is run with the durations that the estimate found. A wait ends when the host has come
to it and the work before it has ended: time that is taken away before a wait may be lost again in it. One
queue stands for all streams of a process; the calls of all its threads are one time line, as in PyTorch,
where the main thread waits while autograd's works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gputop.explain.apiclass import Group, Role
from gputop.explain.estimate import Estimate
from gputop.explain.evidence import Evidence
from gputop.explain.gaps import GpuTime
from gputop.explain.ranges import Ints, Mask, union
from gputop.explain.streams import D2H, H2D
from gputop.explain.workqueue import BIG_COPY

EARLY_NS = 20_000  # a copy that returns so long before the work before it has ended does not wait for it
MARGIN = 0.3  # what else may go with the work: caches, the CPU that it took from others
LEAST_MARGIN = 0.01  # of the time, too

_NEVER = -1
_LONG_AGO = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes away with a cause.

    Attributes:
        begin, end: Pieces of the host's time; they may overlap.
        calls: Rows of calls that are no longer made: they give no work and wait for none.
    """

    begin: Ints
    end: Ints
    calls: Ints


class Loop:
    """One process's calls on one GPU, ready to be run again."""

    def __init__(
        self,
        evidence: Evidence,
        gpu: GpuTime,
        estimate: Estimate,
        pid: int,
        stretch: tuple[int, int],
        waits: int,
    ) -> None:
        """Looks at what the process gave its GPU and waited for between two times; at most so many waits."""
        calls, queue = evidence.calls, estimate.queue
        own = np.flatnonzero(evidence.threads.pid[queue.thread] == pid)
        order = own[np.argsort(queue.ready[own], kind="stable")]
        inside = (queue.ready[order] > stretch[0]) & (queue.ready[order] < stretch[1])
        order = order[inside]
        rows = _waiting(evidence, gpu, pid, stretch)
        low, high = _middle(calls["begin"][rows], calls["end"][rows], stretch, waits)
        rows = rows[(calls["begin"][rows] >= low) & (calls["end"][rows] <= high)]
        order = order[(queue.ready[order] >= low) & (queue.ready[order] <= high)]
        self.low, self.high = low, high
        self.rows: Ints = rows
        self._row: Ints = queue.row[order]
        self._ready: Ints = queue.ready[order]
        self._duration: Ints = np.rint(estimate.duration_ns[order]).astype(np.int64)
        self._begin, self._end = calls["begin"][rows], calls["end"][rows]
        self._sure: Mask = (evidence.group_of(rows) == Group.SYNC) | (
            evidence.role_of(rows) == Role.COPY_SYNC
        )
        # a wait is for what was given before it, and a read for itself, too
        reads = calls["direction"][rows] == D2H
        self._until = np.searchsorted(
            self._ready, np.where(reads, self._end + 4_000, self._begin), side="right"
        )
        self.whole_ns = self._run(Removal(*(np.zeros(0, np.int64),) * 3), None)

    @property
    def worth(self) -> bool:
        """Whether there is anything to run."""
        return bool(len(self._ready)) and self.whole_ns > 0

    def without(self, removals: Sequence[Removal]) -> int:
        """How long it takes without these, ns."""
        removal = Removal(
            np.concatenate([one.begin for one in removals]),
            np.concatenate([one.end for one in removals]),
            np.concatenate([one.calls for one in removals]),
        )
        return min(self._run(removal, self._extra), self.whole_ns)

    def busy_without(self, removals: Sequence[Removal]) -> int:
        """What the GPU works without these, ns."""
        gone = np.isin(self._row, np.concatenate([one.calls for one in removals]))
        return int(self._duration[~gone].sum())

    def _run(self, removal: Removal, extra: Ints | None) -> int:
        """The time that it takes; without ``extra`` it finds out what waits take beside the GPU's work."""
        cut_begin, cut_end = union(
            np.clip(removal.begin, self.low, self.high), np.clip(removal.end, self.low, self.high)
        )
        ready = self._ready - _cut(cut_begin, cut_end, self._ready)
        begin = self._begin - _cut(cut_begin, cut_end, self._begin)
        end = self._end - _cut(cut_begin, cut_end, self._end)
        high = self.high - int(_cut(cut_begin, cut_end, np.array([self.high]))[0])
        gone: Mask = np.isin(self.rows, removal.calls)
        duration = np.where(np.isin(self._row, removal.calls), 0, self._duration)
        found = np.zeros(len(begin), np.int64)
        saved, done = 0, self.low
        latest, work = self._parts(ready, duration)
        for wait, (start, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
            done = max(latest[wait] - saved, done) + work[wait]
            arrived, returned = start - saved, stop - saved
            if extra is None:
                if returned < done - EARLY_NS and not self._sure[wait]:
                    found[wait] = _NEVER
                    continue
                found[wait] = max(returned - max(arrived, done), 0)
                done = min(done, returned)
                continue
            if extra[wait] == _NEVER:
                continue
            own = min(int(extra[wait]), returned - arrived)
            now = arrived if gone[wait] else max(arrived, done) + own
            saved += returned - now
        done = max(latest[-1] - saved, done) + work[-1]
        if extra is None:
            self._extra = found
            return max(high, done) - self.low
        return max(high - saved, done) - self.low

    def _parts(self, ready: Ints, duration: Ints) -> tuple[list[int], list[int]]:
        """(latest begin, work) of what was given before each wait and after the one before; then of the rest.

        With these the last of a part ends at ``max(latest begin, end of what came before) + work``.
        """
        bounds = np.concatenate([[0], np.maximum.accumulate(self._until), [len(ready)]]).astype(np.int64)
        total = np.append(0, np.cumsum(duration))
        work = np.diff(total[bounds])
        latest = np.full(len(work), _LONG_AGO, np.int64)
        some = np.flatnonzero(np.diff(bounds))
        if len(some):
            head = bounds[some]
            latest[some] = np.maximum.reduceat(ready - total[:-1], head) + total[head]
        return latest.tolist(), work.tolist()


def _waiting(evidence: Evidence, gpu: GpuTime, pid: int, stretch: tuple[int, int]) -> Ints:
    """The calls of a process that wait for the GPU: synchronisations, and copies that do.

    Copies to and from pageable memory wait for their stream; small ones to the device need not.
    """
    calls = evidence.calls
    groups = evidence.group(calls)
    maybe = np.isin(groups, [Group.SYNC, Group.COPY, Group.FREE])
    maybe &= (calls["pid"] == pid) & (calls["begin"] > stretch[0]) & (calls["end"] < stretch[1])
    rows = np.flatnonzero(maybe)
    direction = calls["direction"][rows]
    pageable = ~gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    pageable &= (direction == D2H) | ((direction == H2D) & (calls["bytes"][rows] >= BIG_COPY))
    sure = (evidence.group_of(rows) == Group.SYNC) | (evidence.role_of(rows) == Role.COPY_SYNC)
    sure |= evidence.apis.is_op(calls["op"][rows], "Free", "MemFree", "MemFree_v2")  # waits for the device
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
    """How much of disjoint, ordered intervals lies before each moment, ns."""
    if not len(begin):
        return np.zeros(len(moments), np.int64)
    total = np.append(0, np.cumsum(end - begin))
    place = np.searchsorted(begin, moments, side="right")
    over = np.where(place > 0, np.maximum(end[np.maximum(place - 1, 0)] - moments, 0), 0)
    passed: Ints = np.asarray(total[place] - over, np.int64)
    return passed


def bound(whole_ns: int, without_ns: int, busy_ns: int) -> int:
    """The most that a change can win of a time, ns, given what a run without the cause takes.

    Args:
        whole_ns: The time now.
        without_ns: The time without the cause.
        busy_ns: What the GPU works in that time: that stays, but for ``MARGIN`` of it.
    """
    gain = max(whole_ns - without_ns, 0)
    most = max(whole_ns - busy_ns * (1 - MARGIN), gain)
    return int(min(gain * (1 + MARGIN) + LEAST_MARGIN * whole_ns, most))
