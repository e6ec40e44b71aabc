"""The operations of a GPU as queues, which give the end of each by its duration; the rates of copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gputop.analysis.evidence.api_classes import D2H, H2D, Group, Role, Trait
from gputop.analysis.evidence.call_context import call_time
from gputop.analysis.evidence.columns import (
    FOREVER,
    Floats,
    Ints,
    Mask,
    Tabular,
    among,
    group_ids,
    lean,
    union,
)
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime, StreamEmpty
from probes.samples import listed_gpus

PINNED_RATE = 12.0  # bytes per ns of a copy from page-locked memory where the link is not known (PCIe 3 x16)
UNSTAGED = 0.03  # ns in which the CPU copies a byte within memory, where no copy shows it
COPY_NS = 1_500.0  # fixed time of a copy
LARGE = 256 << 10  # bytes; for smaller copies the call's own time is too large a part
NEAR_NS = 100_000  # a call that begins this soon after a copy waits for that copy
FEWEST = 3  # copies that determine a rate
USUAL = 0.3  # quantile: slower copies were delayed
LEAST_COPY_ERROR = 0.05  # of a rate that was learned
OTHERS_ERROR = 0.1  # more, of a rate that was learned of other copies
WORST_COPY = 32.0  # times as long as the lanes allow: slower links are rare
WAITED_NS = 20_000  # a wait that is shorter may not have waited
LONGER = 1.1  # times as long as staging alone: such a copy waited for the one before


@dataclass(frozen=True, slots=True)
class Rate:
    """Time per byte, ns; ``error``: its error, as a share."""

    ns: float
    error: float


@dataclass(frozen=True, slots=True)
class CopyRates:
    """Rates by direction and by whether the host's memory is page-locked."""

    known: dict[tuple[int, bool], Rate]
    usual: Rate
    staging: float | None  # time in which the CPU stages a byte, ns; None where no copy shows it
    doubt: float = 0.0  # error of the time of all copies, as a share

    def of(self, direction: int, *, pinned: bool) -> Rate:
        """Return the rate of one kind of copy: its own, else one of its direction, any other, the usual."""
        other = D2H if direction == H2D else H2D
        for kind in ((direction, pinned), (direction, not pinned), (other, pinned), (other, not pinned)):
            if kind in self.known:
                known = self.known[kind]
                return known if kind == (direction, pinned) else Rate(known.ns, known.error + OTHERS_ERROR)
        return self.usual


NO_RATES = CopyRates({}, Rate(1 / PINNED_RATE, 0.0), None)


def link_rate(evidence: Evidence) -> float:
    """Return the bytes per ns over a GPU's link: 0.8 of its lanes' rate by NVML, else that of PCIe 3 x16."""
    for sample in reversed(evidence.gpus):
        for gpu in listed_gpus(sample):
            generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
            if generation and width:
                return 0.8 * 0.985 * 2.0 ** (int(generation) - 3) * int(width)
    return PINNED_RATE


def copy_rates(evidence: Evidence, rows: Ints, pinned: Mask, alone: Ints, limit: Ints) -> CopyRates:
    """Return the rates that some copies show.

    Args:
        evidence: The recorded evidence.
        rows: Calls that copy between host and GPU.
        pinned: True where the host's memory is page-locked.
        alone: Calls that enqueued in a stream in which all work had ended.
        limit: The latest possible end of each copy, by the proofs.
    """
    calls = evidence.calls
    large = np.flatnonzero(calls["bytes"][rows] >= LARGE)
    large = large[np.argsort(rows[large], kind="stable")]
    rows, pinned, limit = rows[large], pinned[large], limit[large]
    size = calls["bytes"][rows].astype(np.float64)
    nominal = 1 / link_rate(evidence)
    if not len(rows):
        return CopyRates({}, Rate(nominal, 0.0), None)
    # no copy ends later than its limit, which bounds the rate
    bound = limit < FOREVER // 2
    most = (limit - calls["begin"][rows])[bound] / size[bound]
    slowest = max(min(float(most.min(initial=np.inf)), _seen(evidence), WORST_COPY * nominal), nominal)
    usual = Rate(nominal, slowest / nominal - 1)
    seen = _Copies(evidence, rows, pinned, np.isin(rows, alone))
    staging = _quantile(*seen.staging()[:2])
    known: dict[tuple[int, bool], Rate] = {}
    for direction, locked in ((H2D, True), (H2D, False), (D2H, True)):
        *shown, calm = seen.moved(direction, pinned=locked)
        found = _quantile(*shown)
        if found is not None:
            known[direction, locked] = _bounded(max(found, nominal), nominal, calm=calm)
    *shown, calm = seen.moved(D2H, pinned=False)
    read = _quantile(*shown)
    if read is not None:
        whole = _read(read, UNSTAGED if staging is None else staging, nominal, known)
        known[D2H, False] = whole if calm else _bounded(whole.ns * (1 + whole.error), nominal, calm=False)
    rates = CopyRates(known, usual, staging)
    weighed = [
        (float(size[mine].sum()) * rate.ns, rate.error)
        for direction in (H2D, D2H)
        for locked in (False, True)
        for mine in [(calls["direction"][rows] == direction) & (pinned == locked)]
        for rate in [rates.of(direction, pinned=locked)]
    ]
    return replace(rates, doubt=sum(ns * error for ns, error in weighed) / sum(ns for ns, _error in weighed))


def _bounded(found: float, nominal: float, *, calm: bool) -> Rate:
    """The rate that copies show: at most that, where each waited for a CPU."""
    if calm:
        return Rate(found, LEAST_COPY_ERROR)
    middle = (nominal + found) / 2
    return Rate(middle, max(found / middle - 1, LEAST_COPY_ERROR))


def _read(whole: float, staging: float, nominal: float, known: dict[tuple[int, bool], Rate]) -> Rate:
    """The rate of copies to pageable memory: the CPU needs a part of the call, beside the link or after."""
    least, most = max(whole - staging, nominal), max(whole, nominal)
    like = next((known[one] for one in ((D2H, True), (H2D, False), (H2D, True)) if one in known), None)
    if like is not None and least * (1 - 2 * LEAST_COPY_ERROR) <= like.ns <= most * (
        1 + 2 * LEAST_COPY_ERROR
    ):
        return Rate(like.ns, 2 * LEAST_COPY_ERROR)
    middle = (least + most) / 2
    return Rate(middle, max(most / middle - 1, LEAST_COPY_ERROR))


def _seen(evidence: Evidence) -> float:
    """Time per byte at most, ns, by the fastest traffic that NVML saw on the link."""
    most = max(
        (
            float(gpu.get(key) or 0)
            for sample in evidence.gpus
            for gpu in listed_gpus(sample)
            for key in ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
        ),
        default=0.0,
    )
    return 1e9 / most if most else np.inf


def _quantile(duration: Floats, size: Floats) -> float | None:
    """Time per byte of usual copies, ns, by the largest of them; None of too few."""
    if len(duration) < FEWEST:
        return None
    big = size >= np.median(size)
    return float(np.quantile(np.maximum(duration - COPY_NS, 0)[big] / size[big], USUAL))


class _Copies:
    """Copies, and which of them show their duration."""

    def __init__(self, evidence: Evidence, rows: Ints, pinned: Mask, alone: Mask) -> None:
        calls = evidence.calls
        self._rows, self._pinned, self._alone = rows, pinned, alone
        self._begin, self._end = calls["begin"][rows], calls["end"][rows]
        self._size = calls["bytes"][rows].astype(np.float64)
        self._direction = calls["direction"][rows]
        self._held_up = call_time(evidence, rows).queued > 0
        behind = np.minimum(rows + 1, len(calls) - 1)
        near = (calls["row"][behind] == calls["row"][rows]) & (behind > rows)
        near &= calls["begin"][behind] - self._end < NEAR_NS
        waits = near & (evidence.group_of(behind) == Group.SYNC)
        waits &= calls["end"][behind] - calls["begin"][behind] >= WAITED_NS
        self._waited: Ints = np.where(waits, calls["end"][behind], -1)
        self._held_up |= waits & (call_time(evidence, behind).queued > 0)
        self._inside = evidence.role_of(rows) == Role.COPY_SYNC
        # the next copy of the same size, from pageable memory too
        place = np.searchsorted(rows, behind)
        place = np.minimum(place, len(rows) - 1)
        follows = near & (rows[place] == behind) & ~pinned[place] & ~pinned
        follows &= (self._direction == H2D) & (self._direction[place] == H2D)
        follows &= self._size[place] == self._size
        self._next: Ints = np.where(follows, place, -1)

    def staging(self) -> tuple[Floats, Floats, bool]:
        """Return (ns, bytes) of copies that the CPU staged without waiting, and as ``moved``."""
        chosen, calm = self._calm(self._alone & ~self._pinned & (self._direction == H2D))
        return (self._end - self._begin)[chosen].astype(np.float64), self._size[chosen], calm

    def moved(self, direction: int, *, pinned: bool) -> tuple[Floats, Floats, bool]:
        """Return (ns, bytes) of copies with a known time on the link, and if their threads had their CPUs."""
        kind = (self._direction == direction) & (self._pinned == pinned)
        if direction == D2H or pinned:
            whole = np.where(self._inside | ~np.bool_(pinned), self._end - self._begin, 0)
            # an enqueued copy begins when its call returns
            whole = np.where(
                self._waited >= 0, self._waited - np.where(pinned, self._end, self._begin), whole
            )
            whole = np.where(self._inside, self._end - self._begin, whole)
            chosen, calm = self._calm(kind & self._alone & (whole > 0))
            return whole[chosen].astype(np.float64), self._size[chosen], calm
        # staged: until a wait behind it ended, or until the next one, which waited for it, was staged, too
        behind = self._next
        period = np.where(behind >= 0, self._end[behind] - self._end, 0)
        alone = np.where(self._alone, self._end - self._begin, 0)
        staged = _quantile(*self.staging()[:2])
        waits = (behind >= 0) & (staged is not None)
        if staged is not None:
            waits &= period > LONGER * staged * self._size
        whole = np.where(
            waits, period, np.where((alone > 0) & (self._waited >= 0), self._waited - self._begin, 0)
        )
        held_up = self._held_up | (waits & self._held_up[np.maximum(behind, 0)])
        chosen, calm = self._calm(kind & (whole > 0), held_up)
        return whole[chosen].astype(np.float64), self._size[chosen], calm

    def _calm(self, chosen: Mask, held_up: Mask | None = None) -> tuple[Mask, bool]:
        """The copies whose thread always had its CPU, and True, if there are enough; else all, and False."""
        calm: Mask = chosen & ~(self._held_up if held_up is None else held_up)
        return (calm, True) if np.count_nonzero(calm) >= FEWEST else (chosen, False)


# The queues: when each operation ends if its duration is known.

UNIT_NS = 16  # of the running maximum: ten million queues of an hour fit into 64 bits
START_NS = 3_000  # from the return of a launch to the kernel's begin (2 to 10 us on real GPUs)
BIG_COPY = 64 << 10  # smaller pageable copies to the device go into the queue with the call
FILL_RATE = 1_500.0  # bytes per ns, fills and copies within the device: half of what HBM3 moves


@dataclass(frozen=True, slots=True)
class _Parts:
    """First operation of each part between two proofs; part and ready time (in ``UNIT_NS``) of each one."""

    head: Ints
    number: Ints
    base: int
    ready: Ints


@dataclass(frozen=True)
class Queue(Tabular):
    """Operations of one GPU, stream by stream in the order of their return, a row each."""

    row: Ints  # row of the call, -1 for a part of a group of collectives
    thread: Ints  # row of the thread that enqueued it
    ready: Ints  # the earliest time at which the GPU could begin it, ns
    group: Ints  # rows between two proofs of emptiness of one stream, counted from 0
    limit: Ints  # the latest possible end, by the proofs, ns
    kernel: Mask  # True if its duration is unknown; the others are copies and fills
    fixed: Floats  # the duration of those, ns
    # True if the CPU staged such a copy to the device inside the call, once its stream was empty
    staged: Mask
    kind: Ints  # number of the kernel in its process, from 0; -1 for the others
    streams: int  # number of streams
    rates: CopyRates = NO_RATES  # the rates of its copies over the link

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def _parts(self) -> _Parts:
        """Values that do not depend on the durations: a queue is run many times."""
        head = np.flatnonzero(np.append(True, self.group[1:] != self.group[:-1]))
        number = np.repeat(np.arange(len(head)), np.diff(np.append(head, len(self))))
        base = int(self.ready.min())
        return _Parts(head, number, base, (self.ready - base) // UNIT_NS)

    def ends(self, duration: Floats) -> Ints:
        """Return the end of each operation, ns, by its duration (ns) without the limits."""
        if not len(self):
            return self.ready
        parts = self._parts
        length = np.rint(duration / UNIT_NS).astype(np.int64)
        total = np.cumsum(length)
        before = np.subtract(total, length, out=length)
        if len(parts.head) == 1:
            alone: Ints = np.maximum.accumulate(parts.ready - before)
            alone += total
            alone *= UNIT_NS
            alone += parts.base
            return alone
        # each queue counts from its own begin
        own = before[parts.head][parts.number]
        slack = parts.ready - before + own
        least = int(slack.min())
        width = int(slack.max()) - least + 1
        apart = parts.number * width - least
        reach = np.maximum.accumulate(apart + slack) - apart
        ends: Ints = (reach + total - own) * UNIT_NS + parts.base
        return ends

    def real(self, duration: Floats) -> Floats:
        """Return the duration of each operation within its limit, ns."""
        end = np.minimum(self.ends(duration), self.limit)
        before = np.append(0, end[:-1])
        before[np.append(True, self.group[1:] != self.group[:-1])] = 0
        real: Floats = np.maximum(end - np.maximum(before, self.ready), 0).astype(np.float64)
        return real

    def idle(self, duration: Floats) -> tuple[Ints, Ints]:
        """Return disjoint intervals in order without work under way; the last has no end."""
        if not len(self):
            return self.ready, self.ready
        whole = self.ends(duration)
        end = np.minimum(whole, self.limit)
        if self.streams > 1:
            # a limit cuts an operation off at its end; in whole units, so that nothing is left between two
            length = np.rint(duration / UNIT_NS).astype(np.int64) * UNIT_NS
            begin, end = union(np.minimum(whole - length, end), end)
            return end, np.append(begin[1:], FOREVER)
        # one stream runs one operation after the other: the last one enqueued ends last
        late = np.flatnonzero(self.ready[1:] > end[:-1])  # of a busy GPU few
        low, high = end[late], np.minimum(self.ready[late + 1], end[late + 1])
        keep = high > low
        return np.append(low[keep], end.max()), np.append(high[keep], FOREVER)


def queue_of(evidence: Evidence, gpu: GpuTime, device: int, most: int | None = None) -> Queue:
    """Return the queue of one GPU; with ``most`` the first so many operations, stream by stream."""
    streams, calls = gpu.streams, evidence.calls
    mine = np.flatnonzero(streams.device == device).tolist()
    orders = [streams.operations(stream) for stream in mine]
    if most is not None:
        begin = np.append(0, np.cumsum([len(order) for order in orders]))
        orders = [order[: max(most - at, 0)] for order, at in zip(orders, begin.tolist(), strict=False)]
    order = np.concatenate([np.zeros(0, np.int64), *orders])
    row = streams.enqueue_row[order]
    known = np.maximum(row, 0)
    ready = streams.enqueue_end[order] + START_NS
    if not len(calls):
        groups = np.zeros(len(order), np.uint8)
    else:
        groups = np.where(row >= 0, evidence.group_of(known), np.uint8(Group.COLLECTIVE))
    copies = (groups == Group.COPY) | (groups == Group.SET)
    runs = among(groups, (Group.LAUNCH, Group.GRAPH, Group.COLLECTIVE))
    if len(calls):  # host functions and the like are in a stream, but no work of the GPU
        runs &= ~((row >= 0) & evidence.apis.has(calls["op"][known], Trait.HOLDS))
    # a call that never returned may have enqueued when it began
    abandoned = ready > evidence.end_ns + START_NS
    ready = np.where(abandoned, streams.enqueue_begin[order], ready)
    group, limit = _proofs(
        [gpu.empty[stream] for stream in mine], [streams.enqueue_end[own] for own in orders]
    )
    alone = _alone(evidence, row, runs | copies, group, limit)
    fixed, staged, rates = _copies(evidence, gpu, row, copies, alone, limit)
    return Queue(
        row=row,
        thread=lean(streams.enqueue_thread[order]),
        ready=ready,
        group=group,
        limit=limit,
        kernel=lean(runs),
        fixed=lean(fixed),
        staged=lean(staged),
        kind=lean(_kinds(evidence, row, runs)),
        streams=len(mine),
        rates=rates,
    )


def _alone(evidence: Evidence, row: Ints, works: Mask, group: Ints, limit: Ints) -> Ints:
    """Calls that enqueued in a stream in which all work before was proved to have ended."""
    at = np.flatnonzero(works & (row >= 0))
    known = at[np.append(True, group[at][1:] != group[at][:-1])[: len(at)]]
    before = np.searchsorted(group, group[known]) - 1  # the last operation of the part before
    known, before = known[before >= 0], before[before >= 0]
    ended = limit[before] <= evidence.calls["begin"][row[known]]
    alone: Ints = row[known[ended]]
    return alone


def _proofs(empty: list[StreamEmpty], ends: list[Ints]) -> tuple[Ints, Ints]:
    """(group, limit) of each operation: the proofs between which it lies, and the time of the later one."""
    groups, limits, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for known, end in zip(empty, ends, strict=True):
        place = np.searchsorted(end, known.cover, side="right")
        at = np.append(known.at, FOREVER)
        after = np.searchsorted(place, np.arange(len(end)), side="right")
        groups.append(after + count)
        limits.append(at[after])
        count += len(place) + 1
    return np.concatenate(groups), np.concatenate(limits)


def _copies(
    evidence: Evidence, gpu: GpuTime, row: Ints, copies: Mask, alone: Ints, limit: Ints
) -> tuple[Floats, Mask, CopyRates]:
    """(duration, True if staged) of copies and fills, by their bytes, 0 of the others; their rates.

    The CPU moves a staged copy into the driver's buffers inside the call; the GPU's engines are idle for much
    of that time.
    """
    fixed, staged = np.zeros(len(row), np.float64), np.zeros(len(row), np.bool_)
    at = np.flatnonzero(copies & (row >= 0))
    if not len(at):
        return fixed, staged, NO_RATES
    calls, rows = evidence.calls, row[at]
    size, direction = calls["bytes"][rows], calls["direction"][rows]
    fixed[at] = COPY_NS + size / FILL_RATE
    linked = ((direction == H2D) | (direction == D2H)) & (evidence.group_of(rows) == Group.COPY)
    at, rows, size, direction = at[linked], rows[linked], size[linked], direction[linked]
    pinned = gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    rates = copy_rates(evidence, rows, pinned, alone, limit[at])
    staged[at] = (direction == H2D) & ~pinned & (size >= BIG_COPY)
    fixed[at] = _over_link(evidence, rows, pinned, staged[at], rates)
    return fixed, staged, rates


def _over_link(evidence: Evidence, rows: Ints, pinned: Mask, staged: Mask, rates: CopyRates) -> Floats:
    """Time of copies over the link from their enqueue on, ns."""
    calls = evidence.calls
    size, direction = calls["bytes"][rows].astype(np.float64), calls["direction"][rows]
    per_byte = np.zeros(len(rows))
    for kind, locked in ((H2D, False), (H2D, True), (D2H, False), (D2H, True)):
        per_byte[(direction == kind) & (pinned == locked)] = rates.of(kind, pinned=locked).ns
    # bytes not moved while the CPU staged them follow after the call, which may have waited before
    before = (calls["end"][rows] - calls["begin"][rows]).astype(np.float64)
    if rates.staging is not None:
        before = np.minimum(before, rates.staging * size)
    left: Floats = COPY_NS + np.maximum(size * per_byte - np.where(staged, before, 0.0), 0.0)
    return left


def paced(evidence: Evidence, gpu: GpuTime, queue: Queue, rates: CopyRates) -> Queue:
    """Return the queue with other rates of copies."""
    calls, known = evidence.calls, np.maximum(queue.row, 0)
    at = np.flatnonzero(~queue.kernel & (queue.row >= 0))
    at = at[(evidence.group_of(known[at]) == Group.COPY) & np.isin(calls["direction"][known[at]], (H2D, D2H))]
    rows = known[at]
    pinned = gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    fixed = queue.fixed.copy()
    fixed[at] = _over_link(evidence, rows, pinned, queue.staged[at], rates)
    return replace(queue, fixed=fixed, rates=rates)


def _kinds(evidence: Evidence, row: Ints, runs: Mask) -> Ints:
    """Number of each kernel, by process, function and handle: exact, never two kernels as one."""
    calls = evidence.calls
    at = np.flatnonzero(runs & (row >= 0))
    kind = np.full(len(row), -1, np.int64)
    rows = row[at]
    kind[at] = group_ids(calls["aux"][rows], calls["pid"][rows], calls["op"][rows])
    return kind
