"""C15: a wait for the GPU returns after the GPU is done.

A wait that sleeps knows when it was woken: its late return is a piece of a gap. For one that spins a
preemption may have hidden the moment of completion, which is assessed.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, LEAST_SHARE, assessed, within
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import occupants, placed, usual_api, usual_line
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.proofs.pending import RETURN_NS
from gputop.format import format_ns


def late_spins(scene: Scene, span_ns: int) -> list[Finding]:
    """Waits that returned right after a preemption: the work ended somewhere within it."""
    evidence, delays = scene.evidence, scene.analysis.gpu.delays
    calls = evidence.calls
    roles = evidence.role(calls)
    hidden = calls["end"] - delays.surely_waiting
    # a wait that slept knows when it was woken: its late return is a gap of its own
    spun = (delays.completed == calls["end"]) & (hidden > 0)
    # where work is queued behind what was waited for, the GPU went on
    spun[np.setdiff1d(np.flatnonzero(spun), scene.gaps.drained_by[~scene.gaps.estimated])] = False
    rows = within(scene, np.flatnonzero(spun & (roles >= Role.PROVE_DEVICE) & (roles <= Role.PROVE_EVENT)))
    found = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        mine = rows[calls["pid"][rows] == pid]
        total = int(hidden[mine].sum())
        if len(mine) >= 3 and total >= max(LEAST_SHARE * span_ns, LEAST_NS):
            found.append(_finding(scene, int(pid), mine, hidden[mine], total))
    return found


def _finding(scene: Scene, pid: int, rows: Ints, hidden: Ints, total: int) -> Finding:
    calls = scene.evidence.calls
    tid, api = int(calls["tid"][rows[0]]), usual_api(scene, rows)
    where, line = placed(scene, rows), usual_line(scene, rows)
    return assessed(
        scene,
        LATE_RETURN,
        title="late wakeup after a sync (upper bound)",
        level=Level.STRONG,
        kind="idle",
        loss=Range(0, total),
        pid=pid,
        tid=tid,
        api=api,
        chain=(
            Link("gpu", 0, 0, "finished before the preempted thread could see it", total, len(rows)),
            Link("cuda", pid, tid, f"{where} spins", total, len(rows), line),
            Link("system", pid, tid, "preempted, and back just before it returned", total, len(rows)),
        ),
        evidence=(
            f"{len(rows)} waits returned within {format_ns(RETURN_NS)} after a preemption (median "
            f"{format_ns(float(np.median(hidden)))})",
        ),
        advice=(
            "keep others off the CPU of the thread that waits (taskset, nice), or let it sleep in the wait "
            "(cudaDeviceScheduleBlockingSync)",
        ),
        gain_ns=total,
        moments=calls["begin"][rows[np.argsort(hidden)[::-1]]],
        count=len(rows),
        line=line,
    )


def _late_return(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.in_drain & scene.does(State.QUEUED)


def _advise_late(claim: Claim) -> tuple[str, ...]:
    return (
        "the GPU had finished, but the waiting thread got no CPU at once: "
        f"{occupants(claim)}keep others off its CPU (taskset, nice), or let it spin "
        "(cudaDeviceScheduleSpin)",
    )


LATE_RETURN = register(
    Cause(
        "C15",
        "late wakeup after a sync",
        _late_return,
        _advise_late,
        assess=late_spins,
        kind=DiagnosisKind.CPU,
        family="P",
        rank=40,
    )
)
