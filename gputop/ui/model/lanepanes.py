"""The panes of time and of findings: timeline, findings, chain, and the chart of a call."""

from __future__ import annotations

from gputop.engine.frame import Frame
from gputop.format import escape_text
from gputop.ui.model import callpage
from gputop.ui.model.controls import Controls
from gputop.ui.model.lanecontrols import OPTIONAL
from gputop.ui.model.layout import Placed
from gputop.ui.model.look import Line, Span, fit_line
from gputop.ui.model.table import title_line

NO_LANES = "no lane yet: the first seconds are still being looked at"


class LanePanes(Controls):
    """Lines of these panes."""

    def lane_pane(self, placed: Placed, frame: Frame) -> list[Line] | None:
        """The lines of one of these panes, None for another one."""
        if placed.pane == "timeline":
            return self._timeline(placed, frame)
        if placed.pane == "findings":
            return self._findings(placed)
        if placed.pane == "chain":
            return self._chain(placed)
        if placed.pane == "chart":
            return self._chart(placed)
        return None

    def call_lines(self, width: int) -> list[Line]:
        """The page of the selected call."""
        window_ns = self.frame.window_ns if self.frame else 1
        return callpage.call_page(self.panes.calls.selected_row, window_ns, width, self.glyphs)

    def _with_keys(self, panes: tuple[Placed, ...]) -> tuple[Placed, ...]:
        """The same panes; keys that went to one that has gone go to the verdict, which is always there."""
        shown = {placed.pane for placed in panes}
        if self.focus in OPTIONAL and self.focus not in shown and not self.overlay:
            self.focus, self.zoomed = "verdict", False
        return panes

    def _timeline(self, placed: Placed, frame: Frame) -> list[Line]:
        width, focused = placed.width, self.focus == "timeline"
        span = self.timeline.title(width)
        self.timeline.chosen_ns = self.chain.moments_ns
        if self.timeline.empty(frame.time_ns):
            said = NO_LANES if frame.calls_observed else "no lanes: calls are not observed without eBPF"
            head = self.panes.title("Timeline", "", width, focused=focused)
            return [head, fit_line([(f" {said}", "unknown")], width, ellipsis=self.glyphs.ellipsis)]
        if self.zoomed and focused:
            lines = self.timeline.every_line(width, self.lane_subjects(), frame.time_ns)
            return self._scrolled(f"Timeline, {span}  [, .]", lines, placed)
        lines, hidden = self.timeline.lines(width, placed.height - 1, self.lane_subject(), frame.time_ns)
        more = f"+{hidden} GPU{'s' if hidden > 1 else ''}  [z]" if hidden else ""
        title: list[Span] = [("Timeline", self._title_token(focused)), (f"  {span}", "dim")]
        if focused:
            title.append(("  [, .] less, more time  [Up Down] thread", "key"))
        return [title_line(title, more, width, self.glyphs, focused=focused), *lines]

    def _findings(self, placed: Placed) -> list[Line]:
        focused = self.focus == "findings"
        rows = self.chain.rows(placed.width, self.glyphs)
        room = placed.height - 1
        top = max(0, min(self.chain.index - room + 1, len(rows) - room))
        hidden = len(rows) - room
        more = f"+{hidden} [w]" if hidden > 0 else "[w] all" if focused else ""
        report = self.explained.report
        count = len(report.findings) if report else 0
        title: list[Span] = [("Findings", self._title_token(focused)), (f" {count}", "dim")]
        head = title_line(title, more, placed.width, self.glyphs, focused=focused)
        return [
            head,
            *(fit_line(line, placed.width, ellipsis=self.glyphs.ellipsis) for line in rows[top : top + room]),
        ]

    def _chain(self, placed: Placed) -> list[Line]:
        finding = self.chain.selected
        width, glyphs = placed.width, self.glyphs
        lines = self.chain.detail(width, glyphs, replay=False)
        title: list[Span] = [("Chain", "title")]
        if finding is not None:
            name = escape_text(finding.title, ascii_only=glyphs.ascii)
            title.append((f" of {self.chain.index + 1}: {name}", "dim"))
        hidden = len(lines) - placed.height + 1
        page = "[w] page" if lines else ""
        more = f"+{hidden} row{'s' if hidden > 1 else ''} [w]" if hidden > 0 else page
        head = title_line(title, more, width, glyphs, focused=False)
        return [
            head,
            *(fit_line(line, width, ellipsis=glyphs.ellipsis) for line in lines[: placed.height - 1]),
        ]

    def _chart(self, placed: Placed) -> list[Line]:
        row = self.panes.calls.selected_row
        name = escape_text(row.api, ascii_only=self.glyphs.ascii) if row else "no call"
        head = self.panes.title(name, "[Enter] on a call", placed.width, focused=False)
        if row is None:
            return [head]
        return [head, *callpage.chart_lines(row, placed.width, placed.height - 1, self.glyphs)]

    @staticmethod
    def _title_token(focused: bool) -> str:
        return "title.focus" if focused else "title"

    def _scrolled(self, title: str, lines: list[Line], placed: Placed) -> list[Line]:
        self._page = placed.height - 1
        self._overlay_length = len(lines)
        self._scroll = max(0, min(self._scroll, len(lines) - self._page))
        below = len(lines) - self._scroll - self._page
        right = f"+{below} row{'s' if below > 1 else ''} [Esc] back" if below > 0 else "[Esc] back"
        shown = [
            fit_line(line, placed.width, ellipsis=self.glyphs.ellipsis)
            for line in lines[self._scroll : self._scroll + self._page]
        ]
        return [self.panes.title(title, right, placed.width, focused=True), *shown]
