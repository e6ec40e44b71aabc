"""What the change that a finding advises can win at most, and what is left after the first, the second, …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gputop.explain.apiclass import Group
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.inputs import TINY_COPIES
from gputop.explain.causes.overhead import LAUNCHES
from gputop.explain.findings import Outcome
from gputop.explain.ranges import Ints
from gputop.explain.report import Finding, WhatIf
from gputop.explain.scene import BIG_COPY, H2D, Scene
from gputop.explain.shortgaps import ends_with_copy
from gputop.explain.whatif import Loop, Removal, bound

MOST_FIXES = 3  # that are tried one after the other
NEAR_NS = 100_000  # a wait that begins this soon after a copy to the device is for that copy


def with_gains(scene: Scene, outcome: Outcome) -> list[Finding]:
    """The findings with what they can win, as far as the program can be run again without them."""
    loops: dict[tuple[int, int], Loop] = {}
    told = []
    for finding, (cause, claim) in zip(outcome.findings, outcome.claims, strict=True):
        loop = _loop(scene, claim, loops)
        if loop is not None and loop.worth:
            share = (loop.high - loop.low) / max(_span(scene, claim), 1)
            without = loop.without([removal(cause, claim)])
            gain = bound(loop.whole_ns, without, loop.busy_ns) / max(share, 1e-9)
            finding = replace(finding, max_gain_ns=int(gain))
        told.append(finding)
    return told


def what_if(scene: Scene, outcome: Outcome, findings: Sequence[Finding]) -> tuple[WhatIf, ...]:
    """The time of a step without the first finding, without the first two, …; of the first one's process."""
    numbers = {(one.cause, one.pid, one.tid): place for place, one in enumerate(outcome.findings)}
    wanted = [one for one in findings if (one.cause, one.pid, one.tid) in numbers and one.kind == "idle"]
    if not wanted:
        return ()
    pid = wanted[0].pid
    steps = scene.steps_of(pid)
    loop = _loop(scene, outcome.claims[numbers[wanted[0].cause, pid, wanted[0].tid]][1], {})
    if loop is None or not loop.worth or steps is None or not steps.count:
        return ()
    scale = steps.median_ns / loop.whole_ns
    gone: list[Removal] = []
    told: list[WhatIf] = []
    before = steps.median_ns
    for one in [one for one in wanted if one.pid == pid][:MOST_FIXES]:
        cause, claim = outcome.claims[numbers[one.cause, pid, one.tid]]
        gone.append(removal(cause, claim))
        after = int(loop.without(gone) * scale)
        told.append(WhatIf(one.cause, before, after))
        before = after
    return tuple(told)


def _loop(scene: Scene, claim: Claim, loops: dict[tuple[int, int], Loop]) -> Loop | None:
    gap = claim.gaps[0]
    device, pid = int(scene.gaps.device[gap]), int(scene.evidence.threads.pid[scene.gaps.thread[gap]])
    estimate = next((one for one in scene.analysis.estimates if one.device == device), None)
    if estimate is None:
        return None
    if (device, pid) not in loops:
        span = next(one for one in scene.analysis.gpu.spans if one.device == device)
        loops[device, pid] = Loop(scene.evidence, scene.analysis.gpu, estimate, pid, (span.begin, span.end))
    return loops[device, pid]


def _span(scene: Scene, claim: Claim) -> int:
    device = int(scene.gaps.device[claim.gaps[0]])
    return next(one.span_ns for one in scene.analysis.gpu.spans if one.device == device)


def removal(cause: Cause, claim: Claim) -> Removal:
    """What goes away with a cause: its pieces of host time, and the calls that are made for it."""
    scene, calls = claim.scene, claim.scene.evidence.calls
    reads = _reads(claim) if "reads" in cause.calls_go else np.zeros(0, np.int64)
    sends = (
        _sends(claim, every_small=cause is TINY_COPIES)
        if "sends" in cause.calls_go
        else np.zeros(0, np.int64)
    )
    rows = np.concatenate([reads, sends])
    pieces = np.flatnonzero(claim.leaves) if not cause.overlaps else np.zeros(0, np.int64)
    leaves = scene.leaves
    short = _short(cause, claim)
    return Removal(
        np.concatenate([leaves.begin[pieces], calls["begin"][sends], short[0]]),
        np.concatenate([leaves.end[pieces], calls["end"][sends], short[1]]),
        rows,
    )


def _short(cause: Cause, claim: Claim) -> tuple[Ints, Ints]:
    """(begin, end) of the gaps that are too short to follow and go with the cause."""
    scene = claim.scene
    none = np.zeros(0, np.int64)
    parts = [(none, none)]
    pid = int(scene.evidence.threads.pid[scene.gaps.thread[claim.gaps[0]]])
    for estimate in scene.analysis.estimates:
        small, sends = estimate.small, ends_with_copy(scene, estimate.small)
        mine = scene.evidence.threads.pid[small.thread] == pid
        if cause is LAUNCHES:
            mine &= ~sends
        elif "sends" in cause.calls_go and "reads" not in cause.calls_go:
            mine &= sends
        else:
            continue
        parts.append((small.begin[mine], small.end[mine]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _reads(claim: Claim) -> Ints:
    """The waits that open the gaps, and the copies to the host that they wait for."""
    scene = claim.scene
    gaps = claim.gaps[~scene.gaps.estimated[claim.gaps]]
    rows = np.concatenate([scene.gaps.opener[gaps], scene.gap_facts.read_row[gaps]])
    return np.unique(rows[rows >= 0])


def _sends(claim: Claim, *, every_small: bool) -> Ints:
    """The copies to the device that end the gaps, and the waits right behind them.

    Of many small copies all go, also those that end no gap.
    """
    scene, calls = claim.scene, claim.scene.evidence.calls
    closer = np.unique(scene.gaps.closer[claim.gaps])
    closer = closer[closer >= 0]
    copies = closer[(scene.evidence.group_of(closer) == Group.COPY) & (calls["direction"][closer] == H2D)]
    if every_small and len(copies):
        alike = (calls["pid"] == calls["pid"][copies[0]]) & (calls["direction"] == H2D)
        alike &= (scene.evidence.group(calls) == Group.COPY) & (calls["bytes"] < BIG_COPY)
        copies = np.union1d(copies, np.flatnonzero(alike))
    behind = np.minimum(copies + 1, len(calls) - 1)
    waits = scene.evidence.group_of(behind) == Group.SYNC
    waits &= calls["row"][behind] == calls["row"][copies]
    waits &= calls["begin"][behind] - calls["end"][copies] < NEAR_NS
    return np.unique(np.concatenate([copies, behind[waits]]))
