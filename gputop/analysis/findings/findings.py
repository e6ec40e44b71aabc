"""Findings: the catalogue's causes claim their segments in turn, and losses that repeat are reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gputop.analysis.answer.report import Event, Finding, Gain, Level, Range, least_sure
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import Cause, CauseMatch, chain, usual_api
from gputop.analysis.chains.analysis import Analysis, walk
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.thread_places import done_once, hot_line
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.columns import Ints
from gputop.analysis.evidence.evidence import Column
from gputop.analysis.findings.evidence_text import blamed, even, grounds_of, line_of, ruled_out
from gputop.analysis.findings.gap_findings import (
    LEAST_GAPS,
    NO_SIZES,
    Sizes,
    gathered,
    lonely,
    short_gaps,
    sizes_of,
)
from gputop.analysis.findings.kernel_findings import traced_owners, with_ways_to_gpus
from gputop.analysis.proofs.gaps import Gaps
from gputop.engine.calls.stack_table import Line
from probes.code.source_files import is_library


def owners(scene: AttributionContext) -> Ints:
    """Return the row of ``CATALOGUE`` of each segment, -1 for none."""
    free = scene.does(State.RUN, State.QUEUED, State.BLOCKED, State.OUTSIDE)
    free |= scene.unrecorded
    owner, settled = traced_owners(scene)
    free &= ~settled
    for number, cause in enumerate(CATALOGUE):
        claimed = cause.claim(scene, free)
        owner[claimed] = number
        free = free & ~claimed  # another array: a cause may return all of it
    return with_ways_to_gpus(scene, owner)


# Owners of the time in which a GPU was perhaps idle already, before a call proved it.

LEAST_NS = 100_000  # shorter times between two calls have no owner, and are not worth a chain


@dataclass(frozen=True, slots=True)
class Possible:
    """Time before gaps in which the GPU may have been idle."""

    by_cause: dict[tuple[int, int], int]  # (row of the catalogue, process) -> ns
    left_ns: Ints  # the rest of each gap


def possible(scene: AttributionContext) -> Possible:
    """Attribute the time of each gap's draining thread before that call, since it last submitted work."""
    gaps, calls = scene.gaps, scene.evidence.calls
    slack = scene.gap_facts.slack_ns.copy()
    drained_by = np.maximum(gaps.drained_by, 0)
    begin = gaps.begin - slack
    end = np.minimum(gaps.begin, calls["begin"][drained_by]) if len(calls) else begin
    rows = np.flatnonzero((gaps.drained_by >= 0) & (end - begin >= LEAST_NS))
    if not len(rows):
        return Possible({}, slack)
    drained_by = drained_by[rows]
    thread = calls["row"][drained_by].astype(np.int64)
    before = np.maximum(drained_by - 1, 0)
    before = np.where(calls["row"][before] == thread, before, -1)
    never = np.zeros(len(rows), np.bool_)
    early = Gaps(begin[rows], end[rows], gaps.device[rows], before, drained_by, thread, never, never)
    walked = walk(scene.evidence, early, scene.analysis.polls)
    other = AttributionContext(Analysis(scene.evidence, scene.analysis.gpu, early, *walked), steps_of=scene)
    owner = owners(other)
    claimed = owner >= 0
    pids = scene.evidence.threads.pid[thread[other.segments.gap]]
    by_cause: dict[tuple[int, int], int] = {}
    columns = (column[claimed].tolist() for column in (owner, pids, other.ns))
    for number, pid, ns in zip(*columns, strict=True):
        by_cause[number, pid] = by_cause.get((number, pid), 0) + ns
    slack[rows] -= other.gap_ns(claimed)
    return Possible(by_cause, slack)


# From segments to findings and events.

LEAST_SHARE, LEAST_FINDING_NS = 0.02, 5_000_000  # a loss below both is not worth a change
SHORT_SHARE = 0.1  # of a span of less than 50 ms, in place of these ns
SUPPOSED_SHARE = 0.05  # an estimated loss must be larger, and larger than the error of the estimate
BRIEF_NS, BRIEF_SHARE = 150_000, 0.1  # an answer that comes so soon is worth a change from that share on
_MOMENTS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings and events of the gaps."""

    findings: tuple[Finding, ...]
    events: tuple[Event, ...]
    short_ns: int  # gaps too short to be followed, of causes without others
    unexplained_ns: int  # segments without a cause
    cause: Ints  # the catalogue's row of each segment's cause, -1 for none
    claims: tuple[tuple[Cause, CauseMatch], ...] = ()  # the match of each finding
    judged: tuple[Judged, ...] = ()  # every cause of every process, whether a finding or not


@dataclass(frozen=True, slots=True)
class Judged:
    """The loss of one process by one cause."""

    cause: Cause
    pid: int
    place: int | None  # of its finding among the findings; None where it is too little or too rare
    worth: bool  # True if it is a finding by this part alone
    loss: Range  # of the gaps that repeat
    # sure_ns, total_ns: of these: without an estimate, in all
    sure_ns: int
    total_ns: int
    gaps: int  # how many repeat
    usual: Sizes  # sizes of its gaps and of those of the causes beside it
    alone: Sizes  # sizes of its gaps that stand alone


def find(scene: AttributionContext, span_ns: int, *, coverage: bool, part: bool = False) -> Outcome:
    """Let every cause claim its segments, and judge them process by process.

    Args:
        scene: Everything.
        span_ns: The time that losses are measured by.
        coverage: False if nothing may be called proved.
        part: True for one of several parts: a rare or small loss in it may be a finding of all of them.
    """
    error_ns = float(sum(one.error_ns for one in scene.analysis.estimates))
    least = least_of(span_ns, error_ns, exact=scene.analysis.traced is not None)
    findings: list[Finding] = []
    judged: list[Judged] = []
    claims: list[tuple[Cause, CauseMatch]] = []
    events: list[Event] = []
    owner, early = owners(scene), possible(scene)
    short = short_gaps(scene, owner)
    processes = scene.evidence.threads.pid[scene.gaps.thread] if len(scene.gaps) else np.zeros(0, np.int64)
    for number, cause in enumerate(CATALOGUE):
        if not cause.fault:
            continue
        owned = owner == number
        beside = [row for row, other in enumerate(CATALOGUE) if row == number or other.number in cause.beside]
        for pid in np.unique(processes[scene.segments.gap[owned]]).tolist():
            here = processes[scene.segments.gap] == pid
            mine, alike = owned & here, np.isin(owner, beside) & here
            more = short.pop((number, pid), 0)
            one = _Candidate(scene, cause, pid, mine, alike, more, coverage=coverage)
            events += one.events(least)
            claim = one.claim if not part or len(one.claim.gaps) else one.every
            loss, place = Range(one.sure_ns, one.total_ns, one.total_ns), None
            if part:
                loss = one.loss(early.left_ns)
            worth = one.is_finding(least)
            if worth or (part and one.may_be_one(least)):
                place = len(findings)
                claims.append((cause, claim))
                short_ns = more if claim is one.claim else 0
                made = _finding(cause, claim, early.left_ns, short_ns, coverage=coverage)
                more_ns = early.by_cause.get((number, pid), 0)
                widened = replace(made.loss, upper=made.loss.upper + more_ns)
                findings.append(replace(made, loss=widened))
                loss = widened if claim is one.claim else loss
            judged.append(one.judged(place, loss, worth=worth, sizes=part))
    rest = int(scene.ns[owner < 0].sum())
    return Outcome(
        tuple(findings), tuple(events), sum(short.values()), rest, owner, tuple(claims), tuple(judged)
    )


@dataclass(frozen=True, slots=True)
class Least:
    """The least loss of a finding, ns: of a proved one, of an estimate, of brief answers."""

    proved: float
    supposed: float
    brief: float

    def reached(self, cause: Cause, sure_ns: float, total_ns: float, gaps: int) -> bool:
        """Return True if a loss in so many gaps is worth a change."""
        if cause.exchanges and total_ns < BRIEF_NS * gaps:  # two wakeups, of which a healthy pair has as many
            return total_ns >= self.brief
        return sure_ns >= self.proved or total_ns >= self.supposed


def least_of(span_ns: int, error_ns: float, *, exact: bool) -> Least:
    """Return the limits for a span.

    Args:
        span_ns: The time that losses are measured by.
        error_ns: The error of the estimates of all GPUs together.
        exact: True for the GPU's own clock: a loss is exact, however short the profile.
    """
    floor = 0 if exact else min(LEAST_FINDING_NS, SHORT_SHARE * span_ns)
    return Least(
        max(LEAST_SHARE * span_ns, floor),
        max(SUPPOSED_SHARE * span_ns, floor, error_ns),
        BRIEF_SHARE * span_ns,
    )


class _Candidate:
    """One process's gaps of one cause: those that repeat, and those that stand alone."""

    def __init__(
        self,
        scene: AttributionContext,
        cause: Cause,
        pid: int,
        mine: Column,
        alike: Column,
        short_ns: int,
        *,
        coverage: bool,
    ) -> None:
        """Judge the gaps.

        Args:
            scene: Everything.
            cause: The cause.
            pid: The process.
            mine: Mask of its segments.
            alike: Mask of the segments that show the usual size.
            short_ns: Shorter gaps that belong to the cause, too.
            coverage: False if nothing may be called proved.
        """
        self._scene, self._cause, self._pid, self._mine = scene, cause, pid, mine
        self._short_ns, self._coverage = short_ns, coverage
        self._per_gap, usual = scene.gap_ns(mine), scene.gap_ns(alike)
        self._gaps, among = np.flatnonzero(self._per_gap), np.flatnonzero(usual)
        self.usual = sizes_of(scene.gaps.begin[among], usual[among], scene.gaps.proved[among])
        self._alone = np.isin(self._gaps, among[lonely(self.usual)])
        alone = self._gaps[self._alone]
        self.alone = sizes_of(scene.gaps.begin[alone], self._per_gap[alone], scene.gaps.proved[alone])
        self.claim = _claim(scene, mine, self._gaps[~self._alone])
        self.total_ns = self.claim.ns + short_ns
        self.sure_ns = int(scene.ns[self.claim.segments & ~scene.estimated].sum())

    @cached_property
    def every(self) -> CauseMatch:
        """All its gaps, those that stand alone included."""
        return _claim(self._scene, self._mine, self._gaps)

    def events(self, least: Least) -> list[Event]:
        """Return the gaps that stand alone and are worth reporting."""
        gaps = self._gaps[self._alone & (self._per_gap[self._gaps] >= least.proved)].tolist()
        claims = (_claim(self._scene, self._mine, np.array([gap])) for gap in gaps)
        return [_event(self._cause, claim, coverage=self._coverage) for claim in claims]

    def is_finding(self, least: Least) -> bool:
        """Return True if the loss repeats and is worth a change."""
        gaps = len(self.claim.gaps)
        return gaps >= LEAST_GAPS and least.reached(self._cause, self.sure_ns, self.total_ns, gaps)

    def may_be_one(self, least: Least) -> bool:
        """Return True if it may be a finding together with other parts."""
        return 2 * int(self._scene.ns[self.every.segments].sum()) >= least.proved

    def loss(self, slack_ns: Ints) -> Range:
        """Return the loss that repeats."""
        if not len(self.claim.gaps):
            return Range(0, 0)
        per_gap = self._scene.gap_ns(self.claim.segments)[self.claim.gaps]
        return _loss(self.claim, per_gap, slack_ns, self._short_ns, coverage=self._coverage)[1]

    def judged(self, place: int | None, loss: Range, *, worth: bool, sizes: bool) -> Judged:
        """Return the judgement, with few rows of sizes where other parts follow."""
        usual = gathered(self.usual) if sizes else NO_SIZES
        alone = gathered(self.alone) if sizes else self.alone
        gaps = len(self.claim.gaps)
        return Judged(
            self._cause, self._pid, place, worth, loss, self.sure_ns, self.total_ns, gaps, usual, alone
        )


def _claim(scene: AttributionContext, mine: Column, gaps: Ints) -> CauseMatch:
    wanted = np.zeros(len(scene.gaps), np.bool_)
    wanted[gaps] = True
    return CauseMatch(scene, mine & wanted[scene.segments.gap], gaps)


def _event(cause: Cause, claim: CauseMatch, *, coverage: bool) -> Event:
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
    return None if line is None or is_library(line.file) else line


def _start(scene: AttributionContext) -> int:
    return int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))


def finding_of(scene: AttributionContext, cause: Cause, mine: Column) -> Finding:
    """Return the finding of a cause's segments, whether or not it is worth reporting."""
    claim = _claim(scene, mine, np.flatnonzero(scene.gap_ns(mine)))
    return _finding(cause, claim, np.zeros(len(scene.gaps), np.int64), 0, coverage=True)


def _finding(cause: Cause, claim: CauseMatch, slack_ns: Ints, short_ns: int, *, coverage: bool) -> Finding:
    scene, gaps = claim.scene, claim.gaps
    per_gap = scene.gap_ns(claim.segments)[gaps]
    idle_level, loss = _loss(claim, per_gap, slack_ns, short_ns, coverage=coverage)
    name_level = cause.level(claim)
    level = least_sure(idle_level, name_level)
    leader = int(scene.gaps.thread[gaps[np.argmax(per_gap)]])
    # a proved finding names no estimated moment
    named = scene.gaps.proved[gaps] if level == Level.PROVED else np.ones(len(gaps), np.bool_)
    worst = gaps[named][np.argsort(per_gap[named])[::-1][:_MOMENTS]]
    apart = (f"idle time: {idle_level}; its cause: {name_level}",) if idle_level is not name_level else ()
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
        (*grounds_of(cause, claim, per_gap, short_ns), *apart),
        ruled_out(claim),
        cause.advice(claim),
        Gain(_gain(cause, claim)),
        tuple((scene.gaps.begin[worst] - _start(scene)).tolist()),
        len(gaps),
        _per_step(claim, loss, per_gap),
        line_of(cause, claim),
        idle_level,
        name_level,
        scene.gpu_shares(scene.gaps.device[gaps], per_gap),
    )


def _per_step(claim: CauseMatch, loss: Range, per_gap: Ints) -> int | None:
    """Return the loss of a step, ns; None without steps, or where few of them lose nearly all of it."""
    steps = claim.steps
    if steps is None or not steps.count or not even(np.sort(per_gap)[::-1], steps.count):
        return None
    return (loss.lower if loss.estimate is None else loss.estimate) // steps.count


def _loss(
    claim: CauseMatch, per_gap: Ints, slack_ns: Ints, short_ns: int, *, coverage: bool
) -> tuple[Level, Range]:
    """Return (level, loss) of the idle time, whatever its cause; the lower bound is the proved part."""
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


def _gain(cause: Cause, claim: CauseMatch) -> int:
    """Return the most that the advised change can save, ns.

    Work that goes saves its time, and the calls that go with it. A wait that goes lets host and GPU work side
    by side: of H + K a step max(H, K) is left, so it saves min(H, K), with H the host's time outside of waits
    for the GPU and K the time in them (docs/explain.md, "What a change can win").
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
