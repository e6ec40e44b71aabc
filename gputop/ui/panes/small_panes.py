"""The small panes: header, banner, storms, chain, chart, output, bar of time."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from gputop.ui.model import header
from gputop.ui.model.gpus.host_line import host_spans
from gputop.ui.model.look import Line, Span, line_width, spread, trimmed, wrap
from gputop.ui.model.process import callpage
from gputop.ui.model.time.timebar import moment_at, transport_line
from gputop.ui.panes.pane import Heading, Plain
from gputop.ui.panes.time_keys import TimeScreen

TALL, GIANT = 30, 60  # lines of a screen with room for some output, and for everything


class Header(Plain):
    """The first line: mode, time, lost events, problems."""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        view = self.view
        return [header.header_line(view.problem_frame, view.status, width, view.glyphs)]


class Banner(Plain):
    """The first problem, in as few lines as possible."""

    def _lines(self, width: int, most: int) -> list[Line]:
        view = self.view
        return header.banner_lines(view.problem_frame, view.status, width, most, view.glyphs)

    def wanted(self, width: int) -> int:
        return len(self._lines(width, 1 if self.app.size.height < 20 else 3))

    def lines(self, width: int, height: int) -> Sequence[Line]:
        return self._lines(width, height)

    def clicked(self, x: int, y: int) -> None:
        self.app.simulate_key("exclamation_mark")


class Storms(Plain):
    """Current storms of context switches, and the machine's figures if there is room."""

    def wanted(self, width: int) -> int:
        """Return a line for each storm; with enough room at least one, so that nothing jumps."""
        if "storms" in self.view.hidden:
            return 0
        height, frame = self.app.size.height, self.view.frame
        most = 1 if height < 16 else 2 if height < 30 else 4
        return max(min(len(frame.storms) if frame else 0, most), int(height >= 20))

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the storms, with the machine's figures in the first line."""
        frame, view = self.view.frame, self.view
        if frame is None:
            return []
        lines = header.storm_lines(frame, view.explained, width, height, view.glyphs)
        if frame.host is None:
            return lines
        first = trimmed(lines[0]) if lines else ()
        host = host_spans(frame.host, width - line_width(first) - 2 * bool(first), view.glyphs)
        return [spread(first, host, width) if first else view.glyphs.line(host, width), *lines[1:]]

    def clicked(self, x: int, y: int) -> None:
        self.app.simulate_key("H")


class Chain(Plain):
    """The chain of the selected finding, on big screens."""

    room: int | None = None  # lines available; None: unlimited
    _seen = False

    def full(self) -> int:
        """Return the most lines for this screen; none before the first finding."""
        self._seen = self._seen or self.view.chain.selected is not None
        return (6 if self.app.size.height < GIANT else 11) if self._seen else 0

    def wanted(self, width: int) -> int:
        """Return the same number from the first finding on, so that nothing jumps."""
        full = self.full()
        return full if self.room is None else min(full, self.room)

    def heading(self) -> Heading:
        finding = self.view.chain.selected
        title: list[Span] = [("Chain", "")]
        if finding is not None:
            name = self.view.glyphs.shown(finding.title)
            title.append((f" of {self.view.chain.index + 1}: {name}", "dim"))
        return title, "[w] page" if finding is not None else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        glyphs = self.view.glyphs
        lines = self.view.chain.detail(width, glyphs, replay=False)
        return [glyphs.line(line, width) for line in lines[:height]]


class Chart(Plain):
    """Durations of the calls of the selected row, on big screens."""

    room: int | None = None  # lines available, with the heading; None: unlimited

    def full(self) -> int:
        return 6 if self.app.size.height >= GIANT else 0

    def wanted(self, width: int) -> int:
        """Return all lines or none."""
        return 0 if self.room == 0 else self.full()

    def heading(self) -> Heading:
        row = self.view.calls.selected_row
        name = self.view.glyphs.shown(row.api) if row else "no call"
        return [(name, "")], "Enter on a call"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        row = self.view.calls.selected_row
        return callpage.chart_lines(row, width, height, self.view.glyphs) if row else []


class Log(Plain):
    """The output of the started command."""

    def wanted(self, width: int) -> int:
        """Return a part of the screen's lines, a smaller one beside the timeline; 0 while hidden."""
        if not self.view.log_shown:
            return 0
        both, height = self.screen.query_one("#timeline").display, self.app.size.height
        most = height // 12 if both or height < TALL else height // 5
        return min(most, max(len(self.view.log), 1))

    def heading(self) -> Heading:
        return [("Output of the command", "")], "[l] hide"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        log, glyphs = self.view.log, self.view.glyphs
        if not log:
            live = self.view.mode == "live"
            notice = "No output yet." if live else "A recording does not hold the command's output."
            return [glyphs.line([(f" {notice}", "dim")], width)]
        shown = (glyphs.clip(glyphs.shown(text.expandtabs(4)), width - 1) for text in log[-height:])
        return [glyphs.line([(f" {text}", "")], width) for text in shown]


class TimeBar(Plain):
    """The position in time, while not live."""

    def wanted(self, width: int) -> int:
        return 0 if self.view.live else 1

    def lines(self, width: int, height: int) -> Sequence[Line]:
        transport = self.view.transport
        return [transport_line(transport, width, self.view.glyphs)] if transport else []

    def on_click(self, event: events.Click) -> None:
        transport, screen = self.view.transport, self.screen
        moment = moment_at(transport, self.size.width, self.view.glyphs, event.x) if transport else None
        if moment is not None and isinstance(screen, TimeScreen):
            screen.go_to(moment)


class TooSmall(Plain):
    """Replaces everything on a terminal that is too small."""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        size = self.app.size
        sentence = f"terminal too small ({size.width}x{size.height}): gputop needs 40x10"
        return [self.view.glyphs.line([(text, "warn")], width) for text in wrap(sentence, max(width, 1))]
