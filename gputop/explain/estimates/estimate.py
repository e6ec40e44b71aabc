"""How long a GPU was idle although no call proves it: an estimate with its sources and its error.

Two sources say how long the work of a GPU takes: NVML, which saw it (witness.py), and the program's own
waits, from which the work of its kernels can be learned (learned.py). The queue of what the GPU was given
(workqueue.py), run with these durations, says *when* it was idle: those intervals become gaps like the
proved ones, and go down the same chain. Nothing of it is ever called proved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gputop.explain.estimates.copytimes import copy_rates_of
from gputop.explain.estimates.learned import Learned, as_waited, learn
from gputop.explain.estimates.model import Model
from gputop.explain.estimates.readback import readbacks
from gputop.explain.evidence.effort import WHOLE, Effort
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Floats, Ints, Mask, length
from gputop.explain.proofs.gaps import DeviceTime, Gaps, GpuTime
from gputop.explain.proofs.witness import Witness, misfit, witness
from gputop.explain.proofs.workqueue import Queue, paced, queue_of

SMALL_NS = 5_000  # shorter gaps are summed up, not followed
NEAR = 0.03  # of the span: NVML is as sure as this where it says enough; what is less sure adds nothing to it
VAGUE = 0.25  # of the span: who may be off by more knows nothing of it
AGREE = 0.05  # of the span: sources that are apart by more than this beside their errors disagree
WORTH_NS = 1_000_000  # less time than this is not worth an estimate


@dataclass(frozen=True, slots=True)
class Small:
    """Gaps that are too short to be followed one by one, as columns."""

    begin: Ints
    end: Ints
    refilled_by: Ints
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
        ended: When it had done all that it was ever given, and its processes still ran: no loss of anything.
        queue, duration_ns: What the GPU was given, and how long each of it took as far as one can tell.
        learned: What the program's waits taught of that queue; None where they taught nothing.
    """

    device: int
    idle_ns: int
    error_ns: int
    source: str
    agrees: bool
    busy_share: float | None
    small: Small
    gaps: Gaps
    ended: tuple[Ints, Ints]
    queue: Queue
    duration_ns: Floats
    learned: Learned | None = None

    @property
    def ended_ns(self) -> int:
        """How long the wind-down took, beside the idle time."""
        return length(*self.ended)


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
    most = None if seen is not None else effort.operations
    queue = queue_of(evidence, gpu, device, most)
    if not len(queue):
        return None
    learned = learn(gpu, device, queue, effort.operations)
    if seen is None:
        if learned is None:  # where nothing can be learned either, the whole queue is not worth its making
            return None
        if len(queue) >= effort.operations:
            queue = queue_of(evidence, gpu, device)
            learned = learn(gpu, device, queue, effort.operations)
    rates = copy_rates_of(evidence, gpu, span, queue, seen)
    if rates is not queue.rates:
        queue = paced(evidence, gpu, queue, rates)
    back = readbacks(evidence, gpu, queue)
    # what was learned says when work ends that the program did not wait for, no more
    ready = np.maximum(queue.ready, gpu.work.earliest(device)[: len(queue)])
    model = Model(replace(queue, ready=ready), unknown, gpu.pending(device), learned, effort.operations, back)
    by_nvml = None
    if seen is not None:
        by_nvml = _by_nvml(evidence, gpu, span, seen, model, open_ns)
    told = _told(by_nvml, model.learned_idle(), span.span_ns)
    if told is None:
        return None
    idle_ns, error_ns, source, agrees = told
    # what NVML contradicts is not near enough, however far the two are apart
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
        queue,
        as_waited(gpu, device, queue, duration),
        learned,
    )


def _by_nvml(
    evidence: Evidence, gpu: GpuTime, span: DeviceTime, seen: Witness, model: Model, open_ns: int
) -> tuple[float, float]:
    """(idle time within the unknown, its error) as NVML saw it.

    The mean of what it said comes first. Then the model that fits the mean is held against each reading: over
    which window NVML looked shows there, and by how much the model is off on the whole.
    """
    mine = (gpu.gaps.device == span.device) & ~gpu.gaps.estimated
    gone = int((gpu.gaps.end - gpu.gaps.begin)[mine].sum())
    # NVML counts kernels; what was neither a kernel nor a copy was idle. Start-up is taken for idle
    idle = span.span_ns * (1 - seen.busy) - gone - span.outside_ns - model.copies_ns
    # nor does it say how long a copy takes
    idle, error = min(max(idle, 0.0), open_ns), seen.error * span.span_ns + model.copies_error_ns
    duration = model.fitted(int(idle), 0)
    work = model.work(duration)
    off = misfit(evidence, gpu.devices.index[span.device], span.begin, span.end, work) if work else None
    fitted = off[1] * span.span_ns + model.copies_error_ns if off is not None else error
    if off is None or fitted >= error:
        return idle, error
    idle = model.idle(duration) - off[0] * span.span_ns
    return min(max(idle, 0.0), open_ns), fitted


def _told(
    by_nvml: tuple[float, float] | None, by_work: tuple[float, float] | None, span_ns: int
) -> tuple[int, int, str, bool] | None:
    """(idle time within the unknown, its error, who says so, whether all who say something agree)."""
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
    # each counts by how sure it is
    trust = [1 / max(error, 1.0) ** 2 for _idle, error in (by_nvml, by_work)]
    idle = (trust[0] * by_nvml[0] + trust[1] * by_work[0]) / sum(trust)
    return int(idle), int(max(min(by_nvml[1], by_work[1]), apart / 2)), "both", True


def _gaps(queue: Queue, device: int, begin: Ints, end: Ints, most: int) -> tuple[Small, Gaps]:
    """(short ones, the others): each belongs to the thread that gave the next operation."""
    order = np.argsort(queue.ready, kind="stable")
    place = np.searchsorted(queue.ready[order], begin, side="right")
    known = place < len(order)
    place, begin, end = place[known], begin[known], end[known]
    refilled_by, drained_by = order[place], order[np.maximum(place - 1, 0)]
    long = _followed(end - begin, most)
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


def _followed(length_ns: Ints, most: int) -> Mask:
    """The longest gaps, as many as are followed one by one."""
    long: Mask = length_ns >= SMALL_NS
    if np.count_nonzero(long) > most:
        long &= length_ns >= np.partition(length_ns, len(length_ns) - most)[len(length_ns) - most]
    return long
