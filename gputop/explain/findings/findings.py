"""From segments to findings and events: each cause in turn takes its pieces, and what repeats is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import Event, Finding, Level, Range, least_sure
from gputop.explain.causes import CATALOGUE
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import chain, usual_api
from gputop.explain.chains.places import done_once, hot_line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints
from gputop.explain.findings.attribution import owners
from gputop.explain.findings.grounds import blamed, even, grounds_of, line_of, ruled_out
from gputop.explain.findings.possible import possible
from gputop.explain.findings.shortgaps import short_gaps
from probes.code.source_files import is_library

LEAST_SHARE, LEAST_NS = 0.02, 5_000_000  # a loss below both is not worth a change
SHORT_SHARE = 0.1  # of a span of less than 50 ms, in place of these ns
SUPPOSED_SHARE = 0.05  # an estimated loss must be larger, and larger than the error of the estimate
LEAST_GAPS = 3  # fewer do not repeat
LONELY, LONELY_NS = 10, 20_000_000  # a gap this many times as long as usual, and this long, is an event
# a gap that takes more than all others together is one, if it is this many times as long as usual
OUTWEIGHS = 3
_MOMENTS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the gaps gave.

    Attributes:
        claims: What each finding rests on.
        small_ns: Explained, but too little or too rare.
        cause: The catalogue's row of the cause that took each segment, -1 for none.
        unexplained_ns: The chain did not lead to a cause.
    """

    findings: tuple[Finding, ...]
    events: tuple[Event, ...]
    small_ns: int
    unexplained_ns: int
    cause: Ints
    claims: tuple[tuple[Cause, Claim], ...] = ()


def find(scene: Scene, span_ns: int, *, coverage: bool) -> Outcome:
    """Lets every cause take its pieces, process by process."""
    # by the GPU's own clock a loss is exact, however short a profile is
    floor = min(LEAST_NS, SHORT_SHARE * span_ns) if scene.analysis.traced is None else 0
    least = _Least(max(LEAST_SHARE * span_ns, floor), max(SUPPOSED_SHARE * span_ns, floor, _doubt(scene)))
    findings: list[Finding] = []
    claims: list[tuple[Cause, Claim]] = []
    events: list[Event] = []
    small = 0
    owner, early = owners(scene), possible(scene)
    short = short_gaps(scene, owner)
    processes = scene.evidence.threads.pid[scene.gaps.thread] if len(scene.gaps) else np.zeros(0, np.int64)
    for number, cause in enumerate(CATALOGUE):
        if not cause.fault:
            continue
        taken = owner == number
        beside = [row for row, other in enumerate(CATALOGUE) if row == number or other.number in cause.beside]
        for pid in np.unique(processes[scene.segments.gap[taken]]).tolist():
            here = processes[scene.segments.gap] == pid
            mine, alike = taken & here, np.isin(owner, beside) & here
            more = short.pop((number, pid), 0)
            finding, claim, lonely, rest = _judge(
                scene, cause, mine, alike, least, early.left_ns, more, coverage=coverage
            )
            events += lonely
            small += rest
            if finding is not None:
                claims.append((cause, claim))
                findings.append(
                    replace(finding, loss=_widened(finding.loss, early.by_cause.get((number, pid), 0)))
                )
    small += sum(short.values())
    rest = int(scene.ns[owner < 0].sum())
    return Outcome(tuple(findings), tuple(events), small, rest, owner, tuple(claims))


@dataclass(frozen=True, slots=True)
class _Least:
    """What a loss must reach, ns: one of which enough is proved, and one that is an estimate."""

    proved: float
    supposed: float


def _doubt(scene: Scene) -> float:
    """The error of the estimates, all GPUs together, ns."""
    return float(sum(one.error_ns for one in scene.analysis.estimates))


def _judge(
    scene: Scene,
    cause: Cause,
    mine: Column,
    alike: Column,
    least: _Least,
    slack_ns: Ints,
    short_ns: int,
    *,
    coverage: bool,
) -> tuple[Finding | None, Claim, list[Event], int]:
    """(the finding if it repeats and is worth it, what repeats, gaps that stand alone, what is neither).

    ``short_ns`` are gaps too short to be among these that belong to the cause, too; ``alike`` are pieces that
    tell what is usual.
    """
    per_gap, usual = scene.gap_ns(mine), scene.gap_ns(alike)
    gaps, among = np.flatnonzero(per_gap), np.flatnonzero(usual)
    lonely = among[_lonely(usual[among], scene.gaps.begin[among])]
    alone = np.isin(gaps, lonely)
    events = []
    for gap in gaps[alone].tolist():
        if per_gap[gap] >= least.proved:
            claim = _claim(scene, mine, np.array([gap]))
            events.append(_event(cause, claim, coverage=coverage))
    told = sum(event.ns for event in events)
    claim = _claim(scene, mine, gaps[~alone])
    sure = int(scene.ns[claim.segments & ~scene.estimated].sum())
    worth = sure >= least.proved or claim.ns + short_ns >= least.supposed
    if len(claim.gaps) < LEAST_GAPS or not worth:
        return None, claim, events, int(per_gap.sum()) - told + short_ns
    finding = _finding(cause, claim, slack_ns, short_ns, coverage=coverage)
    return finding, claim, events, int(per_gap.sum()) - claim.ns - told


def _lonely(ns: Ints, begin: Ints) -> Column:
    """Which gaps stand alone: all when there are few, else those that are far longer than usual.

    So is one that outweighs all the others. Several may be a loss that repeats more rarely (a checkpoint);
    then only those before it, and far longer still, stand alone: first uses of something.
    """
    if len(ns) < LEAST_GAPS:
        return np.ones(len(ns), np.bool_)
    far = (ns > LONELY * np.median(ns)) & (ns > LONELY_NS)
    top = int(np.argmax(ns))
    far[top] |= ns[top] > max(LONELY_NS, OUTWEIGHS * np.median(ns)) and 2 * ns[top] > ns.sum()
    if np.count_nonzero(far) < LEAST_GAPS:
        return far
    usual = np.sort(begin[~far])[:LEAST_GAPS]
    late = far & (begin > usual[-1]) if len(usual) else far
    if np.count_nonzero(late) < LEAST_GAPS:
        return far
    return far & ~late & (ns > OUTWEIGHS * np.median(ns[late]))


def _claim(scene: Scene, mine: Column, gaps: Ints) -> Claim:
    wanted = np.zeros(len(scene.gaps), np.bool_)
    wanted[gaps] = True
    return Claim(scene, mine & wanted[scene.segments.gap], gaps)


def _event(cause: Cause, claim: Claim, *, coverage: bool) -> Event:
    scene = claim.scene
    gap = int(claim.gaps[0])
    none = np.zeros(len(scene.gaps), np.int64)
    level, _loss_ns = _loss(claim, np.array([claim.ns]), none, 0, coverage=coverage)
    thread = int(scene.gaps.thread[gap])
    rows = np.flatnonzero(claim.segments)
    hot, done = hot_line(scene, rows), done_once(scene, rows)
    return Event(
        int(scene.gaps.begin[gap]) - _start(scene),
        claim.ns,
        cause.number,
        least_sure(level, cause.level(claim)),
        f"first use: {done}" if done else cause.name(claim),
        int(scene.evidence.threads.pid[thread]),
        chain(cause, claim),
        hot.line if hot is not None and not is_library(hot.line.file) else _own(line_of(cause, claim)),
    )


def _own(line: Line | None) -> Line | None:
    """The line, unless it is a library's."""
    return None if line is None or is_library(line.file) else line


def _start(scene: Scene) -> int:
    return int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))


def finding_of(scene: Scene, cause: Cause, mine: Column) -> Finding:
    """The finding of a cause by the segments that it takes, whether or not that is worth telling.

    Args:
        scene: What was found.
        cause: The cause.
        mine: Mask of its segments; of one process, and not empty.
    """
    claim = _claim(scene, mine, np.flatnonzero(scene.gap_ns(mine)))
    return _finding(cause, claim, np.zeros(len(scene.gaps), np.int64), 0, coverage=True)


def _finding(cause: Cause, claim: Claim, slack_ns: Ints, short_ns: int, *, coverage: bool) -> Finding:
    scene, gaps = claim.scene, claim.gaps
    per_gap = scene.gap_ns(claim.segments)[gaps]
    idle_level, loss = _loss(claim, per_gap, slack_ns, short_ns, coverage=coverage)
    name_level = cause.level(claim)
    level = least_sure(idle_level, name_level)
    leader = int(scene.gaps.thread[gaps[np.argmax(per_gap)]])
    # what is called proved names no moment that is estimated
    named = scene.gaps.proved[gaps] if level == Level.PROVED else np.ones(len(gaps), np.bool_)
    worst = gaps[named][np.argsort(per_gap[named])[::-1][:_MOMENTS]]
    return Finding(
        cause.number,
        "idle",
        cause.name(claim),
        level,
        loss,
        int(scene.evidence.threads.pid[leader]),
        int(scene.evidence.threads.tid[leader]),
        usual_api(scene, blamed(cause, claim)),
        chain(cause, claim),
        (*grounds_of(cause, claim, per_gap, short_ns), *_levels(idle_level, name_level)),
        ruled_out(claim),
        cause.advice(claim),
        _gain(cause, claim),
        tuple((scene.gaps.begin[worst] - _start(scene)).tolist()),
        len(gaps),
        _per_step(claim, loss, per_gap),
        line_of(cause, claim),
        idle_level,
        name_level,
    )


def _per_step(claim: Claim, loss: Range, per_gap: Ints) -> int | None:
    """What a step loses; None without steps, or where few of them lose nearly all of it."""
    steps = claim.steps
    if steps is None or not steps.count or not even(np.sort(per_gap)[::-1], steps.count):
        return None
    return _told(loss) // steps.count


def _levels(idle: Level, name: Level) -> tuple[str, ...]:
    """How sure both parts are, where they differ."""
    return (f"idle time: {idle}; its cause: {name}",) if idle is not name else ()


def _loss(
    claim: Claim, per_gap: Ints, slack_ns: Ints, short_ns: int, *, coverage: bool
) -> tuple[Level, Range]:
    """How sure it is that so much was lost, whatever took it; the lower bound is what is proved of it."""
    scene, gaps = claim.scene, claim.gaps
    whole = scene.gaps.end[gaps] - scene.gaps.begin[gaps]
    guessed = scene.gaps.estimated[gaps]
    slack = int((slack_ns[gaps] * (per_gap / whole))[~guessed].sum())
    assumed, total = int(per_gap[~guessed].sum()), claim.ns + short_ns
    sure = int(per_gap[scene.gaps.proved[gaps]].sum())
    level, lower = Level.PROVED, sure
    if not coverage or sure < 0.5 * total:
        level, lower = Level.STRONG, assumed
    estimates = [
        one for one in scene.analysis.estimates if one.device in set(scene.gaps.device[gaps].tolist())
    ]
    if not estimates:
        return level, Range(lower, assumed + slack)
    if not all(one.agrees for one in estimates) and assumed < 0.5 * total:
        level = Level.HINT
    known = sum(one.idle_ns for one in estimates)
    doubt = sum(one.error_ns for one in estimates) * (total - assumed) / max(known, 1)
    return level, Range(lower, max(assumed + slack, total + int(doubt)), total)


def _widened(loss: Range, more_ns: int) -> Range:
    """With time that may belong to it, too."""
    return Range(loss.lower, loss.upper + more_ns, loss.estimate)


def _told(loss: Range) -> int:
    """What a loss is told to be, per step: the estimate, else what is sure."""
    return loss.lower if loss.estimate is None else loss.estimate


def _gain(cause: Cause, claim: Claim) -> int:
    """The most that the advised change can win.

    Work that goes away wins what it takes, and the calls that go with it. A wait that goes away lets host
    and GPU work side by side: of H + K a step max(H, K) is left, so it wins min(H, K), with H the host's
    time outside of waits for the GPU and K the time in them (docs/explain.md, "What a change can win").
    """
    scene = claim.scene
    if not cause.overlaps:
        return claim.ns + cause.more(claim)
    thread = int(scene.gaps.thread[claim.gaps[0]])
    calls = scene.evidence.calls
    rows = np.arange(*np.searchsorted(calls["row"], [thread, thread + 1]))
    low, high = scene.analysis.gpu.stretch
    rows = rows[(calls["end"][rows] > low) & (calls["begin"][rows] < high)]
    waits = rows[np.isin(scene.evidence.group(calls).take(rows), [Group.SYNC])]
    waited = int((calls["end"][waits] - calls["begin"][waits]).sum())
    reads = np.unique(scene.gap_facts.read_row[claim.gaps])
    reads = reads[(reads >= 0) & ~np.isin(reads, waits)]
    waited += int((calls["end"][reads] - calls["begin"][reads]).sum())
    return min(claim.ns, waited)
