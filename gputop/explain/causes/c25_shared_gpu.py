"""C25: other processes have work on the same GPU."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, LEAST_SHARE, assessed, within
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.chaintext import placed, usual_api, usual_line
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group, Role
from gputop.explain.evidence.ranges import Ints, covered
from gputop.explain.proofs.coverage import others_at_work, strangers
from gputop.explain.proofs.gaps import DeviceTime
from gputop.format import format_ns

SHARED = 0.25  # of the span that one process waits while another has work on the same GPU


def contention(scene: Scene, span_ns: int) -> list[Finding]:
    """Processes that wait for a GPU while another watched process has work on it."""
    gpu, calls = scene.analysis.gpu, scene.evidence.calls
    roles = scene.evidence.role(calls)
    waits = within(scene, np.flatnonzero((roles >= Role.PROVE_DEVICE) & (roles <= Role.PROVE_EVENT)))
    found = []
    for span in gpu.spans:
        pids = np.unique(gpu.streams.pid[gpu.streams.device == span.device]).tolist()
        for pid in pids if len(pids) > 1 else ():
            rows = waits[(calls["pid"][waits] == pid) & (gpu.devices.of_calls[waits] == span.device)]
            begin, end = calls["begin"][rows], calls["end"][rows]
            shared = covered(gpu.pending(span.device, without=pid), begin, end)
            total = int(shared.sum())
            if total < max(LEAST_SHARE * span_ns, LEAST_NS, SHARED * span.span_ns):
                continue
            overlap = f"{format_ns(total)} of its waits overlapped work of another process on the GPU"
            found.append(_shared(scene, span.device, rows, shared, total, len(pids) - 1, overlap))
        found += _strangers(scene, span, span_ns)
    return found


def _strangers(scene: Scene, span: DeviceTime, span_ns: int) -> list[Finding]:
    """The same where the others are not watched: NVML says how much of the time they use the GPU."""
    gpu, calls = scene.analysis.gpu, scene.evidence.calls
    share = others_at_work(scene.evidence, gpu, span.device)
    estimate = next((one for one in scene.analysis.estimates if one.device == span.device), None)
    if share < SHARED or estimate is None:
        return []
    rows = within(scene, np.flatnonzero(scene.evidence.group(calls) == Group.LAUNCH))
    rows = rows[gpu.devices.of_calls[rows] == span.device]
    if not len(rows):
        return []
    # who takes turns with one other has half of the GPU: the work lasts so much longer
    works = float(estimate.duration_ns[estimate.queue.kernel].sum())
    total = int(min(works, span.span_ns) * share / (1 + share))
    if total < max(LEAST_SHARE * span_ns, LEAST_NS):
        return []
    others = len(strangers(scene.evidence, gpu))
    modelled = (
        f"NVML: another process used the GPU for {100 * share:.0f} % of the time, which may have made work "
        f"{format_ns(total)} longer"
    )
    return [_shared(scene, span.device, rows, np.zeros(len(rows), np.int64), total, others, modelled)]


def _shared(
    scene: Scene, device: int, rows: Ints, shared: Ints, total: int, others: int, evidence: str
) -> Finding:
    calls = scene.evidence.calls
    pid, tid = int(calls["pid"][rows[0]]), int(calls["tid"][rows[0]])
    api, label = usual_api(scene, rows), scene.analysis.gpu.devices.labels[device]
    where, line = placed(scene, rows), usual_line(scene, rows)
    return assessed(
        scene,
        CONTENTION,
        level=Level.HINT,
        kind="waste",
        loss=Range(0, total),
        pid=pid,
        tid=tid,
        api=api,
        chain=(
            Link(
                "gpu",
                0,
                0,
                f"{label} also had work of {others} other process{'es' * (others != 1)}",
                total,
                len(rows),
            ),
            Link("cuda", pid, tid, f"{where} waited meanwhile", total, len(rows), line),
        ),
        evidence=(evidence,),
        advice=("run them one after the other, on different GPUs, or under MPS or MIG",),
        gain_ns=total,
        moments=calls["begin"][rows[np.argsort(shared)[::-1]]],
        count=len(rows),
        line=line,
    )


CONTENTION = register(
    Cause(
        "C25",
        "the GPU is shared with other processes",
        assess=contention,
        kind=DiagnosisKind.SHARED,
    )
)
