"""What the work of each kernel takes, learned where the program waits for it.

Between two proofs of emptiness a stream is a queue. Where a wait ended its part of the queue, the time of the
last end is known; where the stream was found empty, the end is known to have come before. Durations, one for
each kernel, are fitted to these: run the queue, compare each end with what is known, and scale the kernels
that led up to it (a multiplicative reconstruction as in tomography: ART, Gordon, Bender and Herman 1970).
Kernels that never decide when a wait ends are bounded from above only, and are not called learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.gaps import GpuTime
from gputop.explain.ranges import Ints, Mask, covered
from gputop.explain.workqueue import Floats, Queue

FEWEST, WAITS = 5, 8  # waits that a kernel must have had a part in; that there must be at all
NEAR_NS = 60_000  # a wait that ended this short before the proof is what proved it
COVERED = 0.9  # of the operations in unknown time must be learned for an estimate of its own
WORST = 0.5  # a fit that is usually further off than this has learned nothing
_ROUNDS = 12
_FIRST_NS = 10_000.0
_LEAST_NS, _MOST_NS = 500.0, 1e10


@dataclass(frozen=True, slots=True)
class Learned:
    """Durations by kernel.

    Attributes:
        ns: Of each kernel (``Queue.kind``), ns; upper bounds and guesses where it is not ``measured``.
        measured: Which are learned from waits.
        error: The usual error of what is learned, as a share.
        usual_ns: What kernels take that are not known at all.
    """

    ns: Floats
    measured: Mask
    error: float
    usual_ns: float

    def durations(self, kind: Ints, usual: float) -> Floats:
        """Of each operation, ns; ``usual`` for what is no known kernel."""
        known = np.append(self.ns, usual)
        return known[np.where(kind >= 0, kind, len(self.ns))]

    def enough(self, queue: Queue, unknown: tuple[Ints, Ints]) -> bool:
        """Whether nearly all kernels given in the unknown time are learned."""
        if self.error > WORST or not len(unknown[0]):
            return False
        place = np.searchsorted(unknown[1], queue.ready, side="right")
        inside = queue.kernel & (place < len(unknown[0]))
        inside &= unknown[0][np.minimum(place, len(unknown[0]) - 1)] <= queue.ready
        kinds = queue.kind[inside]
        if not len(kinds) or (kinds < 0).any():
            return False
        return bool(np.count_nonzero(self.measured[kinds]) >= COVERED * len(kinds))


@dataclass(frozen=True, slots=True)
class _Waits:
    """One row for each part of a queue that ends with a proof: its last operation, the time, what it says."""

    last: Ints
    at: Ints
    exact: Mask


def learn(gpu: GpuTime, device: int, queue: Queue, operations: int) -> Learned | None:
    """Fits durations to the waits in so many operations of one GPU; None where no wait says anything."""
    if not queue.kernel.any() or int(queue.kind.max(initial=-1)) < 0:
        return None
    part = queue.take(np.arange(min(len(queue), operations)))
    waits = _waits(gpu, device, part)
    if np.count_nonzero(waits.exact) < WAITS:
        return None
    kinds = int(queue.kind.max()) + 1
    log = np.full(kinds, np.log(_FIRST_NS))
    for _ in range(_ROUNDS):
        ratio, first = _compare(part, np.exp(log), waits)
        _correct(log, part, waits, ratio, first)
    ratio, first = _compare(part, np.exp(log), waits)
    exact = waits.exact & (first <= waits.last)
    if np.count_nonzero(exact) < WAITS:
        return None
    error = float(np.median(np.abs(np.log(ratio[exact]))))
    measured = _measured(part, waits, first, kinds)
    times = np.exp(log)
    usual = float(np.median(times[measured])) if measured.any() else _FIRST_NS
    return Learned(times, measured, error, usual)


def as_waited(gpu: GpuTime, device: int, queue: Queue, duration: Floats) -> Floats:
    """Durations that agree with every proof and every wait: what a wait waited for took until its end."""
    real = queue.real(duration)
    waits = _waits(gpu, device, queue)
    last, at = waits.last[waits.exact], waits.at[waits.exact]
    if not len(last):
        return real
    end = np.minimum(queue.ends(duration)[last], queue.limit[last])
    real[last] += np.maximum(at - np.maximum(end, queue.ready[last]), 0)
    return real


def _waits(gpu: GpuTime, device: int, queue: Queue) -> _Waits:
    """The proofs that end a part of the queue; exact where work was there until just before."""
    last = np.flatnonzero(np.append(queue.group[1:] != queue.group[:-1], False))
    at = queue.limit[last]
    known = at < np.int64(1) << 62
    last, at = last[known], at[known]
    exact = covered(gpu.pending(device), at - NEAR_NS, at) > 0
    # a copy that was waited for alone says nothing about kernels
    kernels = np.append(0, np.cumsum(queue.kernel))
    head = np.searchsorted(queue.group, queue.group[last])
    exact &= kernels[last + 1] > kernels[head]
    return _Waits(last, at, exact)


def _compare(queue: Queue, ns: Floats, waits: _Waits) -> tuple[Floats, Ints]:
    """(known over modelled time up to each wait, first operation of the busy stretch before it)."""
    duration = np.where(queue.kernel, np.append(ns, _FIRST_NS)[queue.kind], queue.fixed)
    end = queue.ends(duration)
    # an operation that begins as soon as it is ready found its stream empty
    fresh = np.flatnonzero(end - np.rint(duration).astype(np.int64) <= queue.ready + 64)
    place = np.searchsorted(fresh, waits.last, side="right") - 1
    first = fresh[np.maximum(place, 0)] if len(fresh) else np.zeros(len(waits.last), np.int64)
    begin = queue.ready[first]
    modelled = np.maximum(end[waits.last] - begin, 1).astype(np.float64)
    known = np.maximum(waits.at - begin, 1).astype(np.float64)
    return known / modelled, first


def _correct(log: Floats, queue: Queue, waits: _Waits, ratio: Floats, first: Ints) -> None:
    """Scales the kernels of each busy stretch towards what is known of its end."""
    wrong = waits.exact | (ratio < 1)
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return
    # the correction that each operation gets: that of the stretch it is in
    size = len(queue)
    low, high = first[rows], waits.last[rows] + 1
    change = np.clip(np.log(ratio[rows]), -3.0, 3.0)
    steps = np.bincount(low, weights=change, minlength=size + 1) - np.bincount(
        high, weights=change, minlength=size + 1
    )
    inside = np.bincount(low, minlength=size + 1) - np.bincount(high, minlength=size + 1)
    value, count = np.cumsum(steps)[:size], np.cumsum(inside)[:size]
    chosen = np.flatnonzero((count > 0) & (queue.kind >= 0))
    kinds = queue.kind[chosen]
    sums = np.bincount(kinds, weights=value[chosen] / count[chosen], minlength=len(log))
    counts = np.bincount(kinds, minlength=len(log))
    log += np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)
    np.clip(log, np.log(_LEAST_NS), np.log(_MOST_NS), out=log)


def _measured(queue: Queue, waits: _Waits, first: Ints, kinds: int) -> Mask:
    """Kernels with a part in enough of the busy stretches whose end is known exactly."""
    rows = np.flatnonzero(waits.exact)
    size = len(queue)
    inside = np.cumsum(
        np.bincount(first[rows], minlength=size + 1) - np.bincount(waits.last[rows] + 1, minlength=size + 1)
    )[:size]
    chosen = (inside > 0) & (queue.kind >= 0)
    measured: Mask = np.bincount(queue.kind[chosen], minlength=kinds) >= FEWEST
    return measured
