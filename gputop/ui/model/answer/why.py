"""The content of the WHY panel: each GPU's idle range, the first two causes, the fix of the first.

``why_of(explained, frame)`` returns a ``Why``; ``gputop.ui.model.answer.whylines`` makes its lines. All
shares are from 0 to 1.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.analysis.answer.wording import ends_of, loss_ns, saved_joules, saved_of_step
from gputop.engine.frame import Frame
from gputop.format import NS_PER_S, format_count, format_duration, format_ns
from gputop.playback.feed import OLD_NS, Explained

if TYPE_CHECKING:
    from gputop.analysis.answer.picture import Lanes
    from gputop.analysis.answer.report import Finding, GpuSpan, Report
    from gputop.analysis.evidence.gatherer import End

MOST_CAUSES = 2
_ENOUGH_NS = NS_PER_S  # before, and with fewer than _ENOUGH_STEPS, "no recurring stall" would be early
_ENOUGH_STEPS = 3
_EARLY_NS = 4 * NS_PER_S  # before, "unknown" would be early
_MOSTLY = 0.5  # of a GPU's time: if more is unknown, its idle time is unknown
_UNEXPLAINED = 0.02  # of the time, from which on an unknown chain is reported
_MINUTES_FROM_S = 100  # times are in seconds before
_UNTRACED = "unknown without eBPF, which traces CUDA calls: gputop check shows what is missing"
_NONE = "no process has made a CUDA call yet: gputop lists each from its first call on"
_EARLY = "too few CUDA calls so far to tell when the GPU works"


@dataclass(frozen=True, slots=True)
class GpuIdle:
    """A GPU's idle time, as shares of its time."""

    label: str  # ``GPU 0``
    proved: float  # provably idle: the lower end of the range
    estimated: float  # further idle time by the estimate, with its error
    unknown: float  # neither; the rest is busy
    unestimated: bool  # True if neither a source nor a finding covers most of the time
    about: float | None = None  # the estimate, as in the verdict; None without one

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.proved, self.estimated, self.unknown

    @property
    def high(self) -> float:
        return sum(self.parts)


@dataclass(frozen=True, slots=True)
class PanelCause:
    """A finding in the panel."""

    number: str  # ``C05``
    title: str
    level: str
    # low, high: its share of the time: certain, and presumed
    low: float
    high: float
    per_step_ns: tuple[float, float] | None  # (low, high) per step; None without steps
    step_ns: int | None  # the length of a step; None if the steps are another process's
    line: str  # ``transfers.py:60``, "" if unknown
    overhead: bool  # True if it costs the host, not the GPU


@dataclass(frozen=True, slots=True)
class Fix:
    """A change, and its largest saving: ns per step, or of the whole window without steps."""

    reason: str  # the basis of the advice, or ""
    text: str
    saves_ns: int
    per_step: bool
    older_ns: int = 0  # how much older than the figures the advice is; 0 if little
    saves_joules: float | None = None  # the energy saved, at most


@dataclass(frozen=True, slots=True)
class Why:
    """The content of the panel."""

    when: str = ""  # ``last 10 s, 0.4 s old``, "" without an explanation
    old: bool = False  # True if it is drawn as old
    kind: str = ""  # the class: ``input-bound``, "" if unknown
    level: str = ""  # the level of the class
    gpus: tuple[GpuIdle, ...] = ()  # by index
    causes: tuple[PanelCause, ...] = ()  # at most two, that of the class first
    more: int = 0  # the number of further findings
    fix: Fix | None = None  # the fix of the first cause
    text: str = ""  # a sentence in place of causes
    doubts: tuple[str, ...] = ()  # reasons for doubt, in a few words each
    calm: bool = False  # True if nothing is wrong: the GPU is busy, or has no work


def why_of(explained: Explained, frame: Frame, outcome: str = "") -> Why:
    """Return the panel's content at a frame.

    Args:
        explained: The explanation.
        frame: The frame shown.
        outcome: How the command ended, or "".
    """
    report = explained.report
    if not frame.calls_observed:
        return Why(text=_UNTRACED)
    if explained.problem:
        return Why(text=explained.problem)
    if report is None or not report.gpus:
        return Why(text=_without_work(frame, explained, outcome))
    age_ns = frame.time_ns - explained.end_ns
    diagnosis = report.diagnosis
    kind = diagnosis.title.partition(" (")[0] if diagnosis is not None and diagnosis.kind is not None else ""
    findings = in_order(report)
    shown = findings[:MOST_CAUSES]
    return Why(
        when=ended_text(explained.ended, frame.time_ns)
        if explained.ended is not None
        else _when(report.duration_ns, age_ns, first_look=explained.first_look),
        old=explained.first_look or (explained.ended is None and abs(age_ns) >= OLD_NS),
        kind=kind,
        level=str(diagnosis.level) if diagnosis is not None and kind else "",
        gpus=tuple(idle_of(gpu, explained=bool(shown)) for gpu in report.gpus),
        causes=tuple(panel_cause(finding, report) for finding in shown),
        more=len(findings) - len(shown),
        fix=_fix(shown[0], report, explained.detail_age_ns) if shown else None,
        text="" if shown else _without_causes(report, explained.lanes),
        doubts=tuple(_doubts(report)),
        calm=not shown or (diagnosis is not None and bool(kind) and diagnosis.lead is None),
    )


def _when(duration_ns: int, age_ns: int, *, first_look: bool) -> str:
    """Return the explained time and its age, in words of constant width."""
    span = f"{duration_ns / NS_PER_S:.0f} s" if duration_ns >= NS_PER_S else format_ns(duration_ns)
    if first_look:
        return f"first look at {span}, still reading"
    if age_ns < 0:
        return f"{span} window ending {format_ns(-age_ns)} after this moment"
    return f"last {span}, {age_ns / NS_PER_S:.1f} s old"


def ended_text(end: End, now_ns: int) -> str:
    """Return how the last process ended: ``python 1234 ended 12 s ago, status 1``."""
    name = f"{end.name} {end.pid}".strip()
    ago = f"{_seconds(now_ns - end.time_ns)} ago"
    if end.code is None:
        return f"{name} ended {ago}"
    if not os.WIFSIGNALED(end.code):
        return f"{name} ended {ago}, status {os.WEXITSTATUS(end.code)}"
    number = os.WTERMSIG(end.code)
    known = number in {*signal.Signals}
    return f"{name} killed {ago} by {signal.Signals(number).name if known else f'signal {number}'}"


def _seconds(ns: int) -> str:
    """Return a passed time, in whole seconds or minutes."""
    seconds = max(ns, 0) // NS_PER_S
    return f"{seconds} s" if seconds < _MINUTES_FROM_S else format_duration(seconds * NS_PER_S)


def _without_work(frame: Frame, explained: Explained, outcome: str) -> str:
    """Return why there is no GPU time; never "no call" while calls are recorded."""
    end = explained.ended
    if end is not None:
        return f"{ended_text(end, frame.time_ns)}: too few CUDA calls to tell when the GPU worked"
    if any(row.calls for row in frame.processes):
        return _EARLY
    alive = [row for row in frame.processes if row.exited_ns is None]
    if alive and explained.called_ns:
        who = f"{alive[0].name} ({alive[0].pid})" if len(alive) == 1 else f"none of {len(alive)} processes"
        verb = "has made no" if len(alive) == 1 else "has made a"
        return f"{who} {verb} CUDA call for {_seconds(frame.time_ns - explained.called_ns)}"
    if len(alive) == 1:
        return f"{alive[0].name} ({alive[0].pid}) has made no CUDA call yet"
    if alive:
        return f"none of {len(alive)} processes has made a CUDA call yet"
    if outcome:
        return f"{outcome} without a CUDA call"
    last = max(frame.processes, key=lambda row: row.exited_ns or 0, default=None)
    if last is None:
        return _NONE
    ago = _seconds(frame.time_ns - (last.exited_ns or 0))
    return f"{last.name} {last.pid} ended {ago} ago; no process makes CUDA calls now"


def in_order(report: Report) -> list[Finding]:
    """Return the finding of the class, then the others by cost."""
    lead = report.diagnosis.lead if report.diagnosis is not None else None
    if lead is None:
        lead = next((place for place, one in enumerate(report.findings) if one.kind == "idle"), None)
    first = [] if lead is None else [report.findings[lead]]
    return first + [one for place, one in enumerate(report.findings) if place != lead]


def idle_of(gpu: GpuSpan, *, explained: bool = True) -> GpuIdle:
    """Return a GPU's idle time; ``explained``: there is a finding."""
    account, span = gpu.account, max(gpu.span_ns, 1)
    most = account.bounds.upper - account.proved_ns - account.unknown_ns
    estimated = min(account.estimated_ns + (account.error_ns or 0), max(most, account.estimated_ns))
    unestimated = not explained and account.source is None and account.unknown_ns > _MOSTLY * span
    about = None if gpu.idle.estimate is None else gpu.idle.estimate / span
    parts = account.proved_ns / span, estimated / span, account.unknown_ns / span
    return GpuIdle(gpu.label, *parts, unestimated, about)


def panel_cause(finding: Finding, report: Report) -> PanelCause:
    low, high = ends_of(finding.loss)
    span, steps = max(report.span_ns, 1), report.steps
    per_step = None
    if finding.per_step_ns is not None and loss_ns(finding.loss):
        part = finding.per_step_ns / finding.loss.middle if finding.loss.middle else 0.0
        per_step = low * part, high * part
    return PanelCause(
        number=finding.cause,
        title=finding.title,
        level=str(finding.level),
        low=low / span,
        high=high / span,
        per_step_ns=per_step,
        step_ns=steps.usual_ns if steps is not None and steps.pid == finding.pid else None,
        line=_place(finding, report),
        overhead=finding.kind != "idle",
    )


def _place(finding: Finding, report: Report) -> str:
    """Return the line, with the process if another one's finding reads alike."""
    line = finding.line.brief if finding.line is not None else ""
    alike = any(
        other.title == finding.title and other.line == finding.line and other.pid != finding.pid
        for other in report.findings
    )
    if not alike:
        return line
    return f"{line} ({finding.pid})" if line else f"pid {finding.pid}"


def _fix(finding: Finding, report: Report, older_ns: int) -> Fix | None:
    """Return the first advice; its reason stands before its first colon."""
    if not finding.advice:
        return None
    reason, _colon, text = finding.advice[0].partition(": ")
    reason, text = (reason, text) if text else ("", reason)
    older_ns = older_ns if older_ns >= OLD_NS else 0
    step = saved_of_step(finding, report)
    if step is None:
        joules = saved_joules(report, finding, finding.gain.ns)
        return Fix(reason, text, finding.gain.ns, False, older_ns, joules)
    return Fix(reason, text, step[0], True, older_ns, saved_joules(report, finding, step[0]))


def _without_causes(report: Report, lanes: Lanes | None) -> str:
    """Return the sentence without a recurring loss."""
    diagnosis = report.diagnosis
    if diagnosis is not None and diagnosis.kind is not None and diagnosis.evidence:
        return diagnosis.evidence[0]
    if not report.span_ns:
        busy = lanes is not None and lanes.busy_share > _MOSTLY
        return "the GPU was never seen idle" if busy else "no GPU work completed in this time"
    silent = [gpu.account.unknown_ns for gpu in report.gpus if gpu.account.source is None]
    unestimated = sum(silent) > _MOSTLY * report.span_ns
    steps = report.steps.count if report.steps is not None else 0
    few = report.span_ns < _ENOUGH_NS and steps < _ENOUGH_STEPS
    if few or (unestimated and report.span_ns < _EARLY_NS):
        return "not enough data yet"
    if report.unexplained_ns > _UNEXPLAINED * report.span_ns:
        return f"the chain is unknown for {format_ns(report.unexplained_ns)}"
    if unestimated:
        return "unknown: the program seldom waits, and nothing else shows when the GPU works"
    return "no recurring stall"


def _doubts(report: Report) -> list[str]:
    doubts = [] if report.coverage else ["NVML disagrees"]
    if not all(gpu.account.agrees for gpu in report.gpus):
        doubts.append("sources disagree")
    if report.lost_events:
        doubts.append(f"lost {format_count(report.lost_events)}")
    return doubts
