"""The line that is always there: why the GPU was idle in the last seconds, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from gputop.explain.answer.figures import cost_text, idle_text, loss_ns
from gputop.format import NS_PER_S, brief, clip, escape_text, format_count, format_ns, format_percent
from gputop.playback.feed import OLD_NS, Explained
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, line_width, merged, spread
from gputop.ui.model.subject import NOTHING

if TYPE_CHECKING:
    from gputop.explain.answer.report import Diagnosis, Finding, Report

LEVEL_TOKENS = {"proved": "alert", "strong": "host", "hint": "warn"}
ENOUGH_NS = NS_PER_S  # before, and with fewer than ENOUGH_STEPS, "no loss that repeats" would be early
ENOUGH_STEPS = 3
EARLY_NS = 4 * NS_PER_S  # before, that something cannot be told would be early
LEAST_TITLE = 10  # letters of a title that is cut
USUAL_WIDTH = 80  # columns, from which on the line of the program is told rather than the cost


def verdict_line(
    explained: Explained,
    now_ns: int,
    width: int,
    glyphs: Glyphs,
    *,
    focused: bool,
    traced: bool = True,
    nothing: str = NOTHING,
) -> Line:
    """The line, cut where it is narrow, but never the number, the cause and the level.

    Args:
        explained: What is known.
        now_ns: The frame's time: how old the explanation is.
        width: Columns.
        glyphs: The signs used.
        focused: Whether Enter opens the chain from here.
        traced: False without eBPF, when nothing can be known.
        nothing: What is said where no GPU was given work, as far as the explanation goes.
    """
    lead: list[Span] = [
        (glyphs.cursor if focused else " ", "cursor"),
        ("WHY ", "title.focus" if focused else "head"),
    ]
    body = _body(explained, traced, glyphs, nothing)
    right: list[Span] = []
    if explained.report is not None:
        old = explained.first_look or explained.age_ns(now_ns) >= OLD_NS
        right = [
            (f" {_when(explained, now_ns)}", "warn" if old else "dim"),
            (" [Enter]" if focused else " [w]", "key"),
        ]
    for chosen, least, tail in _tellings(body, right, width):
        room = width - line_width(lead) - line_width(tail) - 1 - line_width(body.line("", chosen))
        whole = brief(body.title, max(room, 0))
        title = clip(whole, max(room, 0), glyphs.ellipsis)
        if title == whole or len(title) >= least:
            return merged(spread([*lead, *body.line(title, chosen)], tail, width))
    return fit_line([*lead, *body.line("", frozenset())], width, ellipsis=glyphs.ellipsis)


class _Part(Enum):
    """Parts of the line that may go where it is narrow; what is none of them stays."""

    OTHERS = auto()
    DOUBTS = auto()
    PLACE = auto()
    COST = auto()


@dataclass(frozen=True, slots=True)
class _Sentence:
    """Words before the title, the title (may be cut), words after it."""

    before: Sequence[Piece]
    title: str
    after: Sequence[Piece]
    token: str

    def line(self, title: str, chosen: Set[_Part]) -> list[Span]:
        """The words with such a title and with the parts that are chosen."""
        shown = [*self.before, (None, (title, self.token)), *self.after]
        return [span for part, span in shown if part is None or part in chosen]


Piece = tuple[_Part | None, Span]
_WHOLE = 10_000  # longer than any title
_QUESTION: list[Piece] = [(None, ("? ", "unknown"))]


def _tellings(body: _Sentence, right: list[Span], width: int) -> Iterator[tuple[Set[_Part], int, list[Span]]]:
    """(parts that are told, least length of a title that is cut, right end), the fullest first."""
    every = frozenset(_Part)
    yield every, _WHOLE, right
    yield every, _WHOLE, right[-1:]
    # then what tells least goes, and the title is cut before the line of the program goes
    most = every - {_Part.OTHERS}
    yield most, _WHOLE, right[-1:]
    yield most, LEAST_TITLE, right[-1:]
    yield most, LEAST_TITLE, []
    most -= {_Part.DOUBTS}
    yield most, LEAST_TITLE, []
    if width >= USUAL_WIDTH:
        yield most - {_Part.COST}, LEAST_TITLE, []
    yield most - {_Part.PLACE}, LEAST_TITLE, []
    yield frozenset(), 0, []


def _body(explained: Explained, traced: bool, glyphs: Glyphs, nothing: str) -> _Sentence:
    report = explained.report
    if not traced:
        return _Sentence(_QUESTION, "not known without eBPF", [], "unknown")
    if explained.problem:
        return _Sentence(_QUESTION, escape_text(explained.problem), [], "unknown")
    if report is None:
        seen = "not enough seen yet" if nothing is NOTHING else nothing
        return _Sentence(_QUESTION, seen, [], "unknown")
    doubts = _doubts(report, glyphs)
    diagnosis = report.diagnosis
    kind = diagnosis.kind if diagnosis is not None else None
    if diagnosis is not None and kind is not None and diagnosis.lead is None:
        return _of_class(report, diagnosis, doubts, glyphs)
    top = _first(report)
    if top is not None:
        return _of_finding(report, top, doubts, glyphs)
    if not report.gpus:
        return _Sentence(_QUESTION, nothing, doubts, "unknown")
    return _calm(report, doubts, glyphs, explained.lanes.busy_share if explained.lanes else 0.0)


def _first(report: Report) -> Finding | None:
    """The finding that is told: the first of the class, else the first that leaves the GPU idle."""
    if report.diagnosis is not None and report.diagnosis.lead is not None:
        return report.findings[report.diagnosis.lead]
    return next((one for one in report.findings if one.kind == "idle"), next(iter(report.findings), None))


def _doubts(report: Report, glyphs: Glyphs) -> list[Piece]:
    doubts: list[Piece] = []
    if not report.coverage:
        doubts.append((_Part.DOUBTS, (f" {glyphs.warning} NVML disagrees", "alert")))
    if not all(gpu.account.agrees for gpu in report.gpus):
        doubts.append((_Part.DOUBTS, (f" {glyphs.warning} sources disagree", "warn")))
    if report.lost_events:
        doubts.append((_Part.DOUBTS, (f" {glyphs.warning} lost {format_count(report.lost_events)}", "alert")))
    return doubts


def _idle(report: Report, glyphs: Glyphs) -> str:
    """``idle 12–97%``: what is proved, and what is estimated or at most possible."""
    return f"idle {idle_text(report.idle, report.span_ns, _dash(glyphs))}%"


def _dash(glyphs: Glyphs) -> str:
    return "-" if glyphs.ascii else "–"


def _of_finding(report: Report, top: Finding, doubts: list[Piece], glyphs: Glyphs) -> _Sentence:
    token = LEVEL_TOKENS.get(str(top.level), "warn") if top.kind == "idle" else "warn"
    sign = glyphs.warning if top.kind == "idle" else glyphs.dot
    named = report.diagnosis if report.diagnosis is not None and report.diagnosis.kind is not None else None
    kind = f"{_short(named.title)}, " if named is not None else ""
    before: list[Piece] = [(None, (f"{sign} {kind}{_idle(report, glyphs)}: ", token))]
    return _Sentence(before, top.title, [*_loss(report, top, token, glyphs), *doubts, *_others(report)], "")


def _loss(report: Report, top: Finding, token: str, glyphs: Glyphs) -> list[Piece]:
    """Cause and level of a finding, what it costs, its line."""
    wasted = "" if top.kind == "idle" else " overhead"
    steps = round(loss_ns(top.loss) / top.per_step_ns) if top.per_step_ns else 0
    cost = cost_text(top.loss, _dash(glyphs), steps or 1) + ("/step" if steps else "")
    told: list[Piece] = [
        (None, (f" ({top.cause} {top.level})", token)),
        (_Part.COST, (f" {cost}{wasted}", "value")),
    ]
    if top.line is not None:
        name = escape_text(top.line.brief, ascii_only=glyphs.ascii)
        told.append((_Part.PLACE, (f" at {name}", "value")))
    return told


def _others(report: Report) -> list[Piece]:
    more = len(report.findings) - 1
    return [(_Part.OTHERS, (f" +{more} more", "dim"))] if more > 0 else []


def _short(title: str) -> str:
    """A class without what stands in brackets: ``launch-bound``."""
    return title.partition(" (")[0]


def _of_class(report: Report, diagnosis: Diagnosis, doubts: list[Piece], glyphs: Glyphs) -> _Sentence:
    """A class that no finding stands for, and no alarm: the GPU is busy, or nobody asks it for work.

    What is lost beside is told too: it is what there is to win.
    """
    title = _short(diagnosis.title)
    before: list[Piece]
    level: Piece = (None, (f" ({diagnosis.level})", "dim"))
    if diagnosis.kind == "unasked":
        before = [(None, (f"{glyphs.dot} {title}: ", "dim"))]
        return _Sentence(before, _idle(report, glyphs), [level, *doubts], "dim")
    busy = f"busy ~{format_percent(100 * _busy_share(report))}%"
    top = _first(report)
    if top is not None:
        before = [
            (None, (f"{glyphs.dot} {title}", "dim")),
            (None if diagnosis.level == "hint" else _Part.DOUBTS, level[1]),
            (None, (f", {busy}: ", "dim")),
        ]
        return _Sentence(before, top.title, [*_loss(report, top, "", glyphs), *doubts, *_others(report)], "")
    figures: list[Piece] = [(_Part.OTHERS, (f"  {text}", "dim")) for text in diagnosis.evidence[1:2]]
    after = [level, *doubts, *figures]
    return _Sentence([(None, (f"{glyphs.dot} {title}: ", "dim"))], busy, after, "dim")


def _busy_share(report: Report) -> float:
    """The part of the time in which the GPUs worked, 0 to 1; start-up and first use are no part of it."""
    outside = sum(gpu.account.outside_ns for gpu in report.gpus)
    counted = outside if report.idle.estimate is not None else 0  # only an estimate holds them for idle
    idle = report.idle.lower if report.idle.estimate is None else report.idle.estimate
    return 1 - max(idle - counted, 0) / max(report.span_ns - outside, 1)


def _calm(report: Report, doubts: list[Piece], glyphs: Glyphs, busy: float) -> _Sentence:
    steps = report.steps.count if report.steps is not None else 0
    if not report.span_ns and busy > 0.5:
        before: list[Piece] = [(None, (f"{glyphs.dot} busy {format_percent(100 * busy)}%: ", "dim"))]
        return _Sentence(before, "the GPU was at no moment seen without work", doubts, "dim")
    if not report.span_ns:
        return _Sentence(_QUESTION, "no work came to an end in this time", doubts, "unknown")
    early = report.span_ns < EARLY_NS and _untold(report)  # NVML tells little of so short a time
    if early or (report.span_ns < ENOUGH_NS and steps < ENOUGH_STEPS):
        return _Sentence(_QUESTION, "not enough seen yet", doubts, "unknown")
    before = [(None, (f"{glyphs.dot} {_idle(report, glyphs)}: ", "dim"))]
    if report.unexplained_ns > 0.02 * report.span_ns:
        said = f"for {format_ns(report.unexplained_ns)} the chain is not known"
        return _Sentence(before, said, doubts, "warn")
    if _untold(report):
        return _Sentence(before, "it cannot be told: the program seldom waits", doubts, "dim")
    return _Sentence(before, "no loss that repeats", doubts, "dim")


def _untold(report: Report) -> bool:
    """Whether no source tells of more than half of the time whether the GPU had work."""
    silent = [gpu.account.unknown_ns for gpu in report.gpus if gpu.account.source is None]
    return sum(silent) > 0.5 * report.span_ns


def _when(explained: Explained, now_ns: int) -> str:
    report = explained.report
    assert report is not None
    length = f"{report.duration_ns / NS_PER_S:.0f} s"
    age = explained.age_ns(now_ns)
    if explained.first_look:
        return f"first look, {length}"
    return f"last {length}" if age < OLD_NS else f"{length} up to {format_ns(age)} ago"


def storm_costs(explained: Explained) -> dict[int, str]:
    """By process: what it costs that its threads get no CPU: ``GPU -72.0ms/s``; 0 is an answer."""
    report = explained.report
    if report is None or not report.span_ns:
        return {}
    seconds = report.duration_ns / NS_PER_S
    return {pid: f"GPU -{format_ns(ns / seconds)}/s" if ns else "GPU -0ms/s" for pid, ns in report.cpu_waits}
