"""The page behind the verdict: all findings, and the chain of the selected one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.analysis.answer.wording import (
    ADVICE,
    cost_text,
    finding_block,
    has_bounds,
    is_about,
    remainder_text,
    share_text,
    steps_text,
    storm_text,
    what_if_text,
)
from gputop.format import (
    NS_PER_S,
    brief,
    format_ns,
    format_times,
)
from gputop.playback.feed import OLD_NS, Explained
from gputop.ui.model.answer.steady import finding_key
from gputop.ui.model.answer.whylines import LEVEL_TOKENS
from gputop.ui.model.look import Glyphs, Line, Span, paragraph

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Diagnosis, Finding, Report

_INDENT = 2  # columns per level of the chain
_COST = 18  # columns of the cost and its share
_FACTS = 34  # columns of a finding's figures


class ChainPage:
    """The selected finding, its selected moment, and the lines of the page."""

    def __init__(self) -> None:
        self._key: tuple[str, int] | None = None
        self._moment = 0
        self._explained = Explained()

    def show(self, explained: Explained) -> None:
        """Show another explanation; a finding of the selected one's cause and process stays selected."""
        self._explained = explained
        if self._key is not None and self._key not in {finding_key(finding) for finding in self._findings}:
            self._key, self._moment = None, 0

    @property
    def _findings(self) -> tuple[Finding, ...]:
        report = self._explained.report
        return report.findings if report is not None else ()

    @property
    def index(self) -> int:
        keys = [finding_key(finding) for finding in self._findings]
        return keys.index(self._key) if self._key in keys else 0

    @property
    def selected(self) -> Finding | None:
        return self._findings[self.index] if self._findings else None

    def move(self, by: int) -> None:
        if self._findings:
            place = min(max(self.index + by, 0), len(self._findings) - 1)
            key = finding_key(self._findings[place])
            self._moment = self._moment if key == self._key else 0
            self._key = key

    def move_moment(self, by: int) -> None:
        """Select another of the worst moments."""
        finding = self.selected
        if finding is not None and finding.moments_ns:
            self._moment = (self._moment + by) % len(finding.moments_ns)

    @property
    def moment_ns(self) -> int | None:
        """The selected moment, CLOCK_MONOTONIC."""
        finding = self.selected
        if finding is None or not finding.moments_ns:
            return None
        return self._explained.start_ns + finding.moments_ns[min(self._moment, len(finding.moments_ns) - 1)]

    @property
    def moments_ns(self) -> tuple[int, ...]:
        """The worst moments of the selected finding, CLOCK_MONOTONIC; () for a single finding."""
        finding = self.selected
        if finding is None or len(self._findings) < 2:
            return ()
        return tuple(self._explained.start_ns + moment for moment in finding.moments_ns)

    def lines(self, width: int, glyphs: Glyphs, *, replay: bool) -> list[Line]:
        """Return all lines of the page; with ``replay`` moments can be selected."""
        report = self._explained.report
        if report is None:
            return paragraph(self._explained.problem or "not enough data yet", "unknown", width, glyphs)
        text = _Writer(width, glyphs)
        text.add(report.verdict, "value", 1)
        if report.steps is not None:
            text.add(steps_text(report.steps), "dim", 1)
        if text_of_fix := what_if_text(report):
            text.add(text_of_fix, "", 1)
        if self._explained.detail_age_ns >= OLD_NS:
            age = format_ns(self._explained.detail_age_ns)
            text.add(f"chains, steps and savings are {age} older than the figures", "dim", 1)
        text.blank()
        for place, finding in enumerate(report.findings):
            text.lines.append(_row(place, finding, report, place == self.index, width, glyphs))
        if self.selected is not None:
            text.blank()
        text.lines += self.detail(width, glyphs, replay=replay)
        _rest(text, report)
        return text.lines

    def detail(self, width: int, glyphs: Glyphs, *, replay: bool) -> list[Line]:
        """Return the chain of the selected finding; without findings the diagnosis, if any."""
        text, report = _Writer(width, glyphs), self._explained.report
        if report is not None and self.selected is not None:
            _detail(text, self.selected, report, self._moment, replay)
        elif report is not None and report.diagnosis is not None:
            _diagnosis(text, report.diagnosis)
        return text.lines


class _Writer:
    """Wraps texts into indented lines."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.width, self.glyphs = width, glyphs
        self.lines: list[Line] = []

    def add(self, text: str, token: str, indent: int, lead: str = "", lead_token: str = "head") -> None:
        """Add a paragraph; ``lead`` stands before its first line."""
        self.lines += paragraph(
            text, token, self.width, self.glyphs, indent=indent, lead=lead, lead_token=lead_token
        )

    def blank(self) -> None:
        self.lines.append(((" ", ""),))


def _row(place: int, finding: Finding, report: Report, selected: bool, width: int, glyphs: Glyphs) -> Line:
    """Return a finding's line: number, title, cause, level, loss, share of the time."""
    dash = glyphs.dash
    about = "~" if is_about(finding.loss) else ""
    cost = about + cost_text(finding.loss, dash) + ("" if finding.kind == "idle" else " lost")
    share = f"{share_text(finding.loss, report.span_ns, dash)}%" if report.span_ns else ""
    wide = max(len(share) + 1, 6)
    facts = f" {finding.cause:<4}{finding.level:<7}{cost:>{_COST - wide}}{share:>{wide}}"
    number = f"{place + 1:>{len(str(len(report.findings)))}}"
    room = max(width - _FACTS - 3 - len(number), 8)
    sign = glyphs.cursor if selected else " "
    whose = f" ({finding.pid})" if len({one.pid for one in report.findings}) > 1 else ""
    title = brief(glyphs.shown(finding.title), room - len(whose))
    title = glyphs.fit(glyphs.clip(title, room - len(whose)) + whose, room)
    suffix = "+select" if selected else ""
    token = LEVEL_TOKENS.get(str(finding.level), "warn") if finding.kind == "idle" else "warn"
    spans: list[Span] = [
        (f"{sign}{number} ", "cursor" + suffix),
        (title, suffix.lstrip("+") and "value" + suffix),
        (facts, token + suffix),
    ]
    return glyphs.line(spans, width, token=suffix and "value" + suffix)


def _detail(text: _Writer, finding: Finding, report: Report, moment: int, replay: bool) -> None:
    """Add a finding's chain, cost, line, fix, savings, moments and evidence."""
    block = finding_block(finding, report)
    for depth, (layer, about, figures) in enumerate(block.links):
        text.add(f"{about}: {figures}", "", 1 + _INDENT * depth, lead=f"{layer} ", lead_token="busy")
    if has_bounds(finding.loss) or finding.per_step_ns:
        text.add(f"{block.cost}, {format_times(finding.gaps)}", "value", 1, lead="costs     ")
    if finding.line is not None:
        source = "" if finding.line.is_native else "  [s] source"
        text.add(f"{finding.line.full_text()}{source}", "value", 1, lead="line      ")
    text.blank()
    for place, advice in enumerate(finding.advice):
        text.add(advice, "value", 1, lead="fix       " if place == 0 else "          ")
    text.add(block.saves.removeprefix("saves "), "", 1, lead="saves     ")
    if finding.moments_ns:
        text.lines.append(_moments(finding, moment, replay, text.width, text.glyphs))
    for heading, parts in block.lists:
        if heading != ADVICE:
            text.add("; ".join(parts), "dim", 1, lead=f"{heading:<10}")


def _diagnosis(text: _Writer, diagnosis: Diagnosis) -> None:
    """Add the class without a finding, as a busy GPU, with its advice and evidence."""
    text.add(f"{diagnosis.title} ({diagnosis.level})", "value", 1, lead="class     ")
    for place, advice in enumerate(diagnosis.advice):
        text.add(advice, "value", 1, lead="to change " if place == 0 else "          ")
    text.add("; ".join(diagnosis.evidence), "dim", 1, lead="evidence  ")


def _moments(finding: Finding, moment: int, replay: bool, width: int, glyphs: Glyphs) -> Line:
    spans: list[Span] = [(" worst at  ", "head")]
    for place, time in enumerate(finding.moments_ns):
        chosen = replay and place == min(moment, len(finding.moments_ns) - 1)
        sign = glyphs.cursor if chosen else " "
        spans.append((f"{sign}{time / NS_PER_S:.3f} s ", "value+select" if chosen else "value"))
    spans.append(
        ("  [Tab] choose [Enter] go there" if replay else "  after the start", "key" if replay else "dim")
    )
    return glyphs.line(spans, width)


def _rest(text: _Writer, report: Report) -> None:
    """Add single long gaps, threads in storms, the remainder, and notes."""
    text.blank()
    for event in report.events:
        text.add(event.text(), "dim", 1, lead="once      ")
    for storm in report.storms:
        text.add(storm_text(storm), "dim", 1, lead="storm     ")
    text.add(remainder_text(report), "dim", 1, lead="rest      ")
    for note in report.notes:
        text.add(note, "warn", 1, lead=f"{text.glyphs.warning} ", lead_token="warn")
