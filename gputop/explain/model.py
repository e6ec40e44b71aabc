"""The queue of what a GPU was given with durations as far as they are known: when it was idle then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gputop.explain.learned import Learned
from gputop.explain.ranges import Ints, covered, intersect, length, union
from gputop.explain.workqueue import Floats, Queue

LEAST_ERROR = 0.03  # of learned durations: work varies more than a fit tells
MOST_OPERATIONS, _STRETCHES = 300_000, 16  # by which durations are found, in so many stretches of time
_ROUNDS = 14
_USUAL_NS = 10_000.0  # what a kernel takes, to begin with


class Model:
    """The queue with durations, and what of its idle time lies in the unknown.

    Attributes:
        copies_ns: Time in which copies and fills run in the unknown, and no kernel.
    """

    def __init__(self, queue: Queue, unknown: tuple[Ints, Ints], learned: Learned | None) -> None:
        self.queue, self.unknown, self.learned = queue, unknown, learned
        self._part, self._part_unknown = _sample(queue, unknown)
        whole = length(*unknown)
        self._weight = whole / max(length(*self._part_unknown), 1)
        # idle time within the unknown if kernels took no time at all: what is left are copies
        least = self._inside(_USUAL_NS, 0.0)
        self.copies_ns = max(whole - int(least * self._weight), 0)

    def _durations(self, queue: Queue, usual: float, *, scale: float) -> Floats:
        """Durations: those that are learned, the others ``usual``; of kernels times ``scale``."""
        kernels = np.full(len(queue), usual)
        if self.learned is not None:
            kernels = self.learned.durations(queue.kind, usual)
        return np.where(queue.kernel, kernels * scale, queue.fixed)

    def _inside(self, usual: float, scale: float) -> int:
        """Idle time within the unknown of the sample."""
        idle = self._part.idle(self._durations(self._part, usual, scale=scale))
        return int(covered(idle, *self._part_unknown).sum())

    def known(self) -> Floats:
        """The durations that are learned."""
        return self._durations(self.queue, self._usual(), scale=1.0)

    def fitted(self, idle_ns: int, error_ns: int) -> Floats:
        """Durations with which the queue is idle for so long within the unknown.

        Those that are learned stay as they are where that is near enough.
        """
        usual, goal = self._usual(), idle_ns / self._weight
        if self.learned is not None and abs(self._inside(usual, 1.0) - goal) * self._weight <= error_ns:
            return self.known()
        scale = _bisect(lambda one: self._inside(usual, one), goal)
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
        least, most = (self._weight * self._inside(learned.usual_ns, scale) for scale in scales)
        return (least + most) / 2, (most - least) / 2

    def kernels(self, duration: Floats, pending: tuple[Ints, Ints]) -> tuple[Ints, Ints] | None:
        """When a kernel ran, or was certainly waited for; None of queues that are too long to look at whole."""
        if len(self.queue) > MOST_OPERATIONS:
            return None
        real = self.queue.real(duration).astype(np.int64)
        end = np.minimum(self.queue.ends(duration), self.queue.limit)
        own = self.queue.kernel
        return union(np.concatenate([(end - real)[own], pending[0]]), np.concatenate([end[own], pending[1]]))


def _sample(queue: Queue, unknown: tuple[Ints, Ints]) -> tuple[Queue, tuple[Ints, Ints]]:
    """Of a long queue some stretches of time, evenly spread, and what is unknown in them."""
    if len(queue) <= MOST_OPERATIONS:
        return queue, unknown
    low, high = int(queue.ready.min()), int(queue.ready.max())
    begin = np.linspace(low, high, _STRETCHES, endpoint=False).astype(np.int64)
    end = begin + int((high - low) / _STRETCHES * MOST_OPERATIONS / len(queue))
    place = np.searchsorted(begin, queue.ready, side="right") - 1
    chosen = np.flatnonzero((place >= 0) & (queue.ready < end[np.maximum(place, 0)]))
    return queue.take(chosen), intersect(unknown, (begin, end))


def _bisect(idle: Callable[[float], int], goal: float) -> float:
    """The scale of the durations at which the idle time, which falls with it, meets the goal."""
    low, high = -10.0, 14.0  # powers of two
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if idle(2.0**middle) > goal:
            low = middle
        else:
            high = middle
    return float(2.0 ** ((low + high) / 2))
