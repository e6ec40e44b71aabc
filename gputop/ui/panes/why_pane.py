"""The WHY pane: why the GPU was idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.ui.model.answer import why
from gputop.ui.model.answer.verdict import verdict_line
from gputop.ui.model.answer.why_narrow import narrow_lines
from gputop.ui.model.answer.whylines import heading, why_lines
from gputop.ui.model.look import Line
from gputop.ui.panes.pane import Heading, Pane

PANEL_WIDTH, PANEL_HEIGHT, TALL = 64, 20, 30  # the least size for a panel, and the least height for its title
_NARROW_ROWS = 4, 7  # least and most lines of a narrow answer


class WhyPane(Pane):
    """Idle ranges of the GPUs, the first causes, the fix."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.why", "Open", tooltip="all findings and their chains"),
    ]

    _why_of: tuple[object, object, str, why.Why] | None = None
    _made: tuple[object, list[Line]] = (None, [])

    def _why(self) -> why.Why:
        frame, explained, outcome = self.view.frame, self.view.explained, self.view.outcome
        of = self._why_of
        if of is None or of[0] is not explained or of[1] is not frame or of[2] != outcome:
            answer = why.why_of(explained, frame, outcome) if frame else why.Why(text="no data yet")
            if outcome and not answer.gpus and self.view.log:
                answer = replace(answer, text=f"{answer.text}; [l] shows its output")
            self._why_of = of = explained, frame, outcome, answer
        return of[3]

    def _is_line(self) -> bool:
        """True on pages, which have room for one sentence only."""
        return not self.has_class("panel")

    def _is_narrow(self) -> bool:
        """True if the panel does not fit, and its parts stand below each other."""
        size = self.app.size
        return size.width < PANEL_WIDTH or size.height < PANEL_HEIGHT

    def _narrow(self, width: int) -> list[Line]:
        rows = min(max(self.app.size.height // 3, _NARROW_ROWS[0]), _NARROW_ROWS[1])
        return narrow_lines(self._why(), width, rows, self.view.glyphs, focused=self.has_focus)

    def wanted(self, width: int) -> int:
        """Return five lines with the title, three on small terminals; fewer for a healthy program."""
        if self._is_line():
            return 1
        if self._is_narrow():
            return len(self._narrow(width))
        return len(self._panel(width, 4 if self.app.size.height >= TALL else 3))

    def _panel(self, width: int, height: int) -> list[Line]:
        answer, titled = self._why(), self.app.size.height < TALL
        wanted = answer, width, height, titled
        if self._made[0] != wanted:
            self._made = wanted, why_lines(answer, width, height, self.view.glyphs, titled=titled)
        return self._made[1]

    def heading(self) -> Heading | None:
        if self._is_line() or self._is_narrow() or self.app.size.height < TALL:
            return None
        answer = self._why()
        return heading(answer, self.view.glyphs), "[w] all findings" if answer.causes else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        view = self.view
        if not self._is_line() and self._is_narrow():
            return self._narrow(width)
        if not self._is_line():
            lines = list(self._panel(width, height))
            if self.app.size.height < TALL and self.has_focus and lines:
                (first, _), *rest = lines[0]
                lines[0] = ((view.glyphs.cursor + first[1:], "title.focus"), *rest)
            return lines
        return [verdict_line(self._why(), width, view.glyphs, focused=self.has_focus)]

    def clicked(self, x: int, y: int) -> None:
        self.app.simulate_key("w")
