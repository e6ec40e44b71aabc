"""How long a GPU was idle although no call proves it: an estimate with its sources and its error.

Two sources say how long the work of a GPU takes: NVML, which saw it (witness.py), and the program's own
waits, from which the work of its kernels can be learned (learned.py). The queue of what the GPU was given
(workqueue.py), run with these durations, says *when* it was idle: those intervals become gaps like the
proved ones, and go down the same chain. Nothing of it is ever called proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gputop.explain.effort import WHOLE, Effort
from gputop.explain.evidence import Evidence
from gputop.explain.gaps import Gaps, GpuTime
from gputop.explain.learned import Learned, as_waited, learn
from gputop.explain.ranges import Ints, Mask, intersect, length, shared
from gputop.explain.witness import Witness, witness
from gputop.explain.workqueue import Floats, Queue, queue_of

SMALL_NS = 5_000  # shorter gaps are summed up, not followed
AGREE = 0.05  # of the span: sources that are apart by more than this beside their errors disagree
LEAST_ERROR = 0.03  # of learned durations: work varies more than a fit tells
WORTH_NS = 1_000_000  # less time than this is not worth an estimate
_STRETCHES = 16  # of time, which stand for a long queue
_ROUNDS, _CLOSE = 20, 2.0**-9
NEAR = 2e-4  # of the idle time that durations can make at all: near enough to what is sought
_USUAL_NS = 10_000.0  # what a kernel takes, to begin with


@dataclass(frozen=True, slots=True)
class Small:
    """Gaps that are too short to be followed one by one, as columns."""

    begin: Ints
    end: Ints
    closer: Ints
    thread: Ints


@dataclass(frozen=True, slots=True)
class Estimate:
    """One GPU's estimated idle time within the time of its span in which nothing is proved.

    Attributes:
        device: Its number.
        idle_ns: Estimated idle time, beside what is proved.
        error_ns: How far that may be off.
        source: ``nvml``, ``learned`` or ``both``.
        agrees: False where the two sources disagree: then nothing is more than a hint.
        busy_share: What NVML saw: the share of the span in which a kernel ran, None where it said nothing.
        small: Gaps that are too short to follow, as columns: begin, end, the call that ends each, its thread.
        gaps: The others.
        queue, duration_ns: What the GPU was given, and how long each of it took as far as one can tell.
    """

    device: int
    idle_ns: int
    error_ns: int
    source: str
    agrees: bool
    busy_share: float | None
    small: Small
    gaps: Gaps
    queue: Queue
    duration_ns: Floats


def estimates(evidence: Evidence, gpu: GpuTime, effort: Effort = WHOLE) -> list[Estimate]:
    """One for each GPU about whose unknown time something can be said."""
    found = [_of_device(evidence, gpu, span.device, effort) for span in gpu.spans]
    return [one for one in found if one is not None]


def _of_device(evidence: Evidence, gpu: GpuTime, device: int, effort: Effort) -> Estimate | None:
    span = next(span for span in gpu.spans if span.device == device)
    unknown = gpu.unknown[device]
    open_ns = length(*unknown)
    if open_ns < WORTH_NS:
        return None
    seen = witness(evidence, gpu.devices.index[device], span.begin, span.end)
    if seen is None:  # where nothing can be learned either, the whole queue is not worth its making
        part = queue_of(evidence, gpu, device, effort.operations)
        if learn(gpu, device, part, effort.operations) is None:
            return None
    queue = queue_of(evidence, gpu, device)
    if not len(queue):
        return None
    model = _Model(queue, unknown, learn(gpu, device, queue, effort.operations), effort.operations)
    told = _told(gpu, device, span.begin, span.end, seen, model, open_ns)
    if told is None:
        return None
    idle_ns, error_ns, source, agrees = told
    duration = model.known() if source == "learned" else model.fitted(idle_ns, error_ns)
    begin, end = model.pieces(duration)
    small, gaps = _gaps(queue, device, begin, end, effort.gaps)
    total = int((gaps.end - gaps.begin).sum() + (small.end - small.begin).sum())
    busy = seen.busy if seen is not None else None
    return Estimate(
        device,
        total,
        min(error_ns, open_ns),
        source,
        agrees,
        busy,
        small,
        gaps,
        queue,
        as_waited(gpu, device, queue, duration),
    )


def _told(
    gpu: GpuTime,
    device: int,
    low: int,
    high: int,
    seen: Witness | None,
    model: _Model,
    open_ns: int,
) -> tuple[int, int, str, bool] | None:
    """(idle time within the unknown, its error, who says so, whether all who say something agree)."""
    by_nvml = None
    if seen is not None:
        mine = (gpu.gaps.device == device) & ~gpu.gaps.estimated
        gone = int((gpu.gaps.end - gpu.gaps.begin)[mine].sum())
        # NVML counts kernels; what was neither a kernel nor a copy was idle
        idle = (high - low) * (1 - seen.busy) - gone - _aside(gpu, device) - model.copies_ns
        by_nvml = min(max(idle, 0.0), open_ns), seen.error * (high - low)
    by_work = model.learned_idle()
    if by_nvml is None:
        return None if by_work is None else (int(by_work[0]), int(by_work[1]), "learned", True)
    if by_work is None:
        return int(by_nvml[0]), int(by_nvml[1]), "nvml", True
    apart = abs(by_nvml[0] - by_work[0])
    agrees = apart <= by_nvml[1] + by_work[1] + AGREE * (high - low)
    if not agrees:
        return int(by_nvml[0]), int(max(apart, by_nvml[1])), "nvml", False
    # each counts by how sure it is
    trust = [1 / max(error, 1.0) ** 2 for _idle, error in (by_nvml, by_work)]
    idle = (trust[0] * by_nvml[0] + trust[1] * by_work[0]) / sum(trust)
    return int(idle), int(max(min(by_nvml[1], by_work[1]), apart / 2)), "both", True


def _aside(gpu: GpuTime, device: int) -> int:
    """Start-up and first uses within the span: taken for idle."""
    return next(span.outside_ns for span in gpu.spans if span.device == device)


class _Model:
    """The queue with durations, and what of its idle time lies in the unknown.

    Attributes:
        copies_ns: Time in which copies and fills run in the unknown, and no kernel.
    """

    def __init__(
        self, queue: Queue, unknown: tuple[Ints, Ints], learned: Learned | None, operations: int
    ) -> None:
        self.queue, self.unknown, self.learned = queue, unknown, learned
        self._part, self._part_unknown = _sample(queue, unknown, operations)
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
        return shared(idle, self._part_unknown)

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
        most = self._inside(usual, 0.0)
        scale = _solved(lambda one: self._inside(usual, one), most, goal)
        return self._durations(self.queue, usual, scale=scale)

    def _usual(self) -> float:
        return self.learned.usual_ns if self.learned is not None else _USUAL_NS

    def pieces(self, duration: Floats) -> tuple[Ints, Ints]:
        """The idle intervals within the unknown."""
        return intersect(self.queue.idle(duration), self.unknown)

    def learned_idle(self) -> tuple[float, float] | None:
        """(idle time within the unknown, its error) by what was learned; None where that is too little."""
        if self.learned is None or not self.learned.enough(self.queue, self.unknown):
            return None
        usual, error = self.learned.usual_ns, max(self.learned.error, LEAST_ERROR)
        idle = [self._weight * self._inside(usual, scale) for scale in (1.0, 1 + error, 1 / (1 + error))]
        return idle[0], max(abs(idle[1] - idle[0]), abs(idle[2] - idle[0]))


def _sample(queue: Queue, unknown: tuple[Ints, Ints], operations: int) -> tuple[Queue, tuple[Ints, Ints]]:
    """Of a queue of more operations some stretches of time, evenly spread, and what is unknown in them."""
    if len(queue) <= operations:
        return queue, unknown
    low, high = int(queue.ready.min()), int(queue.ready.max())
    begin = np.linspace(low, high, _STRETCHES, endpoint=False).astype(np.int64)
    end = begin + int((high - low) / _STRETCHES * operations / len(queue))
    place = np.searchsorted(begin, queue.ready, side="right") - 1
    chosen = np.flatnonzero((place >= 0) & (queue.ready < end[np.maximum(place, 0)]))
    return queue.take(chosen), intersect(unknown, (begin, end))


def _solved(idle: Callable[[float], int], most: float, goal: float) -> float:
    """The scale of the durations at which the idle time, which falls with it, meets the goal.

    Args:
        idle: Idle time by scale, ns.
        most: The same for the scale 0.
        goal: What it should be.
    """
    low, high, middle = -10.0, 14.0, 0.0  # powers of two
    for turn in range(_ROUNDS):
        found = idle(2.0**middle)
        low, high = (middle, high) if found > goal else (low, middle)
        if abs(found - goal) <= NEAR * most or high - low < _CLOSE:
            break
        # while the GPU keeps up, what is busy grows as the durations do
        busy, wanted = most - found, most - goal
        guess = middle + math.log2(wanted / busy) if busy > 0 and wanted > 0 else low
        middle = guess if turn % 3 < 2 and low < guess < high else (low + high) / 2
    return float(2.0**middle)


def _gaps(queue: Queue, device: int, begin: Ints, end: Ints, most: int) -> tuple[Small, Gaps]:
    """(short ones, the others): each belongs to the thread that gave the next operation."""
    order = np.argsort(queue.ready, kind="stable")
    place = np.searchsorted(queue.ready[order], begin, side="right")
    known = place < len(order)
    place, begin, end = place[known], begin[known], end[known]
    closer, opener = order[place], order[np.maximum(place - 1, 0)]
    long = _followed(end - begin, most)
    row, thread = queue.row[closer], queue.thread[closer]
    small = Small(begin[~long], end[~long], row[~long], thread[~long])
    every = np.ones(int(np.count_nonzero(long)), np.bool_)
    return small, Gaps(
        begin=begin[long],
        end=end[long],
        device=np.full(len(every), device, np.int64),
        opener=queue.row[opener[long]],
        closer=row[long],
        thread=thread[long],
        proved=~every,
        estimated=every,
    )


def _followed(length_ns: Ints, most: int) -> Mask:
    """The longest gaps, as many as are followed one by one."""
    long: Mask = length_ns >= SMALL_NS
    if np.count_nonzero(long) > most:
        long &= length_ns >= np.partition(length_ns, len(length_ns) - most)[len(length_ns) - most]
    return long
