"""The line that is always there: why the GPU was idle in the last seconds, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.format import NS_PER_S, brief, clip, escape_text, format_count, format_ns, format_percent
from gputop.ui.feed import Explained
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, line_width, merged, spread

if TYPE_CHECKING:
    from gputop.explain.report import Finding, Report

LEVEL_TOKENS = {"proved": "alert", "strong": "host", "hint": "warn"}
ENOUGH_NS = NS_PER_S  # before, and with fewer than ENOUGH_STEPS, "no loss that repeats" would be early
ENOUGH_STEPS = 3
OLD_NS = 2 * NS_PER_S  # an explanation older than this says so
LEAST_TITLE = 12


def verdict_line(
    explained: Explained, now_ns: int, width: int, glyphs: Glyphs, *, focused: bool, traced: bool = True
) -> Line:
    """The line, cut where it is narrow, but never the number, the cause and the level.

    Args:
        explained: What is known.
        now_ns: The frame's time: how old the explanation is.
        width: Columns.
        glyphs: The signs used.
        focused: Whether Enter opens the chain from here.
        traced: False without eBPF, when nothing can be known.
    """
    lead: list[Span] = [
        (glyphs.cursor if focused else " ", "cursor"),
        ("WHY ", "title.focus" if focused else "head"),
    ]
    body = _body(explained, traced, glyphs)
    right: list[Span] = []
    if explained.report is not None:
        right = [(f" {_when(explained, now_ns)}", "dim"), (" [Enter]" if focused else " [w]", "key")]
    for words, tail in _tellings(body, right):
        room = width - line_width(lead) - line_width(tail) - 1
        room = max(room - line_width(body.words("", words)), 0)
        whole = brief(body.title, room)
        title = clip(whole, room, glyphs.ellipsis)
        if title == whole or (not tail and len(title) >= LEAST_TITLE):
            return merged(spread([*lead, *body.words(title, words)], tail, width))
    return fit_line([*lead, *body.words("", 1)], width, ellipsis=glyphs.ellipsis)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """Words before the title, the title (may be cut), words after it (all but the first may go)."""

    before: Sequence[Span]
    title: str
    after: Sequence[Span]
    token: str

    def words(self, title: str, after: int) -> list[Span]:
        return [*self.before, (title, self.token), *self.after[:after]]


def _tellings(body: _Sentence, right: list[Span]) -> Iterator[tuple[int, list[Span]]]:
    """(words after the title, what stands at the right end), the fullest first."""
    yield len(body.after), right
    for words in range(max(len(body.after), 1), 0, -1):
        yield words, right[-1:]
    yield 1, []


def _body(explained: Explained, traced: bool, glyphs: Glyphs) -> _Sentence:
    report = explained.report
    if not traced:
        return _Sentence([("? ", "unknown")], "not known without eBPF", [], "unknown")
    if explained.problem:
        return _Sentence([("? ", "unknown")], escape_text(explained.problem), [], "unknown")
    if report is None:
        return _Sentence([("? ", "unknown")], "not enough seen yet", [], "unknown")
    doubts = _doubts(report, glyphs)
    top = next((finding for finding in report.findings if finding.kind == "idle"), None)
    if top is None and report.findings:
        top = report.findings[0]
    if top is not None:
        return _of_finding(report, top, doubts, glyphs)
    return _calm(report, doubts, glyphs, explained.lanes.busy_share if explained.lanes else 0.0)


def _doubts(report: Report, glyphs: Glyphs) -> list[Span]:
    doubts: list[Span] = []
    if not report.coverage:
        doubts.append((f" {glyphs.warning} NVML disagrees", "alert"))
    if report.lost_events:
        doubts.append((f" {glyphs.warning} lost {format_count(report.lost_events)}", "alert"))
    return doubts


def idle_text(report: Report) -> str:
    """``idle 48%``: the part of the span in which no GPU work was outstanding, as far as it is proved."""
    share = 100 * report.idle.lower / report.span_ns if report.span_ns else 0
    return f"idle {format_percent(share)}%"


def _of_finding(report: Report, top: Finding, doubts: list[Span], glyphs: Glyphs) -> _Sentence:
    token = LEVEL_TOKENS.get(str(top.level), "warn") if top.kind == "idle" else "warn"
    sign = glyphs.warning if top.kind == "idle" else glyphs.dot
    before = [(f"{sign} {idle_text(report)} ", token), (f"{top.level}: ", token)]
    cost = f" {format_ns(top.per_step_ns)}/step" if top.per_step_ns else f" {format_ns(loss_ns(top))}"
    kind = "" if top.kind == "idle" else " overhead"
    more = len(report.findings) - 1
    others: list[Span] = [(f" +{more} more", "dim")] if more else []
    line = top.line
    name = escape_text(line.brief, ascii_only=glyphs.ascii) if line else ""
    place: list[Span] = [(f" at {name}", "value")] if line else []
    after = [(f" ({top.cause}){cost}{kind}", "value"), *place, *doubts, *others]
    return _Sentence(before, top.title, after, "")


def loss_ns(finding: Finding) -> int:
    """What a finding is told to cost: what is sure, else the middle."""
    return finding.loss.lower or int(finding.loss.middle)


def _calm(report: Report, doubts: list[Span], glyphs: Glyphs, busy: float) -> _Sentence:
    if not report.gpus:
        return _Sentence([("? ", "unknown")], "no call gave a GPU work yet", doubts, "unknown")
    steps = report.steps.count if report.steps is not None else 0
    if not report.span_ns and busy > 0.5:
        before = [(f"{glyphs.dot} busy {format_percent(100 * busy)}%: ", "dim")]
        return _Sentence(before, "the GPU was at no moment seen without work", doubts, "dim")
    if not report.span_ns:
        return _Sentence([("? ", "unknown")], "no work came to an end in this time", doubts, "unknown")
    if report.span_ns < ENOUGH_NS and steps < ENOUGH_STEPS:
        return _Sentence([("? ", "unknown")], "not enough seen yet", doubts, "unknown")
    before = [(f"{glyphs.dot} {idle_text(report)}: ", "dim")]
    if report.unexplained_ns > 0.02 * report.span_ns:
        return _Sentence(
            before, f"for {format_ns(report.unexplained_ns)} the chain is not known", doubts, "warn"
        )
    if report.idle.upper > 0.5 * report.span_ns > report.idle.lower:
        return _Sentence(before, "for the rest it cannot be told: the program seldom waits", doubts, "dim")
    return _Sentence(before, "no loss that repeats", doubts, "dim")


def _when(explained: Explained, now_ns: int) -> str:
    report = explained.report
    assert report is not None
    length = f"{report.duration_ns / NS_PER_S:.0f} s"
    age = now_ns - explained.end_ns
    return f"last {length}" if age < OLD_NS else f"{length} up to {format_ns(age)} ago"


def storm_costs(explained: Explained) -> dict[int, str]:
    """By process: what it costs that its threads get no CPU: ``GPU -72.0ms/s``; 0 is an answer."""
    report = explained.report
    if report is None or not report.span_ns:
        return {}
    seconds = report.duration_ns / NS_PER_S
    return {pid: f"GPU -{format_ns(ns / seconds)}/s" if ns else "GPU -0ms/s" for pid, ns in report.cpu_waits}
