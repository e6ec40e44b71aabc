"""C47: a GPU that is at work, but in collectives: what it computes waits for them.

A collective keeps a few multiprocessors busy while it moves data, kernels that compute keep nearly all. GPM
counts how many were active, so it tells for how long nothing but collectives ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.engine.frameworks import Framework
from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import assessed
from gputop.explain.causes.c23_straggler import stragglers
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.chaintext import placed, usual_api, usual_line
from gputop.explain.causes.launched import by_handle, kernel_name, launches_among
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.estimates.whatif import MARGIN
from gputop.explain.evidence.apiclass import Group, Role
from gputop.explain.evidence.ranges import Floats, Ints
from gputop.explain.proofs.witness import GPM_KEY, readings
from gputop.format import format_bytes, format_percent
from probes.samples import listed_gpus

LEAST_SHARE = 0.2  # of the time, for the middle of what is estimated
FEWEST, READINGS = 8, 4  # collectives, and readings of GPM
BUSY = 50.0  # percent of the time in which something ran, for a reading to count
SMS = 0.18  # of the multiprocessors that NCCL's channels use at once
_SM_KEY = "sm_active_percent"
_OPTIMIZERS = ("multi_tensor_apply_kernel", "adam", "sgd", "lamb", "lion", "adagrad", "rmsprop")


@dataclass(frozen=True, slots=True)
class Exposed:
    """For how long nothing but collectives ran on one GPU, ns: bounds, what GPM saw, what ran at all."""

    least: float
    most: float
    active: float
    span_ns: int

    @property
    def middle(self) -> float:
        """The estimate."""
        return (self.least + self.most) / 2


def communication(scene: Scene, span_ns: int) -> list[Finding]:
    """One finding for the job whose GPUs spend most time in collectives alone."""
    evidence = scene.evidence
    calls = evidence.calls
    low, high = scene.analysis.gpu.stretch
    rows = np.flatnonzero((evidence.group(calls) == Group.COLLECTIVE) & (calls["ret"] == 0))
    rows = rows[(evidence.role(calls)[rows] != Role.BRACKET)]
    rows = rows[(calls["begin"][rows] >= low) & (calls["end"][rows] <= high)]
    if len(rows) < FEWEST:
        return []
    found = {}
    for pid in np.unique(calls["pid"][rows]).tolist():
        own = rows[calls["pid"][rows] == pid]
        exposed = _exposed(scene, int(pid), own)
        if exposed is not None:
            found[int(pid)] = own, exposed
    if not found:
        return []
    # a late rank's GPU keeps the others waiting inside a collective: that is told of the late one
    sure = (one for one in stragglers(scene, span_ns) if one.level is not Level.HINT)
    late = sum(one.loss.upper for one in sure)
    middle = float(np.mean([one.middle for _own, one in found.values()])) - late
    pid, (own, exposed) = max(found.items(), key=lambda item: item[1][1].middle)
    if middle < LEAST_SHARE * exposed.span_ns:
        return []
    half = float(np.mean([one.most - one.least for _own, one in found.values()])) / 2
    return [_finding(scene, pid, own, exposed, middle, half, len(found))]


def _exposed(scene: Scene, pid: int, rows: Ints) -> Exposed | None:
    """By GPM, between the first collective of a process and the last one; None where it says too little."""
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
    """Percent of the time in which only collectives ran, if kernels keep that share of the SMs active."""
    mean = active / ran
    return ran * min(max((full - mean) / max(full - SMS, 0.05), 0.0), 1.0)


def _kernels_active(scene: Scene, pid: int, index: int) -> tuple[float, float] | None:
    """(least, most) share of the SMs that this process's kernels keep active, by their grids; None: unknown.

    A grid of fewer blocks than SMs leaves the rest idle. All kernels count the same for the least, for the
    most each by how often its blocks fill the GPU.
    """
    evidence, count = scene.evidence, _multiprocessors(scene, index)
    rows = launches_among(evidence, np.flatnonzero(evidence.calls["pid"] == pid))
    numbers, times = np.unique(evidence.calls["shape"][rows], return_counts=True)
    blocks = np.array([_blocks(scene, number) for number in numbers.tolist()], np.float64)
    known = blocks > 0
    if not count or times[known].sum() < 0.5 * times.sum() or not known.any():
        return None
    blocks, weights = blocks[known] / count, times[known].astype(np.float64)
    fill: Floats = np.minimum(blocks, 1.0)
    by_work = weights * np.maximum(blocks, 1.0)
    return float(np.average(fill, weights=weights)), float(np.average(fill, weights=by_work))


def _blocks(scene: Scene, number: int) -> int:
    shape = scene.evidence.facts.shapes.get(number)
    return shape.blocks if shape is not None else 0


def _multiprocessors(scene: Scene, index: int) -> int:
    for sample in scene.evidence.gpus:
        for row in listed_gpus(sample):
            if row.get("index") == index and row.get("multiprocessors"):
                return int(row["multiprocessors"] or 0)
    return 0


def rounds_a_step(scene: Scene, pid: int, rows: Ints) -> float:
    """How often gradients are reduced before the optimizer takes a step; 1 where that is not known.

    A round of reductions ends where another thread launches: the main thread a forward pass, autograd's a
    backward pass.
    """
    evidence = scene.evidence
    calls, names = evidence.calls, np.array(evidence.apis.names)
    rows = rows[np.char.find(names[calls["op"][rows]], "Reduce") >= 0]
    rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
    launches = launches_among(evidence, np.flatnonzero(calls["pid"] == pid))
    if len(rows) < FEWEST or not len(launches):
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
    taken = np.searchsorted(calls["begin"][rows], calls["begin"][np.concatenate(named)]) - 1
    steps = len(np.unique(rounds[taken[taken >= 0]]))
    return max((int(rounds[-1]) + 1) / max(steps, 1), 1.0)


def _finding(
    scene: Scene, pid: int, rows: Ints, exposed: Exposed, middle: float, half: float, gpus: int
) -> Finding:
    calls = scene.evidence.calls
    tid, where = int(calls["tid"][rows[0]]), placed(scene, rows)
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
    return assessed(
        scene,
        COMMUNICATION,
        level=Level.STRONG,
        kind="waste",
        loss=Range(0, most, int(middle)),
        pid=pid,
        tid=tid,
        api=usual_api(scene, rows),
        chain=(
            Link("gpu", pid, tid, "nothing but collectives runs on the GPU", int(middle), len(rows)),
            Link("cuda", pid, tid, f"given by {where}", int(middle), len(rows), usual_line(scene, rows)),
        ),
        evidence=(
            f"{share} % of the loop's time is in collectives that no kernel hides: SMs active "
            f"{exposed.active:.0f} % (GPM), where kernels of these grids keep more active and NCCL about "
            f"{100 * SMS:.0f} %",
            f"{len(rows)} collectives of {format_bytes(moved)} together, on {gpus} GPUs"
            if gpus > 1
            else f"{len(rows)} collectives of {format_bytes(moved)} together",
            *((f"each gradient is reduced {again:.1f} times a step of the optimizer",) if repeated else ()),
        ),
        advice=(*advice, *overlap) if repeated else overlap,
        gain_ns=int(min(most * (1 - 1 / again) * (1 + MARGIN), most)) if repeated else most,
        moments=calls["begin"][rows[:0]],
        count=len(rows),
        line=usual_line(scene, rows),
    )


COMMUNICATION = register(
    Cause(
        "C47",
        "GPUs wait in collectives",
        assess=communication,
        kind=DiagnosisKind.COMMUNICATION,
    )
)
