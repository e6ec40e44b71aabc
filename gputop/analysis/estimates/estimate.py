"""Idle time of a GPU that no call proves: an estimate with its sources and its error.

Two sources show how long a GPU works: NVML (proofs/nvml_witness.py), and the program's own waits, from which
the durations of its kernels are learned (durations.py). The queue of its operations (proofs/work_queue.py),
run with these durations, shows *when* it was idle: those intervals become gaps like the proved ones and go
through the same chain. None of it is ever called proved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from gputop.analysis.estimates.durations import (
    LEAST_ERROR,
    WAITS,
    Learned,
    Model,
    as_waited,
    busy_stretches,
    copy_rates_of,
    learn,
    readbacks,
)
from gputop.analysis.evidence.columns import WHOLE, Effort, Floats, Ints, Mask, covered, group_ids, length
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import DeviceTime, Gaps, GpuTime
from gputop.analysis.proofs.nvml_witness import Witness, misfit, witness
from gputop.analysis.proofs.streams import PER_THREAD
from gputop.analysis.proofs.work_queue import Queue, paced, queue_of
from gputop.documents.fields import Mark
from gputop.engine.threads.occupancy import expand

SMALL_NS = 5_000  # shorter gaps are summed up, not followed
NEAR = 0.03  # of the span: with an error of NVML below it, a source with a larger error adds nothing
VAGUE = 0.25  # of the span: a source with a larger error is not used
AGREE = 0.05  # of the span: sources that differ by more than this and their errors disagree
WORTH_NS = 1_000_000  # less time is not estimated


@dataclass(frozen=True, slots=True)
class Small:
    """Gaps too short to be followed one by one."""

    begin: Ints
    end: Ints
    refilled_by: Ints
    thread: Ints


@dataclass(frozen=True, slots=True)
class Estimate:
    """One GPU's estimated idle time, within the part of its span without proofs."""

    device: int  # its number
    idle_ns: int  # estimated idle time, without the proved one
    error_ns: int  # its error
    source: str  # ``nvml``, ``learned`` or ``both``
    agrees: bool  # False where the two sources disagree: then nothing is more than a hint
    busy_share: float | None  # the share of the span with a kernel running, by NVML; None where unknown
    small: Small  # gaps that are too short to follow
    gaps: Gaps  # the others
    ended: tuple[Ints, Ints]  # idle time after its last work, while its processes still ran: no loss
    # queue, duration_ns: its operations, and the presumable duration of each
    queue: Queue
    duration_ns: Floats
    learned: Learned | None = None  # durations learned from the program's waits; None where they show none

    @property
    def ended_ns(self) -> int:
        """Length of the wind-down, which is no part of the idle time."""
        return length(*self.ended)


def estimates(evidence: Evidence, gpu: GpuTime, effort: Effort = WHOLE) -> list[Estimate]:
    """Return an estimate of each GPU whose unknown time can be estimated."""
    found = [_of_device(evidence, gpu, span.device, effort) for span in gpu.spans]
    return [one for one in found if one is not None]


def _of_device(evidence: Evidence, gpu: GpuTime, device: int, effort: Effort) -> Estimate | None:
    span = next(span for span in gpu.spans if span.device == device)
    unknown = gpu.unknown[device]
    open_ns = length(*unknown)
    if open_ns < WORTH_NS:
        return None
    seen = witness(evidence, gpu.devices.index[device], span.begin, span.end)
    most = None if seen is not None else effort.operations
    queue = queue_of(evidence, gpu, device, most)
    if not len(queue):
        return None
    learned = learn(gpu, device, queue, effort.operations)
    if seen is None:
        if learned is None:  # no source: the whole queue is not needed
            return None
        if len(queue) >= effort.operations:
            queue = queue_of(evidence, gpu, device)
            learned = learn(gpu, device, queue, effort.operations)
    rates = copy_rates_of(evidence, gpu, span, queue, seen)
    if rates is not queue.rates:
        queue = paced(evidence, gpu, queue, rates)
    back = readbacks(evidence, gpu, queue)
    # learned durations cannot move work before its earliest begin
    ready = np.maximum(queue.ready, gpu.work.earliest(device)[: len(queue)])
    model = Model(replace(queue, ready=ready), unknown, gpu.pending(device), learned, effort.operations, back)
    by_nvml = None
    if seen is not None:
        by_nvml = _by_nvml(evidence, gpu, span, seen, model, open_ns)
    combined = _combined(by_nvml, model.learned_idle(), span.span_ns)
    if combined is None:
        return None
    idle_ns, error_ns, source, agrees = combined
    # where NVML contradicts, its own error is the tolerance
    near = error_ns if agrees or by_nvml is None else int(by_nvml[1])
    duration = model.known() if source == "learned" else model.fitted(idle_ns, near)
    begin, end = model.pieces(duration)
    over = begin >= int(queue.ready.max())
    over &= (end - begin)[over].sum() >= WORTH_NS
    ended, begin, end = (begin[over], end[over]), begin[~over], end[~over]
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
        ended,
        replace(queue),  # without what it keeps to be run many times
        as_waited(gpu, device, queue, duration),
        learned,
    )


def _by_nvml(
    evidence: Evidence, gpu: GpuTime, span: DeviceTime, seen: Witness, model: Model, open_ns: int
) -> tuple[float, float]:
    """(idle time within the unknown, its error) by NVML.

    First by the mean of its readings. Then the model fitted to the mean is compared with each reading, which
    shows NVML's window and the model's error.
    """
    mine = (gpu.gaps.device == span.device) & ~gpu.gaps.estimated
    gone = int((gpu.gaps.end - gpu.gaps.begin)[mine].sum())
    # NVML counts kernels; time without a kernel or a copy was idle. Start-up counts as idle
    idle = span.span_ns * (1 - seen.busy) - gone - span.outside_ns - model.copies_ns
    # nor does it show the time of copies
    idle, error = min(max(idle, 0.0), open_ns), seen.error * span.span_ns + model.copies_error_ns
    duration = model.fitted(int(idle), 0)
    work = model.work(duration)
    off = misfit(evidence, gpu.devices.index[span.device], span.begin, span.end, work) if work else None
    fitted = off[1] * span.span_ns + model.copies_error_ns if off is not None else error
    if off is None or fitted >= error:
        return idle, error
    idle = model.idle(duration) - off[0] * span.span_ns
    return min(max(idle, 0.0), open_ns), fitted


def _combined(
    by_nvml: tuple[float, float] | None, by_work: tuple[float, float] | None, span_ns: int
) -> tuple[int, int, str, bool] | None:
    """(idle time within the unknown, its error, the source, True if the sources agree)."""
    if by_nvml is None:
        if by_work is None or by_work[1] > VAGUE * span_ns:
            return None
        return int(by_work[0]), int(by_work[1]), "learned", True
    if by_work is None or by_nvml[1] <= NEAR * span_ns < by_work[1]:
        return int(by_nvml[0]), int(by_nvml[1]), "nvml", True
    apart = abs(by_nvml[0] - by_work[0])
    agrees = apart <= by_nvml[1] + by_work[1] + AGREE * span_ns
    if not agrees:
        return int(by_nvml[0]), int(max(apart, by_nvml[1])), "nvml", False
    # weighted by their errors
    trust = [1 / max(error, 1.0) ** 2 for _idle, error in (by_nvml, by_work)]
    idle = (trust[0] * by_nvml[0] + trust[1] * by_work[0]) / sum(trust)
    return int(idle), int(max(min(by_nvml[1], by_work[1]), apart / 2)), "both", True


def _gaps(queue: Queue, device: int, begin: Ints, end: Ints, most: int) -> tuple[Small, Gaps]:
    """(short gaps, the others), each of the thread that enqueued the next operation."""
    order = np.argsort(queue.ready, kind="stable")
    place = np.searchsorted(queue.ready[order], begin, side="right")
    known = place < len(order)
    place, begin, end = place[known], begin[known], end[known]
    refilled_by, drained_by = order[place], order[np.maximum(place - 1, 0)]
    length_ns = end - begin
    long = length_ns >= SMALL_NS
    if np.count_nonzero(long) > most:  # only the longest
        long &= length_ns >= np.partition(length_ns, len(length_ns) - most)[len(length_ns) - most]
    row, thread = queue.row[refilled_by], queue.thread[refilled_by]
    small = Small(begin[~long], end[~long], row[~long], thread[~long])
    every = np.ones(int(np.count_nonzero(long)), np.bool_)
    return small, Gaps(
        begin=begin[long],
        end=end[long],
        device=np.full(len(every), device, np.int64),
        drained_by=queue.row[drained_by[long]],
        refilled_by=row[long],
        thread=thread[long],
        proved=~every,
        estimated=every,
    )


# GPU time of kernels, estimated from waits that held different mixtures of them.

MOST_KERNELS = 400  # kernels and shapes: so many unknowns cost a tenth of a second
SPARE = 8  # least number of waits beyond that of the unknowns
WAITED = 0.5  # of a busy stretch, in certain waits of the program
WORST = 0.5  # of a time: with a larger error it is unknown
_LEAST_MIXTURE_NS = 20_000.0  # shorter waits weigh no more: their ends are not known more exactly
_ALIKE = 1e-9  # of the largest eigenvalue: smaller ones count as 0
_OUTSIDE = 1e-6  # of its length: the part of a combination that the equations may not determine


@dataclass(frozen=True, slots=True)
class GpuTimeOf:
    """GPU time, estimated by regression, and its error, ns."""

    ns: Annotated[float, Mark("estimate", schema=int, make=round)]
    error_ns: Annotated[float, Mark("error", schema=int, make=round)]


@dataclass(frozen=True, slots=True)
class Mixtures:
    """The equations of one GPU's waits, solved."""

    rows: Ints  # calls that launch kernels there, ascending; ``unknown``: number of each one's unknown
    unknown: Ints
    solution: Floats  # of each unknown, ns
    basis: Floats  # columns that span the determined combinations
    lever: Floats  # for each equation and unknown the effect of the equation's error
    residual: Floats  # of each equation, as of HC3
    sure: float  # the share of the equations' time in certain waits of the program

    def among(self, rows: Ints) -> Mask:
        """True for calls that launch kernels on this GPU, outside of graphs."""
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        found: Mask = self.rows[place] == rows
        return found

    def time(self, rows: Ints) -> GpuTimeOf | None:
        """Return the GPU time of some launches, all on this GPU; None where unknown."""
        counts = np.bincount(self.unknown[np.searchsorted(self.rows, rows)], minlength=len(self.solution))
        wanted = counts.astype(np.float64)
        length = float(np.linalg.norm(wanted))
        if float(np.linalg.norm(wanted - self.basis @ (self.basis.T @ wanted))) > _OUTSIDE * length:
            return None
        ns = float(wanted @ self.solution)
        moved = (self.lever @ wanted) * self.residual
        error = 2 * float(np.sqrt(moved @ moved)) + (LEAST_ERROR + 1 - self.sure) * ns
        return GpuTimeOf(ns, error) if 0 < error <= WORST * ns else None


def mixtures(
    evidence: Evidence,
    gpu: GpuTime,
    device: int,
    operations: int,
    known: tuple[Queue, Learned | None] | None = None,
) -> Mixtures | None:
    """Return the equations of one GPU; None with too few waits, or kernels side by side.

    Args:
        evidence: The recorded evidence.
        gpu: The proofs.
        device: The GPU.
        operations: Number of operations of its queue that are used.
        known: Its queue and the durations learned from it, where they exist.
    """
    queue, learned = known if known is not None else (queue_of(evidence, gpu, device), None)
    if known is None:
        learned = learn(gpu, device, queue, operations)
    launched = np.flatnonzero(queue.kernel & (queue.row >= 0))
    if learned is None or not len(launched):
        return None
    calls, rows = evidence.calls, queue.row[launched]
    own = np.where(calls["stream"][rows] == PER_THREAD, calls["tid"][rows], 0)
    if group_ids(calls["pid"][rows], calls["stream"][rows], own).any():  # two streams share the GPU's time
        return None
    number = group_ids(*(calls[name][rows] for name in ("pid", "op", "aux", "shape")))
    unknowns = int(number.max()) + 1
    code = np.full(len(queue), unknowns)  # of kernels that no call names
    code[launched] = number
    found = _equations(gpu, device, queue, learned, operations, code, unknowns + 1)
    if found is None:
        return None
    order = np.argsort(rows, kind="stable")
    return _solved(*found, rows[order], number[order])


def _equations(
    gpu: GpuTime, device: int, queue: Queue, learned: Learned, operations: int, code: Ints, unknowns: int
) -> tuple[Floats, Floats, float] | None:
    """(count of each unknown in each equation, the sums in ns, the share in certain waits)."""
    first, last, at = busy_stretches(gpu, device, queue, learned, operations)
    spent = at - queue.ready[first]
    waited = covered(gpu.pending(device), queue.ready[first], at)
    # a stretch that begins within a part of the queue does so by the learned durations alone: its mixture
    # would only reproduce these
    whole = (first == 0) | (queue.group[first] != queue.group[np.maximum(first - 1, 0)])
    sure = whole & (waited >= WAITED * spent)
    first, last, at, spent, waited = (column[sure] for column in (first, last, at, spent, waited))
    if len(first) < WAITS or unknowns > MOST_KERNELS:
        return None
    owner, row = expand(first, last + 1)
    kernel = queue.kernel[row]
    counts = np.zeros((len(first), unknowns))
    np.add.at(counts, (owner[kernel], code[row[kernel]]), 1.0)
    moved = np.bincount(owner, weights=np.where(kernel, 0.0, queue.fixed[row]), minlength=len(first))
    return counts, np.maximum(spent - moved, 1.0), float(waited.sum() / max(spent.sum(), 1))


def _solved(counts: Floats, sums: Floats, sure: float, rows: Ints, unknown: Ints) -> Mixtures | None:
    """Least squares of relative errors, by the eigenvectors of the normal equations."""
    weight = 1 / np.maximum(sums, _LEAST_MIXTURE_NS)
    weighed, target = counts * weight[:, None], sums * weight
    size = np.linalg.norm(weighed, axis=0)
    size[size == 0] = 1.0
    weighed /= size
    values, vectors = np.linalg.eigh(weighed.T @ weighed)
    held = values > _ALIKE * values[-1]
    rank = int(np.count_nonzero(held))
    if len(sums) < rank + SPARE:
        return None
    vectors = vectors[:, held]
    inverse = vectors / values[held] @ vectors.T
    lever = weighed @ inverse  # of the scaled unknowns
    leverage = np.minimum(np.einsum("ij,ij->i", lever, weighed), 1 - 1e-6)
    solution = inverse @ (weighed.T @ target)
    residual = (target - weighed @ solution) / (1 - leverage)
    basis, _triangle = np.linalg.qr(vectors * size[:, None])
    return Mixtures(rows, unknown, solution / size, basis, lever / size, residual, sure)
