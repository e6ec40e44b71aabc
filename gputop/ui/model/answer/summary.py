"""The summary of a process: run time, steps, idle time, first causes, energy, its recording.

Call ``Runs.consume(frame, explained)`` with each frame. Explanations overlap: only the new share of each
counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.engine.frame import Frame, ProcessRow
from gputop.format import (
    NS_PER_S,
    format_count,
    format_joules,
    format_ns,
    format_percent,
)
from gputop.playback.feed import Explained
from gputop.ui.model.answer.whylines import LEVEL_TOKENS, WIDE
from gputop.ui.model.listing.process_table import format_run
from gputop.ui.model.look import Glyphs, Line, paragraph

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Finding, Report

MOST_RUNS = 256
MOST_CAUSES = 5
_WHOLE = 0.9  # of the run: with fewer steps known, their number is not that of the run
_HOLE_NS = 5 * NS_PER_S  # between two frames: beyond, the power is unknown


@dataclass(slots=True)
class Loss:
    """A cause over the whole run, ns: what is certain, and what is estimated or possible."""

    finding: Finding
    low: float = 0.0
    high: float = 0.0


@dataclass(slots=True)
class Run:
    """The figures of one process over its observed run."""

    row: ProcessRow
    explained_ns: float = 0.0
    idle_ns: tuple[float, float] = (0.0, 0.0)
    estimated: bool = True  # the upper end is an estimate, for each GPU and all of the time
    steps: int = 0
    step_ns: float = 0.0
    steps_until: int = 0
    losses: dict[tuple[str, str], Loss] = field(default_factory=dict)
    joules: float | None = None
    watts: float | None = None


class Runs:
    """Sums frames and explanations by process."""

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self._time_ns = 0
        self._end_ns = 0

    def consume(self, frame: Frame, explained: Explained) -> None:
        """Consume a frame and the newest explanation; the same ones count once."""
        if frame.time_ns > self._time_ns:
            self._frame(frame)
        # also for a frame seen before: the explanation may come later
        report = explained.report
        if report is not None and explained.end_ns > self._end_ns and not explained.first_look:
            self._explained(report, explained)

    def _frame(self, frame: Frame) -> None:
        passed_ns, self._time_ns = frame.time_ns - self._time_ns, frame.time_ns
        for row in frame.processes:
            if row.pid not in self.runs and (not row.calls or not self._room()):
                continue
            run = self.runs.setdefault(row.pid, Run(row))
            run.row = row
            if run.watts is not None and row.watts is not None and passed_ns <= _HOLE_NS:
                run.joules = (run.joules or 0.0) + (run.watts + row.watts) / 2 * passed_ns / NS_PER_S
            run.watts = row.watts

    def _room(self) -> bool:
        """True if another process fits, after dropping the one that ended first if needed."""
        gone = [run for run in self.runs.values() if run.row.exited_ns is not None]
        if len(self.runs) >= MOST_RUNS and gone:
            del self.runs[min(gone, key=lambda run: run.row.exited_ns or 0).row.pid]
        return len(self.runs) < MOST_RUNS

    def _explained(self, report: Report, explained: Explained) -> None:
        new_ns = explained.end_ns - max(self._end_ns, explained.end_ns - report.duration_ns)
        self._end_ns = explained.end_ns
        share = new_ns / max(report.duration_ns, 1)
        for step in explained.steps:
            run = self.runs.get(step.pid)
            if run is not None:
                fresh = step.spans[step.spans[:, 0] >= run.steps_until]
                run.steps += len(fresh)
                run.step_ns += float((fresh[:, 1] - fresh[:, 0]).sum())
                run.steps_until = int(step.spans[-1, 1]) if len(step.spans) else run.steps_until
        ends = [
            _ends(gpu.account.proved_ns, gpu.account.bounds.upper, gpu.idle.estimate) for gpu in report.gpus
        ]
        for run in self.runs.values():
            if run.row.exited_ns is not None and run.row.exited_ns < explained.end_ns - report.duration_ns:
                continue
            places = [
                place
                for place, gpu in enumerate(report.gpus)
                if run.row.gpus is None or gpu.label in {f"GPU {index}" for index in run.row.gpus}
            ]
            run.explained_ns += share * sum(report.gpus[place].span_ns for place in places)
            run.estimated &= all(report.gpus[place].idle.estimate is not None for place in places)
            low, high = run.idle_ns
            run.idle_ns = (
                low + share * sum(ends[place][0] for place in places),
                high + share * sum(ends[place][1] for place in places),
            )
        for finding in report.findings:
            if (run := self.runs.get(finding.pid)) is not None:
                line = finding.line.brief if finding.line is not None else ""
                loss = run.losses.setdefault((finding.cause, line), Loss(finding))
                low, high = _ends(finding.loss.lower, finding.loss.upper, finding.loss.estimate)
                loss.finding = finding
                loss.low, loss.high = loss.low + share * low, loss.high + share * high

    def of(self, pid: int) -> Run | None:
        return self.runs.get(pid)

    def last_ended(self) -> Run | None:
        """Return the CUDA process that ended last; None while any is running."""
        if not self.runs or any(run.row.exited_ns is None for run in self.runs.values()):
            return None
        return max(self.runs.values(), key=lambda run: run.row.exited_ns or 0)


def _ends(lower: int, upper: int, estimate: int | None) -> tuple[float, float]:
    high = upper if estimate is None else estimate
    return float(min(lower, high)), float(high)


def summary_lines(
    run: Run | None, frame: Frame, ended: str, recording: str, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return the page.

    Args:
        run: The process.
        frame: The frame shown.
        ended: How the process ended; "" while it runs.
        recording: The file of its recording, or "".
        width: The width in columns.
        glyphs: The screen's glyphs.
    """
    if run is None:
        return [glyphs.line([(" no CUDA calls yet", "dim")], width)]
    row = run.row
    command = glyphs.shown(row.command or row.name)
    rows: list[tuple[str, str, str]] = [("program", f"{command} ({row.pid})", "value")]
    lasted_ns = (row.exited_ns if row.exited_ns is not None else frame.time_ns) - row.start_ns
    ran_ns = max(row.run_ns or 0, lasted_ns)
    before = f", observed for {format_ns(lasted_ns)}" if ran_ns - lasted_ns > NS_PER_S else ""
    ran = format_run(ran_ns) if ran_ns >= 100 * NS_PER_S else format_ns(ran_ns)
    rows.append(("run time", f"{ran}{before}{f', {ended}' if ended else ', it is running'}", ""))
    steps = "no repeating step found"
    if run.steps:
        each_ns = run.step_ns / run.steps
        steps = f"{format_count(run.steps)} of {format_ns(each_ns)} each"
        if run.step_ns < _WHOLE * lasted_ns:  # full explanations, which have steps, leave time out
            steps = f"{format_ns(each_ns)} each, the mean of {format_count(run.steps)} examined"
    rows.append(("steps", steps, ""))
    if run.explained_ns:
        seen = f" of {format_ns(run.explained_ns)} of GPU time"
        idle = f"{_range(run.idle_ns, run.explained_ns, glyphs)} %{seen}"
        proved, about = (format_percent(100 * ns / run.explained_ns) for ns in run.idle_ns)
        if run.estimated and run.idle_ns[1] - run.idle_ns[0] > WIDE * run.explained_ns:
            idle = f"~{about} %{seen} ({proved} % proved)"
        rows.append(("idle", idle, "value"))
    else:
        rows.append(("idle", "unknown: too few CUDA calls to tell when the GPU worked", "unknown"))
    if run.joules is not None:
        per_ns = run.joules / max(lasted_ns, 1)
        each = f", {format_joules(per_ns * run.step_ns / run.steps)} a step" if run.steps else ""
        mean = f" ({per_ns * NS_PER_S:.0f} W)" if lasted_ns > 0 else ""
        rows.append(("energy", f"{format_joules(run.joules)}{mean}{each}", ""))
    lines: list[Line] = []
    for name, text, token in rows:
        lines += paragraph(text, token, width, glyphs, indent=0, lead=f" {name:10}", lead_token="head")
    lines += _causes(run, width, glyphs)
    where = glyphs.shown(recording)
    text = f"{where}: gputop explain {where}" if recording else "none; [R] can still record the last minutes"
    lines += paragraph(text, "", width, glyphs, indent=0, lead=f" {'recording':10}", lead_token="head")
    return [glyphs.line(line, width) for line in lines]


def _causes(run: Run, width: int, glyphs: Glyphs) -> Iterable[Line]:
    """Return the causes of the whole run, largest first."""
    losses = sorted(run.losses.values(), key=lambda loss: -loss.high)[:MOST_CAUSES]
    if not losses or not run.explained_ns:
        return [((f" {'causes':10}", "head"), ("no recurring stall", "dim"))]
    lines: list[Line] = []
    for place, loss in enumerate(losses, 1):
        finding = loss.finding
        share = _range((loss.low, loss.high), run.explained_ns, glyphs)
        line = f"  {finding.line.brief}" if finding.line is not None else ""
        token = LEVEL_TOKENS.get(str(finding.level), "warn")
        lines.append(
            (
                (f" {f'{place}':>6}    " if place > 1 else f" {'causes':6} {place}  ", "head"),
                (f"{share:>6} %  ", "value"),
                (glyphs.shown(finding.title), ""),
                (f" {finding.cause} {finding.level}", token),
                (glyphs.shown(line), "value"),
            )
        )
    return lines


def _range(ends: tuple[float, float], whole: float, glyphs: Glyphs) -> str:
    return glyphs.dash.join(dict.fromkeys(format_percent(100 * ns / whole) for ns in ends))
