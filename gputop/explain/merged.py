"""Explanations of the parts of one recording, joined into that of the whole; no engine in it.

``part_of`` makes a partial of one part's report, ``merge`` joins those of parts that follow each other, and
``finish`` makes the report. Exact, that is those of the whole, are the spans of the GPUs, their proved idle
time and the bounds of all of it, start-up and first use, and lost records; unless nobody gives a GPU work for
ten seconds across a border: then the time before it is missing. What is not exact, and said in a note:

- estimates are made part by part, from that part's samples and waits;
- what is too small or too rare for a finding in one part counts as small there, whatever it is in others;
- steps that lie across a border are counted twice or not at all, and their median is the mean of the parts';
- chain, sentences and moments of a finding are those of the part that lost most to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from gputop.explain.answer.account import whole
from gputop.explain.answer.graphs import GraphReport
from gputop.explain.answer.kernels import KernelReport
from gputop.explain.answer.notes import about_figures
from gputop.explain.answer.ranktimes import RankReport
from gputop.explain.answer.report import (
    Account,
    Diagnosis,
    DiagnosisKind,
    Event,
    Finding,
    GpuSpan,
    Level,
    Range,
    Report,
    StepFacts,
    StormCost,
    WhatIf,
    least_sure,
)
from gputop.explain.answer.sentence import verdict
from gputop.explain.answer.sums import added, counted
from gputop.explain.answer.wording import accounts_for
from gputop.explain.findings.diagnosis import LEAST, TITLES, class_of
from gputop.explain.findings.findings import LEAST_NS, LEAST_SHARE
from gputop.format import format_ns

MOST_EVENTS = 200  # the longest are told; the others are small gaps
MOST_NOTES = 32
TOO_LONG = "the recording is too long to be explained at once"
_WEAK = 0.05  # of a loss: so much of it decides how sure all of it is


@dataclass(frozen=True, slots=True)
class Lost:
    """One loss over some parts.

    Attributes:
        worst: The finding of the part that lost most.
        at: That part, ns since the start of the recording.
        parts: In so many parts.
        levels: Its loss by how sure that is there, ns.
        names: Its loss by how sure it is there that this cause took it, ns.
    """

    worst: Finding
    at: tuple[int, int]
    parts: int
    loss: Range
    gain_ns: int
    gaps: int
    levels: Mapping[Level, float]
    names: Mapping[Level, float]

    def joined(self, other: Lost) -> Lost:
        """This and another one together."""
        first = self if self.worst.loss.middle >= other.worst.loss.middle else other
        return Lost(
            first.worst,
            first.at,
            self.parts + other.parts,
            self.loss.plus(other.loss),
            self.gain_ns + other.gain_ns,
            self.gaps + other.gaps,
            _added(self.levels, other.levels),
            _added(self.names, other.names),
        )

    @property
    def idle_level(self) -> Level:
        """How sure it is that the time was lost."""
        return _weakest(self.levels, self.worst.idle_level)

    @property
    def name_level(self) -> Level:
        """How sure it is that this cause took it."""
        return _weakest(self.names, self.worst.name_level)


def _added(one: Mapping[Level, float], other: Mapping[Level, float]) -> dict[Level, float]:
    return {level: one.get(level, 0.0) + other.get(level, 0.0) for level in {*one, *other}}


def _weakest(levels: Mapping[Level, float], otherwise: Level) -> Level:
    """The least sure one that makes up more than a trifle of the time."""
    least = _WEAK * sum(levels.values())
    return next((one for one in reversed(list(Level)) if levels.get(one, 0.0) > least), otherwise)


@dataclass(frozen=True, slots=True)
class Partial:
    """What some parts that follow each other come to.

    Attributes:
        begin_ns, end_ns: Of them, CLOCK_MONOTONIC.
        last: The report of the last part: what it says of failures and memory holds for all.
        longest: The report of the part with the longest span: for what cannot be added up.
        accounts: By GPU.
        seen: By GPU: how long the parts are in which a process used it, ns; what is left is start-up or end.
        lost: By cause, kind and process.
        kinds: The class of each part, by the span of those that have it.
        steps: By (process, thread): count, sum of medians and of usual durations, each times the count.
        what_if: By causes: steps, then before, after and least of each, times the steps.
        storms: By (process, thread): name, switches, seconds, GPU time.
    """

    begin_ns: int
    end_ns: int
    parts: int
    longest: Report
    accounts: Mapping[str, Account]
    seen: Mapping[str, int]
    sums: Mapping[str, int]
    lost: Mapping[tuple[str, str, int], Lost]
    events: tuple[Event, ...]
    kinds: Mapping[DiagnosisKind | None, int]
    steps: Mapping[tuple[int, int], tuple[int, ...]]
    what_if: Mapping[tuple[str, ...], tuple[int, ...]]
    storms: Mapping[tuple[int, int], tuple[str, int, float, int]]
    kernels: KernelReport
    graphs: GraphReport
    ranks: RankReport
    cpu_waits: Mapping[int, int]
    coverage: bool
    notes: tuple[str, ...]
    last: Report


_SUMS = ("span_ns", "outside_ns", "small_ns", "unexplained_ns", "unknown_ns", "lost_events")


def part_of(report: Report, begin_ns: int) -> Partial:
    """The partial of one part.

    Args:
        report: Of the part.
        begin_ns: When the part begins, CLOCK_MONOTONIC.
    """
    low, end = begin_ns - report.start_ns, begin_ns + report.duration_ns
    at = (low, low + report.duration_ns)
    lost: dict[tuple[str, str, int], Lost] = {
        (one.cause, one.kind, one.pid): Lost(
            one,
            at,
            1,
            one.loss,
            one.max_gain_ns,
            one.gaps,
            {one.idle_level: one.loss.middle},
            {one.name_level: one.loss.middle},
        )
        for one in report.findings
    }
    own = about_figures([gpu.account for gpu in report.gpus], report.lost_events, report.unknown_ns)
    steps = report.steps
    chances = report.what_if
    count = steps.count if steps is not None else 0
    return Partial(
        begin_ns,
        end,
        1,
        report,
        {gpu.label: gpu.account for gpu in report.gpus},
        {gpu.label: report.duration_ns for gpu in report.gpus},
        {name: int(getattr(report, name)) for name in _SUMS},
        lost,
        report.events,
        {report.diagnosis.kind if report.diagnosis else None: report.span_ns},
        {(steps.pid, steps.tid): (count, steps.median_ns * count, steps.usual_ns * count)} if steps else {},
        {
            tuple(one.cause for one in chances): (
                count,
                *(ns * count for one in chances for ns in (one.before_ns, one.after_ns, one.least_ns)),
            )
        }
        if chances
        else {},
        {
            (one.pid, one.tid): (
                one.name,
                one.switches,
                one.switches / max(one.switches_per_second, 1e-9),
                one.gpu_ns,
            )
            for one in report.storms
        },
        report.kernels or KernelReport(report.duration_ns, {}, ()),
        report.graphs or GraphReport(),
        report.ranks or RankReport(),
        dict(report.cpu_waits),
        report.coverage,
        tuple(note for note in report.notes if note not in own),
        report,
    )


def merge(earlier: Partial, later: Partial) -> Partial:
    """The partial of two that follow each other."""
    lost = dict(earlier.lost)
    for key, one in later.lost.items():
        lost[key] = lost[key].joined(one) if key in lost else one
    accounts = dict(earlier.accounts)
    for label, account in later.accounts.items():
        accounts[label] = _both(accounts[label], account) if label in accounts else account
    events = sorted((*earlier.events, *later.events), key=lambda event: -event.ns)
    sums = {name: earlier.sums[name] + later.sums[name] for name in _SUMS}
    sums["small_ns"] += sum(event.ns for event in events[MOST_EVENTS:])
    storms = dict(earlier.storms)
    for thread, (name, switches, seconds, ns) in later.storms.items():
        _, before, time, gpu = storms.get(thread, (name, 0, 0.0, 0))
        storms[thread] = name, before + switches, time + seconds, gpu + ns
    longer = later.longest.span_ns > earlier.longest.span_ns
    return Partial(
        earlier.begin_ns,
        later.end_ns,
        earlier.parts + later.parts,
        later.longest if longer else earlier.longest,
        accounts,
        counted(earlier.seen, later.seen),
        sums,
        lost,
        tuple(events[:MOST_EVENTS]),
        counted(earlier.kinds, later.kinds),
        added(earlier.steps, later.steps),
        added(earlier.what_if, later.what_if),
        storms,
        earlier.kernels.joined(later.kernels),
        earlier.graphs.joined(later.graphs),
        earlier.ranks.joined(later.ranks),
        counted(earlier.cpu_waits, later.cpu_waits),
        earlier.coverage and later.coverage,
        tuple(dict.fromkeys((*earlier.notes, *later.notes)))[:MOST_NOTES],
        later.last,
    )


def finish(
    partial: Partial, pids: frozenset[int] | None = None, why: str = TOO_LONG, between_ns: int = 0
) -> Report:
    """The report; only findings and events of ``pids``, if there are any. Of one part its own.

    ``why`` says in words why it is in parts, ``between_ns`` is the time that is in none of them.
    """
    longest = partial.longest
    if partial.parts == 1 and pids is None:
        return longest
    duration = partial.end_ns - partial.begin_ns
    explained = duration - between_ns
    start, span = longest.start_ns, partial.sums["span_ns"]
    accounts = [partial.accounts[label] for label in sorted(partial.accounts)]
    idle = whole(accounts)
    scale = max((one.span_ns for one in accounts), default=0)
    steps = _steps(partial)
    least = max(LEAST_SHARE * scale, LEAST_NS)
    losses = [one for one in partial.lost.values() if pids is None or one.worst.pid in pids]
    worth = [one for one in losses if one.worst.kind != "idle" or one.loss.middle >= least]
    small = sum(int(one.loss.middle) for one in losses if one not in worth)
    worth.sort(key=lambda one: (-one.loss.middle, one.worst.kind != "idle"))
    findings = [_finding(one, partial, steps) for one in worth]
    diagnosis = _diagnosis(partial, findings, scale)
    unexplained = partial.sums["unexplained_ns"]
    return Report(
        start_ns=start,
        duration_ns=duration,
        verdict=verdict(sorted(partial.accounts), accounts, idle, span, findings, diagnosis, unexplained)
        if accounts
        else longest.verdict,
        diagnosis=diagnosis,
        idle=idle,
        span_ns=span,
        gpus=tuple(
            GpuSpan(label, account.span_ns, account.idle, account)
            for label, account in sorted(partial.accounts.items())
        ),
        steps=steps,
        outside_ns=partial.sums["outside_ns"] + sum(explained - ns for ns in partial.seen.values()),
        events=tuple(event for event in partial.events if pids is None or event.pid in pids),
        findings=tuple(findings),
        what_if=_what_if(partial, findings),
        storms=tuple(
            StormCost(pid, tid, name, switches, switches / max(seconds, 1e-9), ns)
            for (pid, tid), (name, switches, seconds, ns) in sorted(
                partial.storms.items(), key=lambda row: -row[1][1]
            )
        ),
        cpu_waits=tuple(sorted(partial.cpu_waits.items())),
        small_ns=partial.sums["small_ns"] + small,
        unexplained_ns=unexplained,
        unknown_ns=partial.sums["unknown_ns"],
        coverage=partial.coverage,
        lost_events=partial.sums["lost_events"],
        notes=(
            _in_parts(partial, why),
            *partial.notes,
            *about_figures(accounts, partial.sums["lost_events"], partial.sums["unknown_ns"]),
        ),
        failures=tuple(one for one in partial.last.failures if pids is None or one.pid in pids),
        memory=partial.last.memory and partial.last.memory.of(pids),
        kernels=partial.kernels.of(pids),
        graphs=partial.graphs.of(pids),
        ranks=partial.ranks.of(pids),
    )


def _in_parts(partial: Partial, why: str) -> str:
    return (
        f"{why}: {partial.parts} parts of it were, and joined. "
        "What is proved is the sum of all parts. Estimates are made part by part; the words, the chain and "
        "the moments of a finding are those of the part that lost most; a loss that is too small for a "
        "finding in one part is among the small gaps"
    )


def _both(one: Account, other: Account) -> Account:
    """The account of two parts; an estimate is known where hardly any time of either is unknown."""
    spans = one.span_ns + other.span_ns
    unknown = one.unknown_ns + other.unknown_ns
    source = one.source if one.span_ns >= other.span_ns else other.source
    seen = [(part.seen_busy, part.span_ns) for part in (one, other) if part.seen_busy is not None]
    weight = sum(ns for _share, ns in seen)
    errors = [part.error_ns for part in (one, other) if part.error_ns is not None]
    return Account(
        span_ns=spans,
        proved_ns=one.proved_ns + other.proved_ns,
        estimated_ns=one.estimated_ns + other.estimated_ns,
        busy_ns=one.busy_ns + other.busy_ns,
        unknown_ns=unknown,
        outside_ns=one.outside_ns + other.outside_ns,
        error_ns=sum(errors) if errors else None,
        source=(source or one.source or other.source) if unknown <= _WEAK * spans else None,
        agrees=one.agrees and other.agrees,
        seen_busy=sum((share or 0.0) * ns for share, ns in seen) / weight if weight else None,
        bounds=Range(one.bounds.lower + other.bounds.lower, one.bounds.upper + other.bounds.upper),
    )


def _steps(partial: Partial) -> StepFacts | None:
    if not partial.steps:
        return None
    (pid, tid), (count, median, usual) = max(partial.steps.items(), key=lambda row: row[1][0])
    return StepFacts(count, median // max(count, 1), usual // max(count, 1), pid, tid)


def _what_if(partial: Partial, findings: list[Finding]) -> tuple[WhatIf, ...]:
    """Of the parts whose largest loss is that of the whole."""
    wanted = {
        causes: row
        for causes, row in partial.what_if.items()
        if findings and causes[0] == findings[0].cause and row[0]
    }
    if not wanted:
        return ()
    causes, (count, *sums) = max(wanted.items(), key=lambda one: one[1][0])
    means = [ns // count for ns in sums]
    return tuple(
        WhatIf(cause, before, after, least)
        for cause, before, after, least in zip(causes, means[::3], means[1::3], means[2::3], strict=True)
    )


def _finding(one: Lost, partial: Partial, steps: StepFacts | None) -> Finding:
    worst, (low, high) = one.worst, one.at
    where = f"from {low / 1e9:.1f} to {high / 1e9:.1f} s"
    loss = format_ns(int(worst.loss.middle))
    return replace(
        worst,
        level=least_sure(one.idle_level, one.name_level),
        idle_level=one.idle_level,
        name_level=one.name_level,
        loss=one.loss,
        evidence=(
            f"{one.gaps} times in {one.parts} of {partial.parts} parts of the recording; what follows is of "
            f"the part {where}, which lost {loss}",
            *worst.evidence,
        ),
        max_gain_ns=one.gain_ns,
        gaps=one.gaps,
        per_step_ns=one.loss.lower // steps.count if steps is not None and steps.count else None,
    )


def _diagnosis(partial: Partial, findings: list[Finding], scale: int) -> Diagnosis | None:
    """The class that most of the time has in its parts, with its share of the whole."""
    if not partial.kinds:
        return None
    kind = max(partial.kinds, key=lambda one: partial.kinds[one])
    known = partial.longest.diagnosis
    lead = next((place for place, one in enumerate(findings) if kind and class_of(one) is kind), None)
    if kind is None or lead is None:
        return known if known is not None and known.kind == kind and known.lead is None else None
    taken = reduce(Range.plus, (one.loss for one in findings if class_of(one) is kind))
    if taken.middle < LEAST * scale:
        return None
    said = accounts_for(taken, partial.sums["span_ns"])
    return Diagnosis(kind, TITLES[kind], findings[lead].level, (said,), (), lead)
