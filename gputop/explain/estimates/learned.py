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

from gputop.engine.intervals import expand
from gputop.explain.evidence.ranges import Floats, Ints, Mask, covered
from gputop.explain.proofs.gaps import GpuTime
from gputop.explain.proofs.pending import END_NS
from gputop.explain.proofs.workqueue import Queue

FEWEST, WAITS = 5, 8  # waits that a kernel must have had a part in; that there must be at all
# a wait that ended this short before the proof is what proved it; a long one may have had a copy behind it
NEAR_NS, NEAR_SHARE = 60_000, 0.05
COVERED = 0.9  # of the operations in unknown time must be learned for an estimate of its own
SLOW = 12.0  # copies of pageable memory may take so many times as long as those of page-locked memory
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
        sure: The share of that time for which the program certainly waited. In the rest the GPU may have been
            idle before it was given more, so that durations may be so much shorter.
        error: How far what is learned is off where it can be compared, as a share of the time.
        usual_ns: What kernels take that are not known at all.
    """

    ns: Floats
    measured: Mask
    sure: float
    error: float
    usual_ns: float

    def durations(self, kind: Ints, usual: float, scale: float = 1.0) -> Floats:
        """Of each operation, ns, times ``scale``; ``usual`` for what is no known kernel."""
        known: Floats = np.append(self.ns, usual) * scale
        return known[kind]  # -1 is the last one

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
    fit = _Fit(part, waits, kinds)
    for _ in range(_ROUNDS):
        fit.correct()
    ratio, first = fit.compare()
    exact = waits.exact & (first <= waits.last)
    if np.count_nonzero(exact) < WAITS:
        return None
    spent = (waits.at - part.ready[first])[exact]
    error = float(np.average(np.abs(np.log(ratio[exact])), weights=spent))
    waited = covered(gpu.pending(device), part.ready[first][exact], waits.at[exact])
    measured = _measured(part, waits, first, kinds)
    times = np.exp(fit.log)
    usual = float(np.median(times[measured])) if measured.any() else _FIRST_NS
    return Learned(times, measured, float(waited.sum() / max(int(spent.sum()), 1)), error, usual)


def busy_stretches(
    gpu: GpuTime, device: int, queue: Queue, learned: Learned, operations: int
) -> tuple[Ints, Ints, Ints]:
    """(first operation, last one, end) of stretches of a queue in which the GPU was busy until a wait ended.

    Args:
        gpu: The proofs.
        device: The GPU.
        queue: What it was given.
        learned: Of this queue.
        operations: By so many of it that was learned.
    """
    part = queue.take(np.arange(min(len(queue), operations)))
    waits = _waits(gpu, device, part)
    _ratio, first = _Fit(part, waits, len(learned.ns)).compare(learned.ns)
    exact = waits.exact & (first <= waits.last)
    return first[exact], waits.last[exact], waits.at[exact]


def as_waited(gpu: GpuTime, device: int, queue: Queue, duration: Floats) -> Floats:
    """Durations that agree with every proof and every wait: what a wait waited for took until its end."""
    real = queue.real(duration)
    waits = _waits(gpu, device, queue)
    last, at = waits.last[waits.exact], waits.at[waits.exact]
    if not len(last):
        return real
    # what is not accounted for was work of a kernel, not of the copy that was waited for behind it
    kernels = np.flatnonzero(queue.kernel)
    before = kernels[np.maximum(np.searchsorted(kernels, last, side="right") - 1, 0)]
    end = np.minimum(queue.ends(duration)[last], queue.limit[last])
    real[before] += np.maximum(at - np.maximum(end, queue.ready[last]), 0)
    return real


def _waits(gpu: GpuTime, device: int, queue: Queue) -> _Waits:
    """The proofs that end a part of the queue; exact where work was there until just before."""
    last = np.flatnonzero(np.append(queue.group[1:] != queue.group[:-1], False))
    at = queue.limit[last]
    known = at < np.int64(1) << 62
    last, at = last[known], at[known]
    begin, end = gpu.pending(device)
    if not len(end):
        return _Waits(last, at, np.zeros(len(last), np.bool_))
    place = np.searchsorted(end, at, side="right") - 1
    worked = np.maximum(place, 0)
    length = end[worked] - begin[worked]
    exact = (place >= 0) & (at - end[worked] <= np.maximum(NEAR_NS, NEAR_SHARE * length))
    at = np.where(exact, np.minimum(end[worked] + END_NS, at), at)
    # what was worked at is what the kernels before the copy were that was waited for; it alone says nothing
    kernels = np.flatnonzero(queue.kernel)
    place = np.searchsorted(kernels, last, side="right") - 1
    own = kernels[np.maximum(place, 0)] if len(kernels) else last
    exact &= (place >= 0) & (queue.group[own] == queue.group[last])
    exact &= end[worked] > queue.ready[own]
    # work that was there before the copy was given, or a wait that no such copy takes: else the copy alone
    # was waited for
    moved = np.append(0.0, np.cumsum(np.where(queue.kernel, 0.0, queue.fixed)))
    slow = SLOW * (moved[last + 1] - moved[own + 1])
    longer = ~queue.staged[last] & (length > slow)
    exact &= (own == last) | (begin[worked] < queue.ready[last]) | longer
    last = np.where(exact, own, last)
    return _Waits(last, at, exact)


class _Fit:
    """What comparing a queue with its waits needs whatever the durations are: it is done many times.

    Attributes:
        log: Of each kernel, the logarithm of its duration in ns, as far as it is fitted.
    """

    def __init__(self, queue: Queue, waits: _Waits, kinds: int) -> None:
        """Look at the operations of each wait's part of the queue.

        Args:
            queue: At least one operation.
            waits: In the order of the queue.
            kinds: How many kernels are told apart.
        """
        self.log: Floats = np.full(kinds, np.log(_FIRST_NS))
        self._waits = waits
        # in a table of the kernels' durations: the last but one is that of no known kernel, the last of none
        self._code = np.where(queue.kernel, np.where(queue.kind >= 0, queue.kind, kinds), kinds + 1)
        moved = np.append(0.0, np.cumsum(np.where(queue.kernel, 0.0, queue.fixed)))
        head = np.searchsorted(queue.group, queue.group[waits.last])
        self._counts = waits.last + 1 - head
        self._starts = np.append(0, np.cumsum(self._counts))[:-1]
        owner, row = expand(head, waits.last + 1)
        whole = len(row) > 0 and int(row[-1]) - int(row[0]) + 1 == len(row)
        self._row: Ints | slice = slice(int(row[0]), int(row[-1]) + 1) if whole else row
        left = waits.at[owner] - queue.ready[row] - (moved[waits.last[owner] + 1] - moved[row])
        self._left, self._rows, self._owner = np.maximum(left, 1.0), row, owner
        # no kernel comes from there on: nothing to scale
        runs = np.append(0, np.cumsum(queue.kernel))
        self._none = np.flatnonzero(runs[waits.last + 1][owner] == runs[row])
        self._work = np.zeros(len(queue) + 1)

    def compare(self, times: Floats | None = None) -> tuple[Floats, Ints]:
        """(by how much kernels must be scaled so that each wait ends when it did, from which operation on).

        Of all operations of a wait's part of the queue, scaled together, the end first meets the wait's
        through the one with the least scale: ``ready + scale * kernels + copies = at``.

        Args:
            times: What kernels take, by kind, in ns; without, as far as that is learned.
        """
        table = np.append(np.exp(self.log) if times is None else times, (_FIRST_NS, 0.0))
        work = self._work
        np.cumsum(table.take(self._code), out=work[1:])
        own = np.repeat(work[self._waits.last + 1], self._counts)
        own -= work[self._row]
        own[self._none] = 1.0
        scale = np.divide(self._left, own, out=own)
        scale[self._none] = np.inf
        if not len(self._starts):
            return np.zeros(0), np.zeros(0, np.int64)
        least = np.minimum.reduceat(scale, self._starts)
        chosen = np.flatnonzero(scale == np.repeat(least, self._counts))
        first = np.zeros(len(self._starts), np.int64)
        first[self._owner[chosen][::-1]] = self._rows[chosen][::-1]
        return np.where(np.isfinite(least), least, 1.0), first

    def correct(self) -> None:
        """Scales the kernels of each busy stretch towards what is known of its end."""
        ratio, first = self.compare()
        waits, kinds = self._waits, len(self.log)
        wrong = np.flatnonzero(waits.exact | (ratio < 1))
        # the correction that each operation gets is that of its stretch; no two of these overlap
        low, high = first[wrong], waits.last[wrong] + 1
        change = np.repeat(np.clip(np.log(ratio[wrong]), -3.0, 3.0), high - low)
        code = self._code[expand(low, high)[1]]
        sums = np.bincount(code, weights=change, minlength=kinds)[:kinds]
        counts = np.bincount(code, minlength=kinds)[:kinds]
        self.log += np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)
        np.clip(self.log, np.log(_LEAST_NS), np.log(_MOST_NS), out=self.log)


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
