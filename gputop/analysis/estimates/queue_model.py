"""The queue of what a GPU was given with durations as far as they are known: when it was idle then."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gputop.analysis.estimates.durations import Learned
from gputop.analysis.evidence.api_classes import D2H, H2D, Group, Role
from gputop.analysis.evidence.columns import (
    FOREVER,
    Floats,
    Ints,
    covered,
    intersect,
    length,
    shared,
    union,
)
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime
from gputop.analysis.proofs.nvml_witness import ModelledWork
from gputop.analysis.proofs.work_queue import BIG_COPY, START_NS, Queue

LEAST_ERROR = 0.03  # of learned durations: work varies more than a fit tells
_STRETCHES = 16  # of time, which stand for a long queue
_ROUNDS, _CLOSE = 20, 2.0**-9
MOST_KERNELS = 500_000  # of a queue that is held against NVML reading by reading
NEAR = 2e-4  # of the idle time that durations can make at all: near enough to what is sought
_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)
_USUAL_NS = 10_000.0  # what a kernel takes, to begin with


class Model:
    """The queue with durations, and what of its idle time lies in the unknown.

    Attributes:
        copies_ns: Time in which copies and fills run, and no kernel: in the unknown, or waited for.
        copies_error_ns: How far that may be off.
    """

    def __init__(
        self,
        queue: Queue,
        unknown: tuple[Ints, Ints],
        pending: tuple[Ints, Ints],
        learned: Learned | None,
        operations: int,
        readbacks: tuple[Ints, Ints] = _NONE,
    ) -> None:
        """Beyond so many operations a sample stands for the whole.

        Args:
            queue: What the GPU was given.
            unknown: When it may or may not have had work.
            pending: When it certainly had.
            learned: What the program's waits taught of kernels.
            operations: How many of a long queue are looked at.
            readbacks: (place in the queue, ns) of copies that are made when their calls return.
        """
        queue = _read_inside(_as_moved(queue, pending), *readbacks)
        self.queue, self.unknown, self.learned = queue, unknown, learned
        self._pending, self._moving = pending, _moving(queue, pending)
        self._operations = operations
        self._part, self._part_unknown = _sample(queue, unknown, operations)
        whole = length(*unknown)
        # behind all that it was given there is nothing to sample: it is idle there
        behind = (queue.ready.max(keepdims=True), np.array([FOREVER]))
        self._behind_ns = length(*intersect(unknown, behind)) if len(self._part) < len(queue) else 0
        self._weight = (whole - self._behind_ns) / max(length(*self._part_unknown), 1)
        # idle time within the unknown if kernels took no time at all: what is left are copies
        least = self._inside(_USUAL_NS, 0.0)
        moved = max(whole - int(self._whole(least)), 0)
        # in one stream no kernel runs beside a copy
        waited = self._waited_for() if queue.streams == 1 else length(*self._moving)
        self.copies_ns = moved + waited
        self.copies_error_ns = min(int(self.copies_ns * queue.rates.doubt * _unseen(queue, pending)), whole)

    def _durations(self, queue: Queue, usual: float, *, scale: float) -> Floats:
        """Durations: those that are learned, the others ``usual``; of kernels times ``scale``."""
        if self.learned is None:
            return np.where(queue.kernel, usual * scale, queue.fixed)
        return np.where(queue.kernel, self.learned.durations(queue.kind, usual, scale), queue.fixed)

    def _inside(self, usual: float, scale: float) -> int:
        """Idle time within the unknown of the sample."""
        idle = self._part.idle(self._durations(self._part, usual, scale=scale))
        return shared(idle, self._part_unknown)

    def _waited_for(self) -> int:
        """For how long copies ran while the GPU certainly had work, as far as the sample tells."""
        pending = self._pending
        if len(self._part) < len(self.queue):
            pending = intersect(pending, _stretches(self.queue, self._operations))
        idle = self._part.idle(self._durations(self._part, _USUAL_NS, scale=0.0))
        share = length(*pending) / max(length(*self._pending), 1)
        return int((length(*pending) - shared(idle, pending)) / share) if share else 0

    def _whole(self, inside: float) -> float:
        """Idle time within the unknown, of that of the sample."""
        return inside * self._weight + self._behind_ns

    def known(self) -> Floats:
        """The durations that are learned."""
        return self._durations(self.queue, self._usual(), scale=1.0)

    def fitted(self, idle_ns: int, error_ns: int) -> Floats:
        """Durations with which the queue is idle for so long within the unknown.

        Those that are learned stay as they are where that is near enough.
        """
        usual, goal = self._usual(), max(idle_ns - self._behind_ns, 0) / self._weight
        if self.learned is not None and abs(self._whole(self._inside(usual, 1.0)) - idle_ns) <= error_ns:
            return self.known()
        most = self._inside(usual, 0.0)
        scale = _solved(lambda one: self._inside(usual, one), most, goal)
        return self._durations(self.queue, usual, scale=scale)

    def _usual(self) -> float:
        return self.learned.usual_ns if self.learned is not None else _USUAL_NS

    def idle(self, duration: Floats) -> int:
        """Idle time within the unknown."""
        return length(*self.pieces(duration))

    def pieces(self, duration: Floats) -> tuple[Ints, Ints]:
        """The idle intervals within the unknown."""
        return intersect(self.queue.idle(duration), self.unknown)

    def learned_idle(self) -> tuple[float, float] | None:
        """(idle time within the unknown, its error) by what was learned; None where that is too little."""
        learned = self.learned
        if learned is None or not learned.enough(self.queue, self.unknown):
            return None
        error = max(learned.error, LEAST_ERROR)
        scales = (1 + error, max(learned.sure, 1e-3) / (1 + error))
        least, most = (self._whole(self._inside(learned.usual_ns, scale)) for scale in scales)
        return (least + most) / 2, (most - least) / 2 + self.copies_error_ns

    def work(self, duration: Floats) -> ModelledWork | None:
        """When the GPU was at work; None of a queue that is too long for that."""
        if len(self.queue) > MOST_KERNELS:
            return None
        real = self.queue.real(duration).astype(np.int64)
        end = np.minimum(self.queue.ends(duration), self.queue.limit)
        begin, end = union(np.append(end - real, self._pending[0]), np.append(end, self._pending[1]))
        copies = np.flatnonzero(~self.queue.kernel & (self.queue.fixed > 0))
        copies = copies[np.argsort(self.queue.ready[copies], kind="stable")]
        return ModelledWork((begin, end), self.queue.ready[copies], self.queue.fixed[copies])


def _staged_last(queue: Queue) -> Ints:
    """Rows of the staged copies behind which a proof comes: their wait ends with them."""
    return np.flatnonzero(np.append(queue.group[1:] != queue.group[:-1], False) & queue.staged)


def _as_moved(queue: Queue, pending: tuple[Ints, Ints]) -> Queue:
    """The queue with the durations of copies that were waited for: until the wait's end."""
    last = _staged_last(queue)
    last = last[covered(pending, queue.ready[last], queue.limit[last]) > 0]
    fixed = queue.fixed.copy()
    fixed[last] = queue.limit[last] - queue.ready[last]
    return replace(queue, fixed=fixed)


def _unseen(queue: Queue, pending: tuple[Ints, Ints]) -> float:
    """The share of the time of copies of which no wait tells when they ended."""
    copies = np.where(queue.kernel, 0.0, queue.fixed)
    last = _staged_last(queue)
    seen = copies[last[covered(pending, queue.ready[last], queue.limit[last]) > 0]].sum()
    return 1 - float(seen / max(copies.sum(), 1.0))


def _read_inside(queue: Queue, made: Ints, took: Ints) -> Queue:
    """The queue with copies at the end of the calls that made them."""
    ready, fixed = queue.ready.copy(), queue.fixed.copy()
    ready[made] -= START_NS + took
    fixed[made] = took
    return replace(queue, ready=ready, fixed=fixed)


def _moving(queue: Queue, pending: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """When a copy was waited for, alone: a staged one before a proof, from the end of its call until then."""
    last = _staged_last(queue)
    return intersect(union(queue.ready[last], queue.limit[last]), pending)


def _sample(queue: Queue, unknown: tuple[Ints, Ints], operations: int) -> tuple[Queue, tuple[Ints, Ints]]:
    """Of a queue of more operations some stretches of time, evenly spread, and what is unknown in them."""
    if len(queue) <= operations:
        return queue, unknown
    begin, end = _stretches(queue, operations)
    place = np.searchsorted(begin, queue.ready, side="right") - 1
    chosen = np.flatnonzero((place >= 0) & (queue.ready < end[np.maximum(place, 0)]))
    return queue.take(chosen), intersect(unknown, (begin, end))


def _stretches(queue: Queue, operations: int) -> tuple[Ints, Ints]:
    """(begin, end) of those stretches, which have about so many operations together."""
    low, high = int(queue.ready.min()), int(queue.ready.max())
    begin = np.linspace(low, high, _STRETCHES, endpoint=False).astype(np.int64)
    return begin, begin + int((high - low) / _STRETCHES * operations / len(queue))


def _solved(idle: Callable[[float], int], most: float, goal: float) -> float:
    """The scale of the durations at which the idle time, which falls with it, meets the goal."""
    low, high, middle = -10.0, 24.0, 0.0  # powers of two: kernels of 10 ns to minutes
    for turn in range(_ROUNDS):
        found = idle(2.0**middle)
        low, high = (middle, high) if found > goal else (low, middle)
        # where the GPU is never idle, longer durations change nothing: the shortest are sought
        near = abs(found - goal) <= NEAR * most < found
        if near or high - low < _CLOSE:
            break
        # while the GPU keeps up, what is busy grows as the durations do
        busy, wanted = most - found, most - goal
        guess = middle + math.log2(wanted / busy) if busy > 0 and wanted > 0 else low
        middle = guess if turn % 3 < 2 and low < guess < high else (low + high) / 2
    return float(2.0**middle)


# Copies that their calls make: large ones to pageable memory of the host, and those that wait for their
# end.

READ_RATE = 12.0  # bytes per ns that a CPU takes out of the driver's buffers, where no copy says how many


def readbacks(evidence: Evidence, gpu: GpuTime, queue: Queue) -> tuple[Ints, Ints]:
    """(place in the queue, ns) of those copies; a call that is shorter has not made it, and is none."""
    calls, at = evidence.calls, np.flatnonzero((queue.row >= 0) & ~queue.kernel)
    rows = queue.row[at]
    chosen = (evidence.group_of(rows) == Group.COPY) & (calls["bytes"][rows] >= BIG_COPY)
    chosen &= np.isin(calls["direction"][rows], (D2H, H2D))
    at, rows = at[chosen], rows[chosen]
    reads = calls["direction"][rows] == D2H
    pinned = gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    rates = queue.rates
    rate = rates.of(D2H, pinned=False)
    per_byte = rate.ns if rate is not rates.usual else max(rate.ns, 1 / READ_RATE)
    sure = max(1 - rate.error, 0.1)
    size, lasts = calls["bytes"][rows], calls["end"][rows] - calls["begin"][rows]
    took = (size * np.where(reads & ~pinned, per_byte, 0.0)).astype(np.int64)
    itself = pinned & (evidence.role_of(rows) == Role.COPY_SYNC)
    took = np.where(itself, np.minimum(queue.fixed[at], lasts).astype(np.int64), took)
    own = (itself | (reads & ~pinned)) & (lasts >= sure * took)
    return at[own], np.minimum(took, lasts)[own]
