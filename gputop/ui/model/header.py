"""The lines of the header, the banner and the storms."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.engine.frame import Frame, Storm
from gputop.engine.rows import STORM_RUNNABLE_PERCENT
from gputop.format import (
    NS_PER_S,
    escape_text,
    format_bytes,
    format_clock,
    format_count,
    format_duration,
    format_ns,
    format_percent,
)
from gputop.playback.feed import Explained, RecordingState
from gputop.ui.model.gpus.gpu_list import is_no_gpu_reason
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged, spread, wrap
from gputop.ui.model.process.call_table import shares_text
from probes.proc.late_attach import is_late

_LATE_NS = 60 * NS_PER_S  # after the start, processes that ran before have no banner any more


@dataclass(frozen=True, slots=True)
class Status:
    """The header's content beside the frame."""

    mode: str
    paused: bool = False
    playing: bool = False
    behind_ns: int = 0
    title: str = ""
    failure: str | None = None
    recording: RecordingState | None = None
    native_lines: int = 0
    frozen: bool = False
    hidden: int = 0  # panes
    own: tuple[float, int] | None = None  # gputop's own mean percent of a CPU, over how many seconds
    reduced: tuple[str, ...] = ()  # what is reduced to keep gputop within its budgets


def header_line(frame: Frame | None, status: Status, width: int, glyphs: Glyphs) -> Line:
    """Return the first line: mode, time, lost events, problems, as far as it fits."""
    left = _badge(status)
    right = _recording(status.recording, width, glyphs)
    facts = _facts(frame, status, width, glyphs) if frame else [[(escape_text(status.title), "dim")]]
    # by importance; facts that do not fit are left out, not cut
    for fact in facts:
        wanted = [("  ", ""), *fact]
        if line_width(left) + line_width(wanted) + line_width(right) < width and line_width(fact):
            left += wanted
    return merged(spread(left, right, width))


def _badge(status: Status) -> list[Span]:
    if status.mode == "replay":
        return [(" REPLAY ", "badge.replay")]
    if not status.paused:
        return [(" LIVE ", "badge.live")]
    badge: Span = (" PAST ", "badge.replay") if status.playing else (" PAUSED ", "badge.paused")
    return [
        badge,
        (f" {format_duration(status.behind_ns)} behind live", "chrome"),
        ("  [L] go live", "key"),
    ]


def _facts(frame: Frame, status: Status, width: int, glyphs: Glyphs) -> list[list[Span]]:
    clock = format_clock(frame.wall_ns, frame.utc_offset_s, millis=width >= 100)
    lost = frame.lost.events
    facts: list[list[Span]] = [
        [(clock, "value")],
        [(f"{glyphs.warning} lost {format_count(lost)}", "alert") if lost else ("lost 0", "dim")],
        [(f"{frame.rate_hz:g}Hz", "dim")],
        [("gputop ", "dim"), *_own_cost(frame, status)],
    ]
    facts += [[(f"{glyphs.warning} {notice}", "warn")] for notice in status.reduced]
    if status.frozen:
        facts.append([("order frozen [o]", "chrome")])
    if status.hidden:
        facts.append([(f"{status.hidden} pane{'s' if status.hidden > 1 else ''} hidden [F]", "chrome")])
    if frame.problems:
        count = len(frame.problems)
        facts.append([(f"{glyphs.warning} {count} problem{'s' if count > 1 else ''} [!]", "warn")])
    if frame.calls_observed:
        facts.append([(format_count(frame.events_per_second), ""), (" events/s", "dim")])
    facts.append([(calls_text(frame), ""), (" calls/s", "dim")])
    if width >= 100:
        facts.append([(f"{format_bytes(frame.own_rss_bytes)} rss", "dim")])
    if status.native_lines:
        facts.append([(f"native log {format_count(status.native_lines)}", "unknown")])
    title = glyphs.shown(status.title)
    facts.append([(glyphs.clip(title, max(width // 4, 8)), "dim")])
    return facts


def _own_cost(frame: Frame, status: Status) -> list[Span]:
    if status.own is None:
        return [(f"{frame.own_cpu_percent:.1f}%", "")]
    percent, seconds = status.own
    return [(f"{percent:.1f}%", ""), (f" ({seconds}s)", "dim")]


def _recording(state: RecordingState | None, width: int, glyphs: Glyphs) -> list[Span]:
    if state is None:
        return []
    name = glyphs.shown(state.path.rsplit("/", 1)[-1])
    size, elapsed = format_bytes(state.bytes), format_duration(int(state.elapsed_s * NS_PER_S))
    text = f" {glyphs.record} REC "
    if width >= 100:
        text += glyphs.clip(name, 24) + " "
    if width >= 60:
        text += f"{size} "
    return [(text + elapsed + " ", "badge.record")]


def banner_lines(frame: Frame | None, status: Status, width: int, most: int, glyphs: Glyphs) -> list[Line]:
    """Return the failure or the first problem, in at most ``most`` lines.

    A missing GPU is left out: the GPU pane shows it. So are processes that ran before, after a while.
    """
    problems = _of_banner(frame) if frame is not None else []
    most = 1 if problems and is_late(problems[0]) and not status.failure else most
    if status.failure:
        text, style, others = f"{glyphs.exited} {escape_text(status.failure)}", "alert", 0
    elif problems:
        assert frame is not None
        text, style, others = f"{glyphs.warning} {escape_text(problems[0])}", "warn", len(frame.problems) - 1
    else:
        return []
    hint = f" [!] all {others + 1}" if others else ""
    lines = wrap(text, width)
    if hint and line_width([(lines[-1], style)]) + len(hint) >= width:
        lines.append("")
    if len(lines) > most:
        hint = hint or ("" if status.failure else " [!] full text")
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], glyphs.clip(rest, width - len(hint) - 1)]
    return [
        *(glyphs.line([(line, style)], width) for line in lines[:-1]),
        spread([(lines[-1], style)], [(hint, "key")], width),
    ]


def _of_banner(frame: Frame) -> list[str]:
    """Return the problems for the banner, limits that concern most sessions last."""
    early = frame.time_ns - frame.start_ns < _LATE_NS
    shown = [one for one in frame.problems if frame.gpus or not is_no_gpu_reason(one)]
    return [one for one in shown if not is_late(one)] + [one for one in shown if early and is_late(one)]


def calls_text(frame: Frame) -> str:
    """Return the calls per second of all processes, ``-`` if not observed."""
    return format_count(frame.calls_per_second) if frame.calls_observed else "-"


def storm_spans(
    storm: Storm, glyphs: Glyphs, width: int = 200, *, traced: bool = True, cost: str = ""
) -> list[Span]:
    """Return a storm in words: the process, its figures, and the threads that preempt it.

    Args:
        storm: The storm.
        glyphs: The screen's glyphs.
        width: Columns; without room the figures are left out.
        traced: True if preempting threads are known, by eBPF.
        cost: Its cost in GPU time, or "".
    """
    who = f"{storm.pid} {glyphs.shown(storm.name)} "
    unknown = "unknown" if traced else "not known without eBPF"
    every, few = (shares_text(storm.occupants, glyphs, most) or unknown for most in (4, 1))
    rate, costs = f"{format_count(storm.involuntary_per_second)} preempt/s", f"  {cost} " if cost else ""
    percent = format_percent(storm.runnable_percent)
    rate_text = rate + costs if cost else ""
    tellings = (
        (who, f" {rate}  run queue {percent}%{costs}", "  preempted by ", every),
        (who, f" {rate}  runq {percent}%{costs}", "  by ", every),
        (who, rate_text, "by ", every),
        (who, rate_text, "by ", few),
        (f"{storm.pid}: ", rate_text, "", every),
        (f"{storm.pid}: ", rate_text, "", few),
    )
    for sufferer, figures, had, occupants in tellings:
        spans = [
            (f"{glyphs.storm} storm ", "host"), (sufferer, "value"), (figures, "host"), (had, "dim"),
            (occupants, ""),
        ]  # fmt: skip
        if line_width(spans) <= width:
            break
    return spans


def storm_lines(frame: Frame, explained: Explained, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the current storms with their cost; the last line counts those without room."""
    storms = frame.storms
    if not storms:
        longest = max(frame.processes, key=lambda row: row.runnable_percent or 0.0, default=None)
        known = any(row.runnable_percent is not None for row in frame.processes if row.watched)
        text = f"{glyphs.dot} context switches normal" if known else ""
        if longest is not None and (longest.runnable_percent or 0.0) >= STORM_RUNNABLE_PERCENT:
            name = glyphs.shown(longest.name)
            percent = format_percent(longest.runnable_percent)
            text = f"{glyphs.dot} {longest.pid} {name} waits for a CPU {percent} %"
        return [glyphs.line([(text, "faint")], width)]
    lines, costs = [], _storm_costs(explained)
    hidden = len(storms) - height
    for index, storm in enumerate(storms[:height]):
        more = f" +{hidden} storm{'s' if hidden > 1 else ''}" if hidden > 0 and index == height - 1 else ""
        cost = costs.get(storm.pid, "")
        spans = storm_spans(storm, glyphs, width - len(more), traced=frame.calls_observed, cost=cost)
        body = glyphs.line(spans, width - len(more))
        lines.append(merged((*body, (more, "more"))))
    return lines


def _storm_costs(explained: Explained) -> dict[int, str]:
    """Return by process the GPU time lost since its threads get no CPU: ``GPU -72.0ms/s``."""
    report = explained.report
    if report is None or not report.span_ns:
        return {}
    seconds = report.duration_ns / NS_PER_S
    return {pid: f"GPU -{format_ns(ns / seconds)}/s" if ns else "GPU -0ms/s" for pid, ns in report.cpu_waits}
