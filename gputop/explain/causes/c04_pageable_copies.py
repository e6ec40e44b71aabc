"""C04: copies to the device from pageable memory, which the CPU stages inside the call.

Where idle time is estimated it takes pieces of it; else what staging costs is assessed.
"""

from __future__ import annotations

import numpy as np

from gputop.engine.frameworks import Framework
from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, assessed, within
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import placed, usual_api, usual_line
from gputop.explain.causes.drains import (
    read_between,
)
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import BIG_COPY, Scene
from gputop.explain.evidence.apiclass import H2D, Group
from gputop.explain.evidence.call_time import call_time
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.format import format_bytes, format_ns

LEAST_SHARE = 0.02


_FAST = 10  # percentile of ns/byte that stands for staging without waiting, when no copy met an empty GPU


def pageable_copies(scene: Scene, span_ns: int) -> list[Finding]:
    """One finding per process whose staging costs enough."""
    if scene.analysis.estimated:  # then it is a cause like the others (``_staged``)
        return []
    evidence = scene.evidence
    calls = evidence.calls
    groups = evidence.group(calls)
    rows = np.flatnonzero((groups == Group.COPY) & (calls["direction"] == H2D) & (calls["ret"] == 0))
    rows = within(scene, rows[calls["bytes"][rows] >= BIG_COPY])
    ranges = scene.analysis.gpu.ranges
    rows = rows[~ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])]
    found = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        mine = rows[calls["pid"][rows] == pid]
        staging = _staging(scene, mine)
        total = int(staging.sum())
        if len(mine) >= 3 and total >= max(LEAST_SHARE * span_ns, LEAST_NS):
            found.append(_finding(scene, int(pid), mine, staging))
    return found


def _staging(scene: Scene, rows: Ints) -> Ints:
    """CPU time that each call spent on staging; what it waited for earlier work is not staging.

    A copy that met an empty GPU had nothing to wait for, so its CPU time is staging alone. Others spin while
    they wait: they get the same time per byte, at most what they took.
    """
    calls = scene.evidence.calls
    busy = call_time(scene.evidence, rows).on_cpu
    alone = np.isin(rows, scene.gaps.refilled_by)
    rate = busy / calls["bytes"][rows]
    usual = float(np.median(rate[alone])) if alone.any() else float(np.percentile(rate, _FAST))
    estimate = np.minimum((calls["bytes"][rows] * usual).astype(np.int64), busy)
    return np.where(alone, busy, estimate)


def _finding(scene: Scene, pid: int, rows: Ints, staging: Ints) -> Finding:
    calls = scene.evidence.calls
    total, tid = int(staging.sum()), int(calls["tid"][rows[0]])
    size = int(np.median(calls["bytes"][rows]))
    certain = scene.analysis.gpu.ranges.certain(pid)
    which = "pageable" if certain else "memory not seen to be page-locked, so presumably pageable"
    api = usual_api(scene, rows)
    where, line = placed(scene, rows), usual_line(scene, rows)
    loads = scene.evidence.frameworks(pid)
    return assessed(
        scene,
        STAGED,
        level=Level.STRONG,
        kind="waste",
        loss=Range(0, total),
        pid=pid,
        tid=tid,
        api=api,
        chain=(
            Link("cuda", pid, tid, f"{where} from {which} memory", total, len(rows), line),
            Link(
                "host", pid, tid, "the CPU copies it into the driver's pinned buffer first", total, len(rows)
            ),
        ),
        evidence=(
            f"{len(rows)} copies: median {format_bytes(size)}, "
            f"{format_ns(float(np.median(staging)))} of CPU each",
        ),
        advice=(f"the CPU waits inside each copy: {_pinned(torch=Framework.TORCH in loads)}",),
        gain_ns=total,
        moments=calls["begin"][rows[np.argsort(staging)[::-1]]],
        count=len(rows),
        line=line,
    )


def _staged(scene: Scene, free: Mask) -> Mask:
    """Inside a copy to the device that is large and not from page-locked memory, as far as was seen."""
    calls, refilled_by = scene.evidence.calls, np.maximum(scene.gaps.refilled_by, 0)
    if not len(calls) or not len(scene.gaps):
        return scene.mask()
    pinned = scene.analysis.gpu.ranges.pinned(
        calls["pid"][refilled_by], calls["aux"][refilled_by], calls["begin"][refilled_by]
    )
    copies = scene.gap_facts.sent_bytes >= BIG_COPY
    copies &= (scene.gaps.refilled_by >= 0) & (calls["direction"][refilled_by] == H2D) & ~pinned
    copies &= read_between(scene) < 0
    return free & scene.estimated & scene.own & scene.in_refill & copies[scene.segments.gap]


def _pinned(*, torch: bool) -> str:
    """What to do instead, in the words of the program's framework."""
    if torch:
        return (
            "copy from pinned memory with non_blocking=True (tensor.pin_memory(), or pin_memory=True in the "
            "DataLoader)"
        )
    return "copy asynchronously from page-locked memory (cudaHostAlloc, cudaHostRegister)"


def _advise_staged(claim: Claim) -> tuple[str, ...]:
    size = claim.sent_bytes
    return (
        f"the CPU copies {format_bytes(size)} into the driver's pinned buffers inside each call: "
        f"{_pinned(torch=claim.torch)}",
    )


STAGED = register(
    Cause(
        "C04",
        "pageable host-to-device copies",
        _staged,
        _advise_staged,
        lambda _claim: Level.STRONG,
        assess=pageable_copies,
        calls_go=frozenset({"sends"}),
        culprit="refilled_by",
        kind=DiagnosisKind.COPY,
        family="C",
        rank=180,
    )
)
