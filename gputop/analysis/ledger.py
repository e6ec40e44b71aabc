"""The result of an explanation, in rows that add up, with a bounded number of examples.

A whole recording is one ledger, parts are the sum of theirs (``merge``), and a live report is the ledger of
the last full explanation with newer figures. ``report_of`` makes the report of any of them: it alone decides
which rows are findings, their order, the program's class and the verdict.

Exact are the spans of the GPUs, their proved idle time and its bounds, start-up and first use, losses by
cause and level, and lost records. Estimates do not add: each part makes its own, from its samples and waits.
Their sum keeps the source and the error; time of parts without an estimate counts as idle in the same share,
with all of it as error. Chain, texts and moments of a finding are those of the part that lost most to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from gputop.analysis.answer.kernel_report import ExactReport, GraphReport, KernelReport
from gputop.analysis.answer.memory_report import MemoryReport
from gputop.analysis.answer.picture import RankReport
from gputop.analysis.answer.report import (
    Account,
    Diagnosis,
    DiagnosisKind,
    Event,
    Finding,
    GpuSpan,
    Level,
    Range,
    Report,
    StormCost,
    WhatIf,
    joined,
    least_sure,
    settled,
    whole,
)
from gputop.analysis.answer.wording import ACCOUNTS, TIME, about_figures, loss_ns, verdict
from gputop.analysis.causes.cause import numbered
from gputop.analysis.evidence.power import Energy
from gputop.analysis.findings.diagnosis import Ground, Rows, class_of, class_of_rows, one_offs
from gputop.analysis.findings.findings import Least, least_of
from gputop.analysis.findings.gap_findings import LEAST_GAPS, NO_SIZES, Sizes, gathered, lonely, of_lateness
from gputop.analysis.findings.step_findings import Loops, step_facts
from gputop.documents.additive import (
    ALL,
    COUNTED,
    EITHER,
    LATER,
    NESTED,
    NESTED_ROWS,
    ROWS,
    SUM,
    Adds,
    added_up,
    by_key,
    counted,
    of_processes,
)
from gputop.engine.calls.failed_calls import Failure
from gputop.format import format_ns

MOST_EVENTS = 200  # the longest are reported; the others are small gaps
MOST_NOTES = 32
TOO_LONG = "the recording is too long to be explained at once"
_WEAK = 0.05  # of a loss: a level below this share does not count for the whole

Key = tuple[str, str, int]  # cause, kind of loss, process
Levels = Mapping[Level, float]


@dataclass(frozen=True, slots=True)
class Entry:
    """The loss of one cause in one process."""

    example: Finding | None  # the finding of the part that lost most; None where no part has enough for one
    at: tuple[int, int]  # that part, ns since the start of the recording
    loss: Annotated[Range, SUM]  # its repeated loss, with bounds
    # sure_ns, total_ns: of that, time in gaps that need no estimate, and all
    sure_ns: Annotated[int, SUM]
    total_ns: Annotated[int, SUM]
    gain_ns: Annotated[int, SUM]  # the gain of its fix, at most
    gaps: Annotated[int, SUM]  # number of gaps
    levels: Annotated[Levels, COUNTED]  # its loss by the level of the idle time, ns
    names: Annotated[Levels, COUNTED]  # its loss by the level of the attribution, ns
    kinds: Annotated[Mapping[DiagnosisKind | None, float], COUNTED]  # its loss by class, ns
    # sizes of its gaps and of those of the causes beside it
    usual: Annotated[Sizes, Adds(gathered)] = field(default_factory=lambda: NO_SIZES)
    # its gaps that stood alone in their part
    alone: Annotated[Sizes, Adds(gathered)] = field(default_factory=lambda: NO_SIZES)
    parts: Annotated[int, SUM] = 1  # number of parts with it
    gone_ns: Annotated[int, SUM] = 0  # work of the GPU that its fix removes
    settled: Annotated[bool, EITHER] = False  # True if it is known to be a finding

    @property
    def kind(self) -> DiagnosisKind | None:
        """The class with most of the loss."""
        return max(self.kinds, key=lambda one: self.kinds[one], default=None)

    def joined(self, other: Entry) -> Entry:
        """Return the sum with another entry."""
        mine, its = (one.example.loss.middle if one.example else -1.0 for one in (self, other))
        first = self if mine >= its else other
        return replace(added_up(self, other), example=first.example, at=first.at)

    def rejudged(self) -> tuple[Entry, set[int]]:
        """(this with the gaps that stood alone in their part only, begins of those that still do)."""
        if not len(self.alone):
            return self, set()
        still = np.isin(self.alone["begin"], self.usual["begin"][lonely(self.usual)])
        back = self.alone[~still]
        lengths = back["ns"] * back["count"]
        ns, sure = int(lengths.sum()), int(lengths[back["proved"]].sum())
        example = self.example
        level, name = (example.idle_level, example.name_level) if example else (Level.STRONG, Level.STRONG)
        entry = replace(
            self,
            loss=self.loss + Range(sure, ns, None if self.loss.estimate is None else ns),
            sure_ns=self.sure_ns + ns,
            total_ns=self.total_ns + ns,
            gain_ns=self.gain_ns + ns,
            gaps=self.gaps + int(back["count"].sum()),
            levels=counted(self.levels, {level: float(ns)}),
            names=counted(self.names, {name: float(ns)}),
            alone=self.alone[still],
        )
        return entry, set(entry.alone["begin"].tolist())

    def is_finding(self, least: Least) -> bool:
        """True if it repeats and reaches the threshold."""
        if self.settled or self.example is None or self.gaps < LEAST_GAPS:
            return self.settled
        return least.reached(numbered(self.example.cause), self.sure_ns, self.total_ns, self.gaps)

    def finding(self, parts: int, steps: int) -> Finding:
        """Return the finding, of so many parts and so many steps."""
        example = self.example
        assert example is not None  # is_finding
        if parts == 1:
            return example
        idle, name = (_weakest(levels, example.idle_level) for levels in (self.levels, self.names))
        low, high = self.at
        text = (
            f"{self.gaps} times in {self.parts} of {parts} parts of the recording; the rest is from the part "
            f"from {low / 1e9:.1f} to {high / 1e9:.1f} s, which lost {format_ns(int(example.loss.middle))}"
        )
        return replace(
            example,
            level=least_sure(idle, name),
            idle_level=idle,
            name_level=name,
            loss=self.loss,
            evidence=(text, *example.evidence),
            gain=replace(example.gain, ns=self.gain_ns, work_ns=self.gone_ns),
            gaps=self.gaps,
            per_step_ns=loss_ns(self.loss) // steps if steps and example.per_step_ns is not None else None,
        )


def entry_of(finding: Finding, kind: DiagnosisKind | None, at: tuple[int, int] = (0, 0)) -> Entry:
    """Return the entry of a finding, of a class, in a part."""
    middle = finding.loss.middle
    return Entry(
        finding,
        at,
        finding.loss,
        int(middle),
        int(middle),
        finding.gain.ns,
        finding.gaps,
        {finding.idle_level: middle},
        {finding.name_level: middle},
        {kind: max(middle, 1.0)},
        gone_ns=finding.gain.work_ns,
        settled=True,
    )


def _weakest(levels: Levels, otherwise: Level) -> Level:
    """The least sure level with more than ``_WEAK`` of the time."""
    least = _WEAK * sum(levels.values())
    return next((one for one in reversed(list(Level)) if levels.get(one, 0.0) > least), otherwise)


@dataclass(frozen=True, slots=True)
class ThreadStorm:
    """A thread with very many context switches."""

    name: str
    switches: Annotated[int, SUM]
    seconds: Annotated[float, SUM]
    gpu_ns: Annotated[int, SUM]

    @property
    def rate(self) -> float:
        """Switches a second."""
        return self.switches / max(self.seconds, 1e-9)


def _by_key(both: Callable[[Any, Any], Any]) -> Adds:
    return Adds(lambda one, later: by_key(one, later, both))


def _longest(one: Sequence[Event], later: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(sorted((*one, *later), key=lambda event: -event.ns)[:MOST_EVENTS])


def _of_longest(one: Ground, later: Ground) -> Ground:
    return later if later.span_ns > one.span_ns else one


def _noted(one: Sequence[str], later: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *later)))[:MOST_NOTES]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The sums and examples of a stretch of time."""

    start_ns: int  # start of the recording; all moments count from it
    # begin_ns, end_ns: the stretch, CLOCK_MONOTONIC
    begin_ns: int
    end_ns: Annotated[int, LATER]
    accounts: Annotated[Mapping[str, Account], _by_key(joined)]  # by GPU
    # by GPU: length of the parts in which a process used it, ns; the rest is start-up or end
    seen: Annotated[Mapping[str, int], COUNTED]
    # outside_ns, short_ns, unexplained_ns, unknown_ns, lost_events: as of ``Report`` and ``Outcome``
    outside_ns: Annotated[int, SUM]
    short_ns: Annotated[int, SUM]
    unexplained_ns: Annotated[int, SUM]
    unknown_ns: Annotated[int, SUM]
    lost_events: Annotated[int, SUM]
    exact: Annotated[bool, ALL]  # True if GPU time is from the GPU's own clock
    entries: Annotated[Mapping[Key, Entry], _by_key(Entry.joined)]  # losses by cause, kind and process
    events: Annotated[tuple[Event, ...], Adds(_longest)]
    once: Annotated[Rows, ROWS]  # losses that are no finding of their part, by cause and text
    no_requests_ns: Annotated[float, SUM]  # idle time without requests
    # the texts of each class, of the part with the longest span
    grounds: Annotated[Mapping[DiagnosisKind | None, Ground], _by_key(_of_longest)]
    spans: Annotated[Mapping[DiagnosisKind | None, int], COUNTED]  # GPU time of the parts of each class
    loops: Annotated[Mapping[tuple[int, int], Loops], _by_key(Loops.joined)]
    # by causes: steps, then before, after and least of each, times the steps
    what_if: Annotated[Mapping[tuple[str, ...], tuple[int, ...]], ROWS]
    storms: Annotated[Mapping[tuple[int, int], ThreadStorm], NESTED_ROWS]  # by (process, thread)
    cpu_waits: Annotated[Mapping[int, int], COUNTED]
    coverage: Annotated[bool, ALL]
    notes: Annotated[tuple[str, ...], Adds(_noted)]
    nothing: str  # the sentence where no GPU had work
    # failures, memory: at the end
    failures: Annotated[tuple[Failure, ...], LATER]
    memory: Annotated[MemoryReport | None, LATER]
    kernels: Annotated[KernelReport, NESTED]
    exact_work: Annotated[ExactReport, NESTED]
    graphs: Annotated[GraphReport, NESTED]
    ranks: Annotated[RankReport, NESTED]
    energy: Annotated[Energy, NESTED]
    parts: Annotated[int, SUM] = 1


def merge(earlier: Ledger, later: Ledger) -> Ledger:
    """Return the ledger of two consecutive parts."""
    return replace(added_up(earlier, later), nothing=later.nothing if later.accounts else earlier.nothing)


def ranked(findings: Sequence[Finding]) -> list[int]:
    """Return the findings' places, most expensive first; a straggler includes its cost to other ranks."""
    moved = of_lateness(findings)
    return sorted(
        range(len(findings)),
        key=lambda place: (-findings[place].loss.middle - moved[place], findings[place].kind != "idle"),
    )


LEFT = "limited to the time that the savings above leave"


def _by_gpu(labels: Sequence[str], accounts: Sequence[Account]) -> dict[int, tuple[int, int]]:
    """Return (time, most idle time) by the GPU's index; those without one are numbered below zero."""
    numbers = [label.removeprefix("GPU ") for label in labels]
    return {
        int(number) if number.isdigit() else -1 - place: (
            account.span_ns,
            max(account.idle.upper, account.idle.estimate or 0),
        )
        for place, (number, account) in enumerate(zip(numbers, accounts, strict=True))
    }


@dataclass(slots=True)
class _Left:
    """What is left to be saved of some GPUs' time, and of their idle time, ns."""

    span_ns: int
    idle_ns: int

    def most(self, finding: Finding) -> int:
        """The most that a finding may save; of idle time no more than that, and the work that goes."""
        return min(self.span_ns, self.idle_ns + finding.gain.work_ns) if _is_idle(finding) else self.span_ns

    def spend(self, finding: Finding, ns: int) -> None:
        self.span_ns -= ns
        self.idle_ns -= max(ns - finding.gain.work_ns, 0) if _is_idle(finding) else 0


def _is_idle(finding: Finding) -> bool:
    return finding.kind == "idle"


def shared_out(findings: Sequence[Finding], gpus: Mapping[int, tuple[int, int]]) -> list[Finding]:
    """Return ranked findings with gains limited so that they add up to at most the GPUs' time.

    Those of idle time add up to at most the idle time, and the work of the GPU that goes with them; those of
    a process to that of one of its GPUs.

    Args:
        findings: The findings.
        gpus: (time, most idle time) of each GPU by index; of GPUs without one by any other number.
    """
    if not any(span_ns for span_ns, _idle_ns in gpus.values()):
        return list(findings)
    every = _Left(*map(sum, zip(*gpus.values(), strict=True)))
    used: dict[int, set[int]] = {}
    for one in findings:
        used.setdefault(one.pid, set()).update(index for index, _share in one.gpu_shares)
    own = {
        pid: _Left(*map(max, zip(*(gpus[index] for index in indices), strict=True)))
        for pid, indices in used.items()
        if indices and indices <= gpus.keys()
    }
    made: list[Finding] = []
    for one in findings:
        lefts = [every, own.get(one.pid, every)]
        ns = max(min(one.gain.ns, *(left.most(one) for left in lefts)), 0)
        for left in {id(left): left for left in lefts}.values():
            left.spend(one, ns)
        because = LEFT if made and ns < one.gain.ns else one.gain.because
        made.append(replace(one, gain=replace(one.gain, ns=ns, because=because)))
    return made


def report_of(
    ledger: Ledger, pids: frozenset[int] | None = None, why: str = TOO_LONG, between_ns: int = 0
) -> Report:
    """Return the report.

    Args:
        ledger: Of a whole recording, of parts, of the last seconds.
        pids: Only findings and events of these processes; GPU idle time is that of all.
        why: Why it is in parts, as text.
        between_ns: The time that is in none of them.
    """
    labels, accounts = [*ledger.accounts], [settled(account) for account in ledger.accounts.values()]
    idle, span = whole(accounts), sum(one.span_ns for one in accounts)
    entries, events, small_ns = _sorted_out(ledger, accounts)
    loops = max(ledger.loops.values(), key=lambda one: one.count, default=None)
    found = [
        (entry.finding(ledger.parts, loops.count if loops is not None else 0), entry.kind)
        for entry in entries
        if entry.example is not None
    ]
    found = [found[place] for place in ranked([finding for finding, _kind in found])]
    findings = shared_out([finding for finding, _kind in found], _by_gpu(labels, accounts))
    chosen = [place for place, one in enumerate(findings) if pids is None or one.pid in pids]
    findings, kinds = [findings[place] for place in chosen], [found[place][1] for place in chosen]
    diagnosis = _diagnosis(ledger, findings, kinds, sum(event.ns for event in events), accounts)
    events = [event for event in events if pids is None or event.pid in pids]
    steps = step_facts(loops, findings, gpus=bool(accounts)) if loops is not None else None
    once = one_offs(ledger.once, findings, accounts, events)
    explained_ns = ledger.end_ns - ledger.begin_ns - between_ns
    return Report(
        start_ns=ledger.start_ns,
        duration_ns=ledger.end_ns - ledger.begin_ns,
        verdict=verdict(labels, accounts, idle, span, findings, diagnosis, ledger.unexplained_ns, once, steps)
        if accounts
        else ledger.nothing,
        diagnosis=diagnosis,
        idle=idle,
        span_ns=span,
        gpus=tuple(
            GpuSpan(label, one.span_ns, one.idle, one) for label, one in zip(labels, accounts, strict=True)
        ),
        steps=steps,
        outside_ns=ledger.outside_ns + sum(explained_ns - ns for ns in ledger.seen.values()),
        events=tuple(events),
        findings=tuple(findings),
        what_if=_what_if(ledger, findings),
        storms=tuple(
            StormCost(*thread, one.name, one.switches, one.rate, one.gpu_ns)
            for thread, one in sorted(ledger.storms.items(), key=lambda row: -row[1].rate)
        ),
        cpu_waits=tuple(sorted(ledger.cpu_waits.items())),
        small_ns=small_ns,
        unexplained_ns=ledger.unexplained_ns,
        unknown_ns=ledger.unknown_ns,
        coverage=ledger.coverage,
        lost_events=ledger.lost_events,
        notes=(
            *((_in_parts(ledger, why),) if ledger.parts > 1 else ()),
            *ledger.notes,
            *about_figures(accounts, ledger.lost_events, ledger.unknown_ns),
        ),
        failures=tuple(one for one in ledger.failures if pids is None or one.pid in pids),
        memory=ledger.memory and of_processes(ledger.memory, pids),
        kernels=ledger.kernels.of(pids),
        exact=ledger.exact_work.of(pids),
        graphs=ledger.graphs.of(pids),
        ranks=ledger.ranks.of(pids),
        energy=ledger.energy if ledger.energy.gpus else None,
    )


def _sorted_out(ledger: Ledger, accounts: Sequence[Account]) -> tuple[list[Entry], list[Event], int]:
    """(the entries that are findings, gaps to report alone, explained time that is neither, ns)."""
    scale = max((one.span_ns for one in accounts), default=0)
    least = least_of(scale, float(sum(one.error_ns or 0 for one in accounts)), exact=ledger.exact)
    found, small_ns = [], ledger.short_ns
    alone: dict[tuple[str, int], set[int]] = {}
    for (cause, kind, pid), entry in ledger.entries.items():
        one, still = entry.rejudged() if ledger.parts > 1 else (entry, set(entry.alone["begin"].tolist()))
        if one.is_finding(least):
            found.append(one)
        elif kind == "idle":
            small_ns += one.total_ns
        small_ns += int((one.alone["ns"] * one.alone["count"]).sum())
        alone[cause, pid] = still
    events = [
        event
        for event in sorted(ledger.events, key=lambda event: -event.ns)
        if event.time_ns in alone.get((event.cause, event.pid), set()) and event.ns >= least.proved
    ]
    return found, events, small_ns - sum(event.ns for event in events)


def _in_parts(ledger: Ledger, why: str) -> str:
    return (
        f"{why}: {ledger.parts} parts were analysed and joined. Estimates are made part by part; the texts, "
        "the chain and the moments of a finding are those of the part that lost most"
    )


def _what_if(ledger: Ledger, findings: Sequence[Finding]) -> tuple[WhatIf, ...]:
    """The projections of the parts whose largest loss is that of the whole."""
    first = next((one.cause for one in findings if one.kind == "idle"), None)
    wanted = {causes: row for causes, row in ledger.what_if.items() if causes[0] == first and row[0]}
    if not wanted:
        return ()
    causes, (count, *sums) = max(wanted.items(), key=lambda one: one[1][0])
    means = [ns // count for ns in sums]
    return tuple(
        WhatIf(cause, before, after, least)
        for cause, before, after, least in zip(causes, means[::3], means[1::3], means[2::3], strict=True)
    )


def _diagnosis(
    ledger: Ledger,
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    once_ns: int,
    accounts: Sequence[Account],
) -> Diagnosis | None:
    """The class by the losses; its texts, and those of a busy GPU, are one part's."""
    if ledger.exact:
        return _of_most(ledger, findings, ledger.spans)
    found, idle = class_of_rows(findings, kinds, ledger.no_requests_ns, once_ns, accounts)
    if found is None:
        busy = {kind: ns for kind, ns in ledger.spans.items() if _is_busy(ledger.grounds[kind].diagnosis)}
        return _of_most(ledger, findings, busy) if idle is not None else None
    ground = ledger.grounds.get(found.kind)
    if found.lead is not None or ground is None or ground.diagnosis is None:
        return found
    # the share is that of all parts; the place of the wait is from one
    known, (text, *more) = ground.diagnosis, ground.diagnosis.evidence
    client, _, share = text.partition(ACCOUNTS)
    text = client + found.evidence[0] + share.partition(TIME)[2]
    return replace(found, evidence=(text, *more), advice=known.advice, line=known.line)


def _is_busy(diagnosis: Diagnosis | None) -> bool:
    return (
        diagnosis is not None and diagnosis.lead is None and diagnosis.kind is not DiagnosisKind.NO_REQUESTS
    )


def _of_most(
    ledger: Ledger, findings: Sequence[Finding], spans: Mapping[DiagnosisKind | None, int]
) -> Diagnosis | None:
    """The class of most of the time."""
    if not spans:
        return None
    kind = max(spans, key=lambda one: spans[one])
    diagnosis = ledger.grounds[kind].diagnosis
    if diagnosis is None or diagnosis.lead is None:
        return diagnosis
    lead = next((place for place, one in enumerate(findings) if class_of(one) is kind), None)
    return replace(diagnosis, lead=lead) if lead is not None else None
