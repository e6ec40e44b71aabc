"""The host time saved without a cause: all of a piece of work or wait, not only its part in a gap.

A gap begins when the GPU has run out of work. Where the host is ahead, its work or sleep began before that,
and goes with the cause. It extends from one CUDA call of the process to the next at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gputop.analysis.answer.report import Finding, Gain, WhatIf
from gputop.analysis.causes.cause import Cause, CauseMatch
from gputop.analysis.causes.drains import MANY_READS, NEAR, launch_place, reads_of_short
from gputop.analysis.causes.host_causes import OTHER_WORK
from gputop.analysis.causes.launch_sites import after_launch, own_short
from gputop.analysis.chains.attribution_context import BIG_COPY, AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.estimates.whatif import MARGIN, DeviceWork, Loop, Removal, bound
from gputop.analysis.evidence.api_classes import H2D, Group
from gputop.analysis.evidence.columns import Ints, Mask, among, covered, distinct, length, subtract, union
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.gap_findings import ends_with_copy
from gputop.analysis.proofs.gaps import DeviceTime, KernelTime


def whole_pieces(claim: CauseMatch) -> tuple[Ints, Ints]:
    """Return (begin, end) of the claim's pieces, extended to the whole of each, in order and disjoint.

    A wait is extended to the thread's stay off the CPU, with its time in the run queue; work to all between
    two calls. Pieces of other causes are left out.
    """
    scene, segments = claim.scene, claim.scene.segments
    rows = np.flatnonzero(claim.segments)
    begin, end = segments.begin[rows], segments.end[rows]
    low, high = _between_calls(claim, begin, end)
    free = segments.call[rows] < 0
    works = scene.own[rows] & (segments.state[rows] == State.RUN)
    queues = scene.own[rows] & (segments.state[rows] == State.QUEUED)
    from_, to = _stays(claim, rows, queued=queues)
    longer = free & (works | (to > from_))
    from_ = np.clip(np.where(works, low, from_), low, begin)
    to = np.clip(np.where(works, high, to), end, high)
    wide = union(from_[longer], to[longer])
    others = ~claim.segments & ~(scene.own & (segments.state == State.QUEUED))
    rest = subtract(wide, union(segments.begin[others], segments.end[others]))
    return union(np.append(begin, rest[0]), np.append(end, rest[1]))


def _between_calls(claim: CauseMatch, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The limits of each piece: the calls of its process before and after it."""
    calls = claim.scene.evidence.calls
    own = calls["pid"] == claim.pid
    first, last = union(calls["begin"][own], calls["end"][own])
    place = np.searchsorted(last, begin, side="right")
    low = np.where(place > 0, last[np.maximum(place - 1, 0)], begin)
    high = np.where(place < len(first), first[np.minimum(place, len(first) - 1)], end)
    return np.minimum(low, begin), np.maximum(high, end)


def _stays(claim: CauseMatch, rows: Ints, *, queued: Ints) -> tuple[Ints, Ints]:
    """(begin, end) of the submitter's stay off the CPU around each piece, of ``queued`` ones its time in the
    run queue. Empty where there is none.
    """
    scene, segments = claim.scene, claim.scene.segments
    evidence, slices = scene.evidence, scene.evidence.slices
    begin, end = segments.begin[rows], segments.end[rows]
    if not len(slices):
        return begin, begin
    thread = scene.gaps.thread[segments.gap[rows]]
    first = np.searchsorted(evidence.slice_ends, evidence.key(thread, begin), side="right")
    last = np.searchsorted(evidence.slice_begins, evidence.key(thread, end), side="left") - 1
    there = first <= last
    first, last = np.minimum(first, len(slices) - 1), np.maximum(last, 0)
    since = np.where(queued, slices["queued"][first], slices["begin"][first])
    return np.where(there, since, begin), np.where(there, slices["end"][last], begin)


# The gain of each finding's fix at most, and the step after the first, the second, … fix.

EXCEEDS = 0.1  # of a loss: a gain that exceeds it by more needs a reason
MOST_FIXES = 3  # that are tried one after the other
NEAR_NS = 100_000  # a wait that begins this soon after a copy to the device is for that copy


class Replays:
    """Simulated loops, and the removal of each finding; each is made once."""

    def __init__(self, scene: AttributionContext, outcome: Outcome, waits: int) -> None:
        """Prepare to simulate at most so many waits of each loop."""
        self._scene, self._claims, self._waits = scene, outcome.claims, waits
        self._loops: dict[tuple[int, int], Loop] = {}
        self._removals: dict[int, Removal] = {}

    def removal(self, place: int) -> Removal:
        """Return the removal of a finding's cause, by the finding's place."""
        if place not in self._removals:
            self._removals[place] = removal(*self._claims[place])
        return self._removals[place]

    def loop(self, place: int) -> Loop | None:
        """Return the loop of a finding's process, None where it cannot be simulated."""
        claim, scene = self._claims[place][1], self._scene
        gap = claim.gaps[0]
        device, pid = int(scene.gaps.device[gap]), claim.pid
        estimate = next((one for one in scene.analysis.estimates if one.device == device), None)
        gpu, work = scene.analysis.gpu, None
        if estimate is not None:
            work = DeviceWork.of(estimate)
        elif isinstance(gpu, KernelTime) and scene.evidence.header.get("inside"):
            work = DeviceWork.known(scene.evidence, gpu, device)
        if work is None:
            return None
        if (device, pid) not in self._loops:
            self._loops[device, pid] = Loop(
                scene.evidence,
                gpu,
                work,
                pid,
                _stretch(scene, device, pid),
                self._waits,
                lambda low, high: _most_work(scene, device, low, high),
            )
        loop = self._loops[device, pid]
        return loop if loop.worth else None


def with_gains(scene: AttributionContext, outcome: Outcome, replays: Replays) -> list[Finding]:
    """Return the findings with their gains, by simulation where the loop allows that."""
    result = []
    for place, finding in enumerate(outcome.findings):
        loop, claim = replays.loop(place), outcome.claims[place][1]
        if loop is not None:
            gone, length_ns = replays.removal(place), _length(scene, claim)
            won = _most_won(scene, claim, loop, [gone])
            gain = int(won * length_ns) + _beside(scene, claim, won)
            work = int(loop.done_for([gone]) * length_ns / max(loop.high - loop.low, 1))
            if outcome.claims[place][0].short == "launch" and (where := launch_place(claim)) and where.loop:
                # the advice removes all of that function, with its kernels
                gain = work = int(where.host_ns * (1 + MARGIN))
            gain = min(gain, _span(scene, claim).span_ns)
            why = _because(outcome.claims[place][0], finding, gain, work)
            finding = replace(finding, gain=Gain(gain, why, work))
        else:
            finding = replace(finding, gain=_at_most(scene, finding, claim, replays.removal(place)))
        result.append(finding)
    return result


def _because(cause: Cause, finding: Finding, gain_ns: int, work_ns: int) -> str:
    """The reason for a gain above the idle time of its cause; "" where it is not.

    Args:
        cause: The cause of the finding.
        finding: The finding, with its loss.
        gain_ns: Its gain, at most.
        work_ns: GPU time of the calls that are removed.
    """
    loss = max(finding.loss.lower, finding.loss.estimate or 0)
    more = gain_ns - loss
    if more <= EXCEEDS * loss:
        return ""
    if work_ns > 0.5 * more:
        return "more than its idle time: the GPU's work for it goes, too"
    if cause.overlaps:
        return "more than its idle time: without the wait, host and GPU work side by side"
    if more <= (MARGIN + EXCEEDS) * loss:
        return "more than its idle time: with a margin for what else goes with it"
    return "more than its idle time: the host's time for it while the GPU is at work goes, too"


def _most_won(scene: AttributionContext, claim: CauseMatch, loop: Loop, gone: Sequence[Removal]) -> float:
    """The gain of some removals at most, as a share of the time."""
    part, span = max(loop.high - loop.low, 1), _span(scene, claim)
    queued = int(loop.queued_without(gone) * _not_others(scene, claim.pid))
    most = bound(loop.whole_ns, loop.without(gone), loop.busy_without(gone), queued)
    # time in which the GPU certainly works stays, but for the work of the removed calls
    stays = span.pending_ns / max(span.span_ns, 1) - loop.done_for(gone) / part
    return min(most / part, 1 - max(stays, 0.0))


def _span(scene: AttributionContext, claim: CauseMatch) -> DeviceTime:
    """The span of a claim's GPU."""
    device = int(scene.gaps.device[claim.gaps[0]])
    return next(one for one in scene.analysis.gpu.spans if one.device == device)


def _not_others(scene: AttributionContext, pid: int) -> float:
    """The share of its submitters' time in run queues in which no other process has the CPU.

    Only that share may shrink without a cause.
    """

    def found() -> float:
        submitter = scene.evidence.threads.pid[scene.gaps.thread[scene.segments.gap]]
        shares = scene.thread_shares(scene.own & (submitter == pid))
        return 1 - min(sum(part for (whose, tid), part in shares.items() if tid and whose != pid), 1.0)

    return scene.once(f"not others {pid}", found)


def _most_work(scene: AttributionContext, device: int, begin: int, end: int) -> int:
    """The time between two moments in which a GPU is not estimated to be idle, ns."""
    mine = scene.gaps.device == device
    parts = [(scene.gaps.begin[mine], scene.gaps.end[mine])]
    parts += [(one.small.begin, one.small.end) for one in scene.analysis.estimates if one.device == device]
    idle = union(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    low, high = np.array([begin]), np.array([end])
    return int((high - low - covered(idle, low, high))[0])


def _at_most(scene: AttributionContext, finding: Finding, claim: CauseMatch, gone: Removal) -> Gain:
    """The bound of a gain where the loop cannot be simulated, because the GPU's busy times are unknown.

    A removal saves hardly more than its host time, and more than its loss only where the GPU's state is
    unknown.
    """
    calls = scene.evidence.calls
    rows = distinct(gone.calls)
    calls_ns = length(np.append(gone.begin, calls["begin"][rows]), np.append(gone.end, calls["end"][rows]))
    more = max(int(calls_ns * (1 + MARGIN)) - finding.gain.ns, 0)
    return Gain(finding.gain.ns + min(more, _span(scene, claim).unknown_ns))


def what_if(
    scene: AttributionContext, outcome: Outcome, findings: Sequence[Finding], replays: Replays
) -> tuple[WhatIf, ...]:
    """Return the time of a step without the first finding, the first two, …; of the first one's process."""
    numbers = {(one.cause, one.pid, one.tid): place for place, one in enumerate(outcome.findings)}
    wanted = [one for one in findings if (one.cause, one.pid, one.tid) in numbers and one.kind == "idle"]
    if not wanted:
        return ()
    pid, claim = wanted[0].pid, outcome.claims[numbers[wanted[0].cause, wanted[0].pid, wanted[0].tid]][1]
    steps = scene.steps_of(pid)
    loop = replays.loop(numbers[wanted[0].cause, pid, wanted[0].tid])
    if loop is None or steps is None or not steps.count:
        return ()
    scale = steps.usual_ns / loop.whole_ns
    gone: list[Removal] = []
    result: list[WhatIf] = []
    before = steps.usual_ns
    for one in [one for one in wanted if one.pid == pid][:MOST_FIXES]:
        gone.append(replays.removal(numbers[one.cause, pid, one.tid]))
        after = int(loop.without(gone) * scale)
        least = int((1 - _most_won(scene, claim, loop, gone)) * steps.usual_ns)
        result.append(WhatIf(one.cause, before, after, min(max(least, 0), after)))
        before = after
    return tuple(result)


def _stretch(scene: AttributionContext, device: int, pid: int) -> tuple[int, int]:
    """(begin, end) of a process's steps, without its warm-up; without steps the GPU's span."""
    steps = scene.steps_of(pid)
    if steps is not None and steps.count:
        return int(steps.begin[steps.warm]), steps.end
    span = next(one for one in scene.analysis.gpu.spans if one.device == device)
    return span.begin, span.end


def _length(scene: AttributionContext, claim: CauseMatch) -> int:
    """The time to which a gain applies, ns."""
    gap = claim.gaps[0]
    low, high = _stretch(scene, int(scene.gaps.device[gap]), claim.pid)
    return max(high - low, 1)


def _beside(scene: AttributionContext, claim: CauseMatch, won: float) -> int:
    """The gain outside of the simulated steps: of the warm-up as of usual steps, at least the loss there."""
    steps = scene.steps_of(claim.pid)
    warm = steps.warm * steps.usual_ns if steps is not None and steps.count else 0
    low, high = _stretch(scene, int(scene.gaps.device[claim.gaps[0]]), claim.pid)
    segments = scene.segments
    within = claim.segments & (segments.end > low) & (segments.begin < high)
    return max(int(won * warm), claim.ns - int(scene.ns[within].sum()))


def removal(cause: Cause, claim: CauseMatch) -> Removal:
    """Return the removal of a cause: its pieces of host time, and the calls made for it."""
    scene, calls = claim.scene, claim.scene.evidence.calls
    reads = _reads(claim) if "reads" in cause.calls_go else np.zeros(0, np.int64)
    sends = (
        _sends(claim, every_small=cause.relaunched) if "sends" in cause.calls_go else np.zeros(0, np.int64)
    )
    inside = np.concatenate([_inside(cause, claim), cause.gone(claim)])
    copies = sends[scene.evidence.group_of(sends) == Group.COPY]
    freed = np.concatenate([sends, inside])
    pieces = _pieces(cause, claim)
    queued = _behind_own(claim) if cause.frees_cpu else (pieces[0][:0], pieces[0][:0])
    short = _short(cause, claim)
    loop = _loop_of_reads(claim, reads if cause.between else reads[:0])
    return Removal(
        *union(
            np.concatenate([pieces[0], calls["begin"][freed], short[0], loop[0], queued[0]]),
            np.concatenate([pieces[1], calls["end"][freed], short[1], loop[1], queued[1]]),
        ),
        np.concatenate([reads, sends, inside, loop[2]]),
        # a copy is replaced by a launch that makes the data on the device; the wait behind it by nothing
        calls["begin"][copies if cause.relaunched else copies[:0]],
        _launch_ns(claim) if cause.relaunched else 0,
    )


def _pieces(cause: Cause, claim: CauseMatch) -> tuple[Ints, Ints]:
    """(begin, end) of the host time that is removed: of a wait its work, of launches their idle time."""
    if cause.overlaps:
        return cause.works(claim)
    if cause.short != "launch":
        return whole_pieces(claim)
    rows = np.flatnonzero(claim.segments)
    return claim.scene.segments.begin[rows], claim.scene.segments.end[rows]


def _behind_own(claim: CauseMatch) -> tuple[Ints, Ints]:
    """(begin, end) of its submitters' waits in gaps for a CPU that threads of their process had."""
    scene = claim.scene
    submitter = scene.evidence.threads.pid[scene.gaps.thread[scene.segments.gap]]
    waits = scene.own & (scene.segments.state == State.QUEUED) & (submitter == claim.pid)
    share = sum(part for (pid, _tid), part in scene.thread_shares(waits).items() if pid == claim.pid)
    begin = scene.segments.begin[waits]
    return begin, begin + (scene.ns[waits] * min(share, 1.0)).astype(np.int64)


def _launch_ns(claim: CauseMatch) -> int:
    """The host time of an operation: from one launch to the next with no other call between."""
    scene, calls = claim.scene, claim.scene.evidence.calls
    launches = scene.evidence.group(calls) == Group.LAUNCH
    both = (
        launches[1:]
        & launches[:-1]
        & (calls["row"][1:] == calls["row"][:-1])
        & (calls["pid"][1:] == claim.pid)
    )
    return int(np.median(np.diff(calls["begin"])[both])) if both.any() else 0


def _short(cause: Cause, claim: CauseMatch) -> tuple[Ints, Ints]:
    """(begin, end) of the short gaps that are removed with the cause."""
    scene = claim.scene
    none = np.zeros(0, np.int64)
    parts = [(none, none)]
    for estimate in scene.analysis.estimates:
        small, sends = estimate.small, ends_with_copy(scene, estimate.small)
        mine = scene.evidence.threads.pid[small.thread] == claim.pid
        works = own_short(scene, small.begin, small.end, small.refilled_by, small.thread)
        if cause is OTHER_WORK:
            mine &= works
        elif cause.short == "launch":
            mine &= ~works & ~sends & (reads_of_short(scene, small.begin, small.thread) < 0)
        elif "sends" in cause.calls_go and "reads" not in cause.calls_go:
            mine &= sends
        else:
            continue
        parts.append((small.begin[mine], small.end[mine]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _loop_of_reads(claim: CauseMatch, reads: Ints) -> tuple[Ints, Ints, Ints]:
    """(begin, end, calls) of everything between two reads of a loop, which is removed with them."""
    calls = claim.scene.evidence.calls
    none = np.zeros(0, np.int64)
    steps = claim.steps
    if steps is None or len(reads) < MANY_READS * steps.count:
        return none, none, none
    order = reads[np.argsort(calls["begin"][reads], kind="stable")]
    begin, end = calls["begin"][order][:-1], calls["begin"][order][1:]
    near = (end - begin <= NEAR * steps.median_ns) & ~_rests(claim, begin)
    begin, end = union(begin[near], end[near])
    pid = calls["pid"] == calls["pid"][order[0]]
    place = np.searchsorted(end, calls["begin"], side="right")
    inside = pid & (place < len(end))
    inside &= begin[np.minimum(place, len(begin) - 1)] <= calls["begin"] if len(begin) else False
    return begin, end, np.flatnonzero(inside)


def _rests(claim: CauseMatch, reads: Ints) -> Mask:
    """The reads, by their begins, before the rest of a step, which has the most launches of the step.

    The rest is no part of the loop of reads, however soon the next read comes: its kernels stay.
    """
    scene, calls, steps = claim.scene, claim.scene.evidence.calls, claim.steps
    launches = (scene.evidence.group(calls) == Group.LAUNCH) & (calls["pid"] == claim.pid)
    behind = np.searchsorted(reads, calls["begin"][launches], side="right") - 1
    count = np.bincount(behind[behind >= 0], minlength=len(reads))
    step = np.searchsorted(steps.begin, reads, side="right") if steps is not None else np.zeros_like(reads)
    order = np.lexsort((count, step))
    last = np.append(step[order][1:] != step[order][:-1], True)[: len(order)]
    rests = np.zeros(len(reads), np.bool_)
    rests[order[last]] = True
    return rests


def _inside(cause: Cause, claim: CauseMatch) -> Ints:
    """The calls in which the cause's pieces lie, if it removes them: allocations and frees."""
    if "inside" not in cause.calls_go:
        return np.zeros(0, np.int64)
    scene, calls = claim.scene, claim.scene.evidence.calls
    alike = among(scene.evidence.group(calls), (Group.ALLOC, Group.FREE)) & (calls["pid"] == claim.pid)
    return np.flatnonzero(alike)


def _reads(claim: CauseMatch) -> Ints:
    """The waits that open the gaps, and the copies to the host that they wait for."""
    scene = claim.scene
    gaps = claim.gaps[~(scene.gaps.estimated | after_launch(scene))[claim.gaps]]
    rows = np.concatenate([scene.gaps.drained_by[gaps], scene.gap_facts.read_row[gaps]])
    return distinct(rows)


def _sends(claim: CauseMatch, *, every_small: bool) -> Ints:
    """The copies to the device that end the gaps, and the waits right behind them.

    With ``every_small`` also small copies that end no gap.
    """
    scene, calls = claim.scene, claim.scene.evidence.calls
    refilled_by = distinct(scene.gaps.refilled_by[claim.gaps])
    copies = refilled_by[
        (scene.evidence.group_of(refilled_by) == Group.COPY) & (calls["direction"][refilled_by] == H2D)
    ]
    if every_small and len(copies):
        alike = (calls["pid"] == calls["pid"][copies[0]]) & (calls["direction"] == H2D)
        alike &= (scene.evidence.group(calls) == Group.COPY) & (calls["bytes"] < BIG_COPY)
        alike[copies] = True
        copies = np.flatnonzero(alike)
    behind = np.minimum(copies + 1, len(calls) - 1)
    waits = scene.evidence.group_of(behind) == Group.SYNC
    waits &= calls["row"][behind] == calls["row"][copies]
    waits &= calls["begin"][behind] - calls["end"][copies] < NEAR_NS
    return distinct(np.concatenate([copies, behind[waits]]))
