"""Durations of kernels and copies, learned from waits and from NVML."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gputop.analysis.evidence.api_classes import D2H, H2D, Group, Role
from gputop.analysis.evidence.call_context import call_time
from gputop.analysis.evidence.columns import (
    FOREVER,
    Floats,
    Ints,
    Mask,
    among,
    covered,
    intersect,
    length,
    shared,
    union,
)
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import DeviceTime, GpuTime
from gputop.analysis.proofs.nvml_witness import ModelledWork, Witness
from gputop.analysis.proofs.proofs import END_NS
from gputop.analysis.proofs.work_queue import (
    BIG_COPY,
    LEAST_COPY_ERROR,
    OTHERS_ERROR,
    START_NS,
    UNSTAGED,
    WORST_COPY,
    CopyRates,
    Queue,
    Rate,
)
from gputop.engine.threads.occupancy import expand

FEWEST, WAITS = 5, 8  # least number of waits with a part of a kernel's work; and in all
# a wait that ended this short before the proof is the one that proved it; a long one may include a copy
NEAR_NS, NEAR_SHARE = 60_000, 0.05
COVERED = 0.9  # of the operations in unknown time must be learned for an estimate of its own
SLOW = 12.0  # copies of pageable memory may last so many times as long as those of page-locked memory
WORST = 0.5  # a fit with a larger usual error is not used
_ROUNDS = 12
_FIRST_NS = 10_000.0
_LEAST_NS, _MOST_NS = 500.0, 1e10


@dataclass(frozen=True, slots=True)
class Learned:
    """Durations by kernel."""

    ns: Floats  # of each kernel (``Queue.kind``), ns; upper bounds and guesses where not ``measured``
    measured: Mask  # True for those learned from waits
    # the share of that time in certain waits of the program. In the rest the GPU may have been idle, so
    # durations may be shorter by that share
    sure: float
    error: float  # error of the fit, as a share of the time
    usual_ns: float  # duration of unknown kernels

    def durations(self, kind: Ints, usual: float, scale: float = 1.0) -> Floats:
        """Return the duration of each operation, ns, times ``scale``; ``usual`` for unknown kernels."""
        known: Floats = np.append(self.ns, usual) * scale
        return known[kind]  # -1 is the last one

    def enough(self, queue: Queue, unknown: tuple[Ints, Ints]) -> bool:
        """True if nearly all kernels in the unknown time are learned."""
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
    """The parts of a queue that end with a proof: last operation, time, True if that is the work's end."""

    last: Ints
    at: Ints
    exact: Mask


def learn(gpu: GpuTime, device: int, queue: Queue, operations: int) -> Learned | None:
    """Fit durations to the waits in so many operations of one GPU; None if too few waits are exact."""
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
    """Return (first operation, last one, end) of stretches with the GPU busy until a wait ended."""
    part = queue.take(np.arange(min(len(queue), operations)))
    waits = _waits(gpu, device, part)
    _ratio, first = _Fit(part, waits, len(learned.ns)).compare(learned.ns)
    exact = waits.exact & (first <= waits.last)
    return first[exact], waits.last[exact], waits.at[exact]


def as_waited(gpu: GpuTime, device: int, queue: Queue, duration: Floats) -> Floats:
    """Return durations that agree with every proof and wait: waited-for work lasts until the wait ends."""
    real = queue.real(duration)
    waits = _waits(gpu, device, queue)
    last, at = waits.last[waits.exact], waits.at[waits.exact]
    if not len(last):
        return real
    # missing time was work of a kernel, not of the copy behind it
    kernels = np.flatnonzero(queue.kernel)
    before = kernels[np.maximum(np.searchsorted(kernels, last, side="right") - 1, 0)]
    end = np.minimum(queue.ends(duration)[last], queue.limit[last])
    real[before] += np.maximum(at - np.maximum(end, queue.ready[last]), 0)
    return real


def _waits(gpu: GpuTime, device: int, queue: Queue) -> _Waits:
    """The proofs that end a part of the queue; exact where work was pending until just before."""
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
    # the pending work was that of the kernels before the copy; a copy alone is not exact
    kernels = np.flatnonzero(queue.kernel)
    place = np.searchsorted(kernels, last, side="right") - 1
    own = kernels[np.maximum(place, 0)] if len(kernels) else last
    exact &= (place >= 0) & (queue.group[own] == queue.group[last])
    exact &= end[worked] > queue.ready[own]
    # work pending before the copy was enqueued, or a wait longer than such a copy: else the wait was for the
    # copy alone
    moved = np.append(0.0, np.cumsum(np.where(queue.kernel, 0.0, queue.fixed)))
    slow = SLOW * (moved[last + 1] - moved[own + 1])
    longer = ~queue.staged[last] & (length > slow)
    exact &= (own == last) | (begin[worked] < queue.ready[last]) | longer
    last = np.where(exact, own, last)
    return _Waits(last, at, exact)


class _Fit:
    """Fits kernel durations to waits, step by step."""

    def __init__(self, queue: Queue, waits: _Waits, kinds: int) -> None:
        """Collect the operations of each wait's part of the queue."""
        # the logarithm of each kernel's duration in ns, so far
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
        """Return (scale of the kernels with which each wait ends as it did, first operation of its stretch).

        As the kernels of a wait's part of the queue are scaled together, the end first meets the wait's
        through the operation with the least scale: ``ready + scale * kernels + copies = at``.

        Args:
            times: Durations of kernels by kind, ns; default: those fitted so far.
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
        """Scale the kernels of each busy stretch towards its known end."""
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
    """True for kernels in enough busy stretches with an exact end."""
    rows = np.flatnonzero(waits.exact)
    size = len(queue)
    inside = np.cumsum(
        np.bincount(first[rows], minlength=size + 1) - np.bincount(waits.last[rows] + 1, minlength=size + 1)
    )[:size]
    chosen = (inside > 0) & (queue.kind >= 0)
    measured: Mask = np.bincount(queue.kind[chosen], minlength=kinds) >= FEWEST
    return measured


# Rates of copies by the time of waits without that of the kernels that NVML saw.

SLOW_OUT = 0.1  # ns in which the CPU copies a byte into fresh memory, where no copy shows it
HELD = 0.9  # of the kernels must lie in parts of the queue with a known duration
COPYTIMES_FEWEST = 8  # such parts
VAGUE = 0.5  # a rate with a larger error is no better than that of the lanes
LARGE = 64 << 10  # bytes of a part's copies


def copy_rates_of(
    evidence: Evidence, gpu: GpuTime, span: DeviceTime, queue: Queue, seen: Witness | None
) -> CopyRates:
    """Return the rates of a queue's copies; where no copy shows one, by the time left of its waits."""
    rates = queue.rates
    if seen is None or queue.streams != 1 or rates.known or not rates.doubt:
        return rates
    calls = evidence.calls
    known = np.maximum(queue.row, 0)
    copies = (queue.row >= 0) & ~queue.kernel & (evidence.group_of(known) == Group.COPY)
    copies &= np.isin(calls["direction"][known], (H2D, D2H))
    size = np.where(copies, calls["bytes"][known], 0).astype(np.float64)
    first = np.flatnonzero(np.append(True, queue.group[1:] != queue.group[:-1]))
    last = np.append(first[1:], len(queue)) - 1
    begin = np.maximum(queue.ready[first], np.append(0, queue.limit[last[:-1]]))
    end = queue.limit[last]
    moved = np.add.reduceat(size, first)
    kernels = np.add.reduceat(queue.kernel.astype(np.int64), first)
    read = copies & (calls["direction"][known] == D2H)
    at = known[copies]
    locked = np.zeros(len(queue), np.bool_)
    locked[copies] = gpu.ranges.pinned(calls["pid"][at], calls["aux"][at], calls["begin"][at])
    read_out = np.add.reduceat(np.where(read & ~locked, size, 0.0), first)
    # staging inside a call is over at its return, and no part of the time that is left
    staged = np.where(queue.staged, np.minimum(calls["end"][known] - calls["begin"][known], np.inf), 0.0)
    staging = rates.staging if rates.staging is not None else UNSTAGED
    staged = np.add.reduceat(np.minimum(staged, staging * size), first)
    # all waits, and copies that return with their data
    waits = read & (~locked | (evidence.role_of(known) == Role.COPY_SYNC))
    waiting = union(
        np.append(gpu.pending(span.device)[0], calls["begin"][known[waits]]),
        np.append(gpu.pending(span.device)[1], calls["end"][known[waits]]),
    )
    chosen = (end < FOREVER // 2) & (end > begin) & (moved >= LARGE)
    waited = np.zeros(len(first), np.int64)
    waited[chosen] = covered(waiting, begin[chosen], end[chosen])
    chosen &= waited > 0
    if np.count_nonzero(chosen) < COPYTIMES_FEWEST or kernels[chosen].sum() < HELD * kernels.sum():
        return rates
    ran, total = seen.busy * span.span_ns * kernels[chosen].sum() / max(kernels.sum(), 1), moved[chosen].sum()
    # the CPU needs a part of a copy to pageable memory, beside the link or after it, and may wait for a CPU
    slow = staging if rates.staging is not None else SLOW_OUT
    out = slow * read_out[chosen].sum() + call_time(evidence, known[waits]).queued.sum()
    more = staged[chosen].sum() - ran
    least = (waited[chosen].sum() - out + more) / total
    most = ((end - begin)[chosen].sum() + more) / total
    return _with(rates, least, most, seen.error * span.span_ns / total)


def _with(rates: CopyRates, least: float, most: float, error: float) -> CopyRates:
    """The rates with another usual one, where that is more exact."""
    nominal = rates.usual.ns
    least, most = max(least - error, nominal), min(most + error, WORST_COPY * nominal)
    if most <= nominal or most < least:
        return rates
    middle = (least + most) / 2
    usual = Rate(middle, max((most - least) / 2 / middle, LEAST_COPY_ERROR + OTHERS_ERROR / 2))
    if usual.error > VAGUE:  # the lanes' rate is as likely
        usual = Rate(nominal, min(most / nominal - 1, rates.usual.error))
    return replace(rates, usual=usual, doubt=usual.error)


# A GPU's queue with these durations: when it was idle then.

LEAST_ERROR = 0.03  # of learned durations: work varies more than a fit shows
_STRETCHES = 16  # of time, a sample of a long queue
_TURNS, _CLOSE = 20, 2.0**-9
MOST_KERNELS = 500_000  # of a queue that is compared with each of NVML's readings
NEAR = 2e-4  # of the largest possible idle time: tolerance of the search
_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)
_USUAL_NS = 10_000.0  # duration of a kernel at first


class Model:
    """The queue with durations, and its idle time within the unknown time."""

    def __init__(
        self,
        queue: Queue,
        unknown: tuple[Ints, Ints],
        pending: tuple[Ints, Ints],
        learned: Learned | None,
        operations: int,
        readbacks: tuple[Ints, Ints] = _NONE,
    ) -> None:
        """Prepare the queue.

        Args:
            queue: The GPU's operations.
            unknown: Time without a proof.
            pending: Time with proved work.
            learned: Durations learned from waits.
            operations: Of a longer queue a sample of so many operations is used.
            readbacks: (place in the queue, ns) of copies that have ended when their calls return.
        """
        queue = _read_inside(_as_moved(queue, pending), *readbacks)
        self.queue, self.unknown, self.learned = queue, unknown, learned
        self._pending, self._moving = pending, _moving(queue, pending)
        self._operations = operations
        self._part, self._part_unknown = _sample(queue, unknown, operations)
        whole = length(*unknown)
        # after the last operation there is nothing to sample: it is idle there
        behind = (queue.ready.max(keepdims=True), np.array([FOREVER]))
        self._behind_ns = length(*intersect(unknown, behind)) if len(self._part) < len(queue) else 0
        self._weight = (whole - self._behind_ns) / max(length(*self._part_unknown), 1)
        # with kernels of no duration only copies are left
        least = self._inside(_USUAL_NS, 0.0)
        moved = max(whole - int(self._whole(least)), 0)
        # in one stream no kernel runs beside a copy
        waited = self._waited_for() if queue.streams == 1 else length(*self._moving)
        # time of copies and fills without a kernel: in the unknown, or waited for
        self.copies_ns = moved + waited
        # its error
        self.copies_error_ns = min(int(self.copies_ns * queue.rates.doubt * _unseen(queue, pending)), whole)

    def _durations(self, queue: Queue, usual: float, *, scale: float) -> Floats:
        """Durations, learned ones or ``usual``; of kernels times ``scale``."""
        if self.learned is None:
            return np.where(queue.kernel, usual * scale, queue.fixed)
        return np.where(queue.kernel, self.learned.durations(queue.kind, usual, scale), queue.fixed)

    def _inside(self, usual: float, scale: float) -> int:
        """Idle time within the unknown of the sample."""
        idle = self._part.idle(self._durations(self._part, usual, scale=scale))
        return shared(idle, self._part_unknown)

    def _waited_for(self) -> int:
        """Time of copies while work was pending, by the sample."""
        pending = self._pending
        if len(self._part) < len(self.queue):
            pending = intersect(pending, _stretches(self.queue, self._operations))
        idle = self._part.idle(self._durations(self._part, _USUAL_NS, scale=0.0))
        share = length(*pending) / max(length(*self._pending), 1)
        return int((length(*pending) - shared(idle, pending)) / share) if share else 0

    def _whole(self, inside: float) -> float:
        """Idle time within the unknown, by that of the sample."""
        return inside * self._weight + self._behind_ns

    def known(self) -> Floats:
        """Return the learned durations."""
        return self._durations(self.queue, self._usual(), scale=1.0)

    def fitted(self, idle_ns: int, error_ns: int) -> Floats:
        """Return durations with so much idle time within the unknown.

        Learned ones are kept where their idle time is within the error.
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
        """Return the idle time within the unknown."""
        return length(*self.pieces(duration))

    def pieces(self, duration: Floats) -> tuple[Ints, Ints]:
        """Return the idle intervals within the unknown."""
        return intersect(self.queue.idle(duration), self.unknown)

    def learned_idle(self) -> tuple[float, float] | None:
        """Return (idle time within the unknown, its error) by the learned durations; None with too few."""
        learned = self.learned
        if learned is None or not learned.enough(self.queue, self.unknown):
            return None
        error = max(learned.error, LEAST_ERROR)
        scales = (1 + error, max(learned.sure, 1e-3) / (1 + error))
        least, most = (self._whole(self._inside(learned.usual_ns, scale)) for scale in scales)
        return (least + most) / 2, (most - least) / 2 + self.copies_error_ns

    def work(self, duration: Floats) -> ModelledWork | None:
        """Return when the GPU was at work; None for a queue that is too long."""
        if len(self.queue) > MOST_KERNELS:
            return None
        real = self.queue.real(duration).astype(np.int64)
        end = np.minimum(self.queue.ends(duration), self.queue.limit)
        begin, end = union(np.append(end - real, self._pending[0]), np.append(end, self._pending[1]))
        copies = np.flatnonzero(~self.queue.kernel & (self.queue.fixed > 0))
        copies = copies[np.argsort(self.queue.ready[copies], kind="stable")]
        return ModelledWork((begin, end), self.queue.ready[copies], self.queue.fixed[copies])


def _staged_last(queue: Queue) -> Ints:
    """Rows of the staged copies before a proof: their wait ends with them."""
    return np.flatnonzero(np.append(queue.group[1:] != queue.group[:-1], False) & queue.staged)


def _as_moved(queue: Queue, pending: tuple[Ints, Ints]) -> Queue:
    """The queue with copies that last until the end of their wait, if they have one."""
    last = _staged_last(queue)
    last = last[covered(pending, queue.ready[last], queue.limit[last]) > 0]
    fixed = queue.fixed.copy()
    fixed[last] = queue.limit[last] - queue.ready[last]
    return replace(queue, fixed=fixed)


def _unseen(queue: Queue, pending: tuple[Ints, Ints]) -> float:
    """The share of the copies' time without a wait that shows their end."""
    copies = np.where(queue.kernel, 0.0, queue.fixed)
    last = _staged_last(queue)
    seen = copies[last[covered(pending, queue.ready[last], queue.limit[last]) > 0]].sum()
    return 1 - float(seen / max(copies.sum(), 1.0))


def _read_inside(queue: Queue, made: Ints, copy_ns: Ints) -> Queue:
    """The queue with copies at the end of the calls that made them."""
    ready, fixed = queue.ready.copy(), queue.fixed.copy()
    ready[made] -= START_NS + copy_ns
    fixed[made] = copy_ns
    return replace(queue, ready=ready, fixed=fixed)


def _moving(queue: Queue, pending: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Waits for a copy alone: a staged one before a proof, from the end of its call until then."""
    last = _staged_last(queue)
    return intersect(union(queue.ready[last], queue.limit[last]), pending)


def _sample(queue: Queue, unknown: tuple[Ints, Ints], operations: int) -> tuple[Queue, tuple[Ints, Ints]]:
    """Some stretches of a queue with more operations, evenly spread, and the unknown time in them."""
    if len(queue) <= operations:
        return queue, unknown
    begin, end = _stretches(queue, operations)
    place = np.searchsorted(begin, queue.ready, side="right") - 1
    chosen = np.flatnonzero((place >= 0) & (queue.ready < end[np.maximum(place, 0)]))
    return queue.take(chosen), intersect(unknown, (begin, end))


def _stretches(queue: Queue, operations: int) -> tuple[Ints, Ints]:
    """(begin, end) of these stretches, with about so many operations together."""
    low, high = int(queue.ready.min()), int(queue.ready.max())
    begin = np.linspace(low, high, _STRETCHES, endpoint=False).astype(np.int64)
    return begin, begin + int((high - low) / _STRETCHES * operations / len(queue))


def _solved(idle: Callable[[float], int], most: float, goal: float) -> float:
    """The scale of the durations at which the idle time meets the goal."""
    low, high, middle = -10.0, 24.0, 0.0  # powers of two: kernels of 10 ns to minutes
    for turn in range(_TURNS):
        found = idle(2.0**middle)
        low, high = (middle, high) if found > goal else (low, middle)
        # where the GPU is never idle, longer durations change nothing: search for the shortest
        near = abs(found - goal) <= NEAR * most < found
        if near or high - low < _CLOSE:
            break
        # while the GPU keeps up, busy time grows as the durations do
        busy, wanted = most - found, most - goal
        guess = middle + math.log2(wanted / busy) if busy > 0 and wanted > 0 else low
        middle = guess if turn % 3 < 2 and low < guess < high else (low + high) / 2
    return float(2.0**middle)


# Copies that end within their calls: large ones to pageable host memory, and synchronous ones.

READ_RATE = 12.0  # bytes per ns that a CPU copies out of the driver's buffers, where no copy shows it


def readbacks(evidence: Evidence, gpu: GpuTime, queue: Queue) -> tuple[Ints, Ints]:
    """Return (place in the queue, ns) of those copies, without calls shorter than their copy."""
    calls, at = evidence.calls, np.flatnonzero((queue.row >= 0) & ~queue.kernel)
    rows = queue.row[at]
    chosen = (evidence.group_of(rows) == Group.COPY) & (calls["bytes"][rows] >= BIG_COPY)
    chosen &= among(calls["direction"][rows], (D2H, H2D))
    at, rows = at[chosen], rows[chosen]
    reads = calls["direction"][rows] == D2H
    pinned = gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    rates = queue.rates
    rate = rates.of(D2H, pinned=False)
    per_byte = rate.ns if rate is not rates.usual else max(rate.ns, 1 / READ_RATE)
    sure = max(1 - rate.error, 0.1)
    size, lasts = calls["bytes"][rows], calls["end"][rows] - calls["begin"][rows]
    copy_ns = (size * np.where(reads & ~pinned, per_byte, 0.0)).astype(np.int64)
    itself = pinned & (evidence.role_of(rows) == Role.COPY_SYNC)
    copy_ns = np.where(itself, np.minimum(queue.fixed[at], lasts).astype(np.int64), copy_ns)
    own = (itself | (reads & ~pinned)) & (lasts >= sure * copy_ns)
    return at[own], np.minimum(copy_ns, lasts)[own]
