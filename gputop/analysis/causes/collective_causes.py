"""C23 and C47: ranks wait for each other in collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.analysis.causes.cause import LEAST_NS, AboutCalls, Cause, assessed, within
from gputop.analysis.causes.launch_sites import by_handle, kernel_name, launches_among
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.roles import FEWEST, Meetings, meetings
from gputop.analysis.estimates.whatif import MARGIN
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.columns import Floats, Ints, intersect, length, subtract, union
from gputop.analysis.proofs.nvml_witness import GPM_KEY, readings
from gputop.engine.calls.frameworks import Framework
from gputop.format import format_bytes, format_ns, format_percent
from probes.samples import listed_gpus

LEAST_SHARE = 0.02
USUAL = 0.75  # a rank that is last this often is the straggler
NEAR = 0.9  # of the time by the hosts: an estimate that is nearer means the same


def stragglers(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding per job of several ranks on this machine."""
    calls = scene.evidence.calls
    met = meetings(scene)
    if met is None or met.rows.shape[1] < FEWEST:
        return []
    ranks = list(met.rows)
    arrived = calls["begin"][met.rows]
    skew = arrived.max(axis=0) - arrived.min(axis=0)
    last = np.bincount(arrived.argmax(axis=0), minlength=len(ranks))
    late = int(np.argmax(last))
    # several collectives of a step are late by the same time: it counts once
    window = int(arrived.min()), int(arrived.max())
    uses = [_use(scene, rank, *window) for rank in ranks]
    last_of_all = arrived.max(axis=0)
    waits = [
        waited(length(own, last_of_all), use, uses[late]) for own, use in zip(arrived, uses, strict=True)
    ]
    total, sure = max(waits)
    if total < max(LEAST_SHARE * span_ns, LEAST_NS) or last[late] < USUAL * len(skew):
        return []
    return [_finding(scene, met, late, skew, total, int(last[late]), sure=sure)]


@dataclass(frozen=True, slots=True)
class Use:
    """The presumed use of a rank's GPU, ns: work that is no collective, and idle time."""

    device: int
    work: int
    idle: int


def waited(apart: int, own: Use | None, late: Use | None) -> tuple[int, bool]:
    """Return (ns, whether that is sure) for which a rank's GPU did nothing but wait for the last rank.

    A host may be far ahead of its GPU, which then still works when the last rank arrives. But all ranks do
    the same work, unless more is known: as much longer as the last one's GPU was idle, this one's waited.

    Args:
        apart: The time between its arrivals at collectives and the last rank's, by their hosts' calls.
        own, late: The use of its GPU and of the last rank's; None where unknown.
    """
    if own is None or late is None or own.device == late.device:
        return apart, True
    most = late.idle - own.idle + max(late.work - own.work, 0)
    return (apart, True) if most >= NEAR * apart else (max(most, 0), False)


def _use(scene: AttributionContext, rows: Ints, low: int, high: int) -> Use | None:
    device = _device(scene, rows)
    estimate = next((one for one in scene.analysis.estimates if one.device == device), None)
    if estimate is None:
        return None
    queue, window = estimate.queue, (np.array([low]), np.array([high]))
    end = np.minimum(queue.ends(estimate.duration_ns), queue.limit)
    begin = end - queue.real(estimate.duration_ns).astype(np.int64)
    other = (queue.row >= 0) & (scene.evidence.group_of(np.maximum(queue.row, 0)) != Group.COLLECTIVE)
    mine = scene.gaps.device == device
    idle = union(
        np.append(scene.gaps.begin[mine], estimate.small.begin),
        np.append(scene.gaps.end[mine], estimate.small.end),
    )
    work = subtract(union(begin[other], end[other]), idle)
    return Use(device, length(*intersect(work, window)), length(*intersect(idle, window)))


def _device(scene: AttributionContext, rows: Ints) -> int:
    """Return the GPU that a rank's collectives are for; -1: not known."""
    streams = scene.analysis.gpu.streams
    found = np.flatnonzero(np.isin(streams.enqueue_row, rows))
    if not len(found):
        pid = int(scene.evidence.calls["pid"][rows[0]]) if len(rows) else -1
        of_pid = np.unique(streams.device[streams.pid == pid])
        return int(of_pid[0]) if len(of_pid) == 1 else -1
    return int(streams.device[streams.enqueue_stream[found[0]]])


def _level(scene: AttributionContext, met: Meetings, skew: Ints) -> Level:
    """Return proved where all calls of all ranks were seen; a hint where calls cannot be matched.

    It is a hint, too, where hosts are apart by more than a step: one is ahead of its GPU by an unknown time.
    """
    evidence = scene.evidence
    steps = scene.steps_of(int(evidence.calls["pid"][met.rows[0, 0]]))
    if not met.matched or (steps is not None and np.median(skew) > steps.usual_ns):
        return Level.HINT
    pids = set(evidence.calls["pid"][met.rows[:, 0]].tolist())
    whole = pids <= evidence.complete and not evidence.lost_events
    return Level.PROVED if whole else Level.STRONG


def _finding(
    scene: AttributionContext, met: Meetings, late: int, skew: Ints, total: int, times: int, *, sure: bool
) -> Finding:
    ranks = met.rows
    about = AboutCalls.of(scene, ranks[late], skew)
    return assessed(
        scene,
        STRAGGLER,
        about,
        level=_level(scene, met, skew) if sure else Level.STRONG,
        kind="waste",
        loss=Range(total, total),
        chain=(
            Link("gpu", 0, 0, "the other ranks' GPUs wait inside the collective", total, len(skew)),
            about.link("cuda", f"{about.where}: this rank arrived last {times} of {len(skew)} times", total),
        ),
        evidence=(
            f"{len(skew)} collectives of {len(ranks)} ranks, with a median arrival skew of "
            f"{format_ns(float(np.median(skew)))}",
        ),
        advice=(
            "balance the ranks (same batch size and input cost; look at this rank's own findings), or "
            "overlap the collective with work that does not need it",
        ),
        gain_ns=total if sure else int(total * (1 + MARGIN)),
    )


STRAGGLER = Cause(
    "C23",
    "straggler: one rank is late to the collectives",
    assess=stragglers,
    late_rank=True,
    kind=DiagnosisKind.COMMUNICATION,
)

# C47: a GPU is at work, but in collectives, for which its kernels wait.

LEAST_COMMUNICATION = 0.2  # of the time, for the middle of the estimate
FEWEST_COLLECTIVES, READINGS = 8, 4  # collectives, and readings of GPM
BUSY = 50.0  # percent of the time in which something ran, for a reading to count
SMS = 0.18  # of the multiprocessors that NCCL's channels use at once
_SM_KEY = "sm_active_percent"
_OPTIMIZERS = ("multi_tensor_apply_kernel", "adam", "sgd", "lamb", "lion", "adagrad", "rmsprop")


@dataclass(frozen=True, slots=True)
class Exposed:
    """Time for which nothing but collectives ran on one GPU, ns: its bounds, within a span.

    ``active`` is the mean share of active SMs by GPM, percent.
    """

    least: float
    most: float
    active: float
    span_ns: int

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.least + self.most) / 2


def communication(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding for the job whose GPUs spend most time in collectives alone."""
    evidence = scene.evidence
    calls = evidence.calls
    rows = np.flatnonzero((evidence.group(calls) == Group.COLLECTIVE) & (calls["ret"] == 0))
    rows = within(scene, rows[(evidence.role(calls)[rows] != Role.BRACKET)])
    if len(rows) < FEWEST_COLLECTIVES:
        return []
    found = {}
    for pid in np.unique(calls["pid"][rows]).tolist():
        own = rows[calls["pid"][rows] == pid]
        exposed = _exposed(scene, int(pid), own)
        if exposed is not None:
            found[int(pid)] = own, exposed
    if not found:
        return []
    # a late rank's GPU keeps the others waiting inside a collective: that is reported at the late one
    sure = (one for one in stragglers(scene, span_ns) if one.level is not Level.HINT)
    late = sum(one.loss.upper for one in sure)
    middle = float(np.mean([one.middle for _own, one in found.values()])) - late
    pid, (own, exposed) = max(found.items(), key=lambda item: item[1][1].middle)
    if middle < LEAST_COMMUNICATION * exposed.span_ns:
        return []
    half = float(np.mean([one.most - one.least for _own, one in found.values()])) / 2
    return [_communication_finding(scene, pid, own, exposed, middle, half, len(found))]


def _exposed(scene: AttributionContext, pid: int, rows: Ints) -> Exposed | None:
    """Return it by GPM, between a process's first collective and its last; None where GPM has too little."""
    gpu = scene.analysis.gpu
    devices = np.unique(gpu.streams.device[gpu.streams.pid == pid])
    if len(devices) != 1:
        return None
    index = gpu.devices.index[int(devices[0])]
    begin, end = int(scene.evidence.calls["begin"][rows].min()), int(scene.evidence.calls["end"][rows].max())
    steps = scene.steps_of(pid)
    if steps is not None and steps.count:
        begin, end = max(begin, int(steps.begin[steps.warm])), min(end, steps.end)
    active = dict(zip(*(column.tolist() for column in readings(scene.evidence, index, _SM_KEY)), strict=True))
    at, ran = readings(scene.evidence, index, GPM_KEY)
    if not len(at):
        return None
    chosen = [
        (share, active[time])
        for before, time, share in zip(np.append(0, at[:-1]).tolist(), at.tolist(), ran.tolist(), strict=True)
        if begin <= before and time <= end and share >= BUSY and time in active
    ]
    full = _kernels_active(scene, pid, index)
    if len(chosen) < READINGS or full is None:
        return None
    least, most = (
        float(np.mean([_alone(share, sm, one) for share, sm in chosen])) / 100 * (end - begin) for one in full
    )
    sms = float(np.mean([sm for _share, sm in chosen]))
    return Exposed(least, most, sms, end - begin)


def _alone(ran: float, active: float, full: float) -> float:
    """Return the percent of the time with collectives alone, if kernels keep ``full`` of the SMs active."""
    mean = active / ran
    return ran * min(max((full - mean) / max(full - SMS, 0.05), 0.0), 1.0)


def _kernels_active(scene: AttributionContext, pid: int, index: int) -> tuple[float, float] | None:
    """Return (least, most) share of the SMs that a process's kernels keep active, by grids; None: unknown.

    A grid of fewer blocks than SMs leaves the rest idle. For the least all kernels count the same, for the
    most each by how often its blocks fill the GPU.
    """
    evidence, count = scene.evidence, _multiprocessors(scene, index)
    rows = launches_among(evidence, np.flatnonzero(evidence.calls["pid"] == pid))
    numbers, times = np.unique(evidence.calls["shape"][rows], return_counts=True)
    shapes = map(evidence.facts.shapes.get, numbers.tolist())
    blocks = np.array([0 if shape is None else shape.blocks for shape in shapes], np.float64)
    known = blocks > 0
    if not count or times[known].sum() < 0.5 * times.sum() or not known.any():
        return None
    blocks, weights = blocks[known] / count, times[known].astype(np.float64)
    fill: Floats = np.minimum(blocks, 1.0)
    by_work = weights * np.maximum(blocks, 1.0)
    return float(np.average(fill, weights=weights)), float(np.average(fill, weights=by_work))


def _multiprocessors(scene: AttributionContext, index: int) -> int:
    for sample in scene.evidence.gpus:
        for row in listed_gpus(sample):
            if row.get("index") == index and row.get("multiprocessors"):
                return int(row["multiprocessors"] or 0)
    return 0


def rounds_a_step(scene: AttributionContext, pid: int, rows: Ints) -> float:
    """Return how often gradients are reduced per step of the optimizer; 1 where that is not known.

    A round of reductions ends where another thread launches: the main thread a forward pass, autograd's a
    backward pass.
    """
    evidence = scene.evidence
    calls, names = evidence.calls, np.array(evidence.apis.names)
    rows = rows[np.char.find(names[calls["op"][rows]], "Reduce") >= 0]
    rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
    launches = launches_among(evidence, np.flatnonzero(calls["pid"] == pid))
    if len(rows) < FEWEST_COLLECTIVES or not len(launches):
        return 1.0
    others = np.sort(calls["begin"][launches[calls["row"][launches] != calls["row"][rows[0]]]])
    between = np.diff(np.searchsorted(others, calls["begin"][rows])) > 0
    rounds = np.append(0, np.cumsum(between))
    named = [
        own
        for handle, own in by_handle(evidence, launches)
        if any(part in kernel_name(evidence, pid, handle)[0].lower() for part in _OPTIMIZERS)
    ]
    if not named:
        return 1.0
    last = np.searchsorted(calls["begin"][rows], calls["begin"][np.concatenate(named)]) - 1
    steps = len(np.unique(rounds[last[last >= 0]]))
    return max((int(rounds[-1]) + 1) / max(steps, 1), 1.0)


def _communication_finding(
    scene: AttributionContext, pid: int, rows: Ints, exposed: Exposed, middle: float, half: float, gpus: int
) -> Finding:
    calls = scene.evidence.calls
    about = AboutCalls.of(scene, rows)
    again = rounds_a_step(scene, pid, rows)
    repeated = again >= 1.5
    moved = int(calls["bytes"][rows].sum())
    share = format_percent(100 * middle / exposed.span_ns)
    most = int(min(middle + half, exposed.span_ns))
    advice = (
        f"gradients are reduced {again:.0f} times for each step of the optimizer: in all but the last "
        "backward() of a step use model.no_sync()",
    )
    if Framework.TORCH in scene.evidence.frameworks(pid):
        overlap = (
            "let collectives run beside backward(): larger buckets (bucket_cap_mb), gradients as bfloat16 "
            "(a communication hook), fewer and larger collectives, or gradient accumulation with no_sync()",
        )
    else:
        repeated = False
        overlap = (
            "let collectives run beside kernels, in a stream of their own; fewer and larger ones, of smaller "
            "data types",
        )
    among = f" together, on {gpus} GPUs" if gpus > 1 else " together"
    return assessed(
        scene,
        COMMUNICATION,
        about,
        level=Level.STRONG,
        kind="waste",
        loss=Range(0, most, int(middle)),
        chain=(
            about.link("gpu", "nothing but collectives runs on the GPU", int(middle)),
            about.link("cuda", f"enqueued by {about.where}", int(middle)),
        ),
        evidence=(
            f"{share} % of the loop's time is in collectives that no kernel hides: SMs active "
            f"{exposed.active:.0f} % (GPM), where kernels of these grids keep more active and NCCL about "
            f"{100 * SMS:.0f} %",
            f"{len(rows)} collectives of {format_bytes(moved)}{among}",
            *((f"each gradient is reduced {again:.1f} times a step of the optimizer",) if repeated else ()),
        ),
        advice=(*advice, *overlap) if repeated else overlap,
        gain_ns=int(min(most * (1 - 1 / again) * (1 + MARGIN), most)) if repeated else most,
    )


COMMUNICATION = Cause(
    "C47",
    "GPUs wait in collectives",
    assess=communication,
    kind=DiagnosisKind.COMMUNICATION,
)
