"""The panes of the main screen that are no tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gputop.format import clip, escape_text
from gputop.ui.model import callpage, gpu_users, gpus, header
from gputop.ui.model.look import Line, Span, fit_line, wrap
from gputop.ui.model.timebar import moment_at, transport_line
from gputop.ui.model.verdict import storm_costs, verdict_line
from gputop.ui.pane import Heading, Pane
from gputop.ui.time_keys import TimeScreen

FINDINGS = 6  # lines
LEAST_USERS = 2  # lines to spare that are worth it: a heading and a process
NO_LANES = "no lane yet: the first seconds are still being looked at"


class Plain(Pane, can_focus=False):
    """A pane that the keys do not go to."""


class Header(Plain):
    """The first line: what one sees, when, and how far it can be trusted."""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """One line."""
        view = self.view
        return [header.header_line(view.told, view.status, width, view.glyphs)]


class Banner(Plain):
    """What is wrong, in as few lines as it needs."""

    def _lines(self, width: int, most: int) -> list[Line]:
        view = self.view
        return header.banner_lines(view.told, view.status, width, most, view.glyphs)

    def wanted(self, width: int) -> int:
        """None when nothing is wrong."""
        return len(self._lines(width, 1 if self.app.size.height < 20 else 3))

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The first problem, and how many others there are."""
        return self._lines(width, height)

    def clicked(self, x: int, y: int) -> None:
        """All of them."""
        self.app.simulate_key("exclamation_mark")


class Why(Pane):
    """Why the GPU was idle."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.why", "Open", tooltip="all findings and their chains"),
    ]

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The verdict."""
        view, frame = self.view, self.view.frame
        now_ns = frame.time_ns if frame else view.explained.end_ns
        traced = frame is None or frame.calls_observed
        line = verdict_line(view.explained, now_ns, width, view.glyphs, focused=self.has_focus, traced=traced)
        return [line]

    def clicked(self, x: int, y: int) -> None:
        """Its chain."""
        self.app.simulate_key("w")


class Gpus(Pane):
    """The GPUs: a line each, or columns of short lines; who uses them where there are lines to spare."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.gpu_page", "Open", tooltip="a GPU: every figure of it"),
        Binding("up,k", "cursor(-1)", "Up", show=False, tooltip="the GPU above"),
        Binding("down,j", "cursor(1)", "Down", show=False, tooltip="the GPU below"),
    ]
    _first: int | None = None  # line of the first GPU where each has a line of its own
    _more = ""

    def wanted(self, width: int) -> int:
        """As many lines as there are GPUs and a heading, as far as a quarter of the screen allows."""
        height = self.app.size.height
        room = max(1, height // 5 if height < 30 else height // 4)
        lines = gpus.lines_needed(self.view.frame, width, room) if self.view.frame else 1
        return max(lines, FINDINGS) if self.screen.query_one(Findings).display else lines

    def heading(self) -> Heading:
        """How many, and the driver."""
        frame = self.view.frame
        title: list[Span] = [("GPUs", ""), (f" {len(frame.gpus) if frame else 0}", "dim")]
        if frame and frame.driver:
            title.append((f"  driver {escape_text(frame.driver)}", "faint"))
        return title, self._more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The GPUs, then who uses them."""
        frame, glyphs = self.view.frame, self.view.glyphs
        if frame is None:
            return []
        self._first = 1 if gpus.has_full_lines(frame, width, height) else None
        chosen = self.view.gpu if self.has_focus else None
        lines, self._more = gpus.gpu_lines(frame, width, height, glyphs, chosen.index if chosen else None)
        uses, room = gpu_users.everybody(frame), height - len(lines)
        if room >= LEAST_USERS and uses:
            table = gpu_users.table(uses[: room - 1], glyphs, with_gpu=True)
            lines += [fit_line(line, width, ellipsis=glyphs.ellipsis) for line in table]
            more = len(uses) - room + 1
            self._more = self._more or (f"+{more} process{'es' if more > 1 else ''}" if more > 0 else "")
        return lines

    def action_cursor(self, by: int) -> None:
        """Another GPU."""
        self.view.move_gpu(by)
        self.changed()

    def clicked(self, x: int, y: int) -> None:
        """The GPU of that line."""
        frame, gpu = self.view.frame, self.view.gpu
        if frame and gpu and self._first is not None and 0 <= y - self._first < len(frame.gpus):
            self.action_cursor(y - self._first - frame.gpus.index(gpu))


class Storms(Plain):
    """The storms of context switches that are under way."""

    def wanted(self, width: int) -> int:
        """A line each; where there is room one line stays when a storm ends, so that nothing jumps."""
        if "storms" in self.view.hidden:
            return 0
        height, frame = self.app.size.height, self.view.frame
        most = 1 if height < 16 else 2 if height < 30 else 4
        return max(min(len(frame.storms) if frame else 0, most), int(height >= 20))

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Who suffers, how much, and who preempts it."""
        frame, view = self.view.frame, self.view
        if frame is None:
            return []
        costs = storm_costs(view.explained)
        return header.storm_lines(
            frame.storms, width, height, view.glyphs, traced=frame.calls_observed, costs=costs
        )


class TimelinePane(Pane):
    """Lanes of the GPUs and of one thread, or of all threads, over the last seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("comma", "span(-1)", "Less", show=False, tooltip="less time"),
        Binding("full_stop", "span(1)", "Time", key_display=", .", tooltip="more time: 10 s, 1 min, 5 min"),
        Binding("up,k", "thread(-1)", "Up", show=False, tooltip="the lane of the thread above"),
        Binding("down,j", "thread(1)", "Down", show=False, tooltip="the lane of the thread below"),
        Binding("enter", "screen.zoom", "Zoom", tooltip="all GPUs and all threads"),
    ]
    _hidden = 0

    def wanted(self, width: int) -> int:
        """Lines for everything there is."""
        frame = self.view.frame
        return self.view.timeline.wanted() - 1 if frame and not self.view.timeline.empty(frame.time_ns) else 1

    def heading(self) -> Heading:
        """How much time."""
        span = self.view.timeline.title(self.size.width)
        keys = "  [,] less [.] more time  [Up Down] thread" if self.has_focus else ""
        more = f"+{self._hidden} GPU{'s' if self._hidden > 1 else ''} [z]" if self._hidden else ""
        return [("Timeline", ""), (f"  {span}", "dim"), (keys, "key")], more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The lanes."""
        view, frame = self.view, self.view.frame
        if frame is None:
            return []
        view.timeline.chosen_ns = view.chain.moments_ns
        self._hidden = 0
        if view.timeline.empty(frame.time_ns):
            said = NO_LANES if frame.calls_observed else "no lanes: calls are not observed without eBPF"
            return [fit_line([(f" {said}", "unknown")], width, ellipsis=view.glyphs.ellipsis)]
        if self.screen.maximized is self:
            return view.timeline.every_line(width, view.thread_subjects(), frame.time_ns)[:height]
        lines, self._hidden = view.timeline.lines(width, height, view.thread_subject(), frame.time_ns)
        return lines

    def action_span(self, by: int) -> None:
        """More time in sight, or less."""
        self.view.timeline.zoom(by)
        self.changed()

    def action_thread(self, by: int) -> None:
        """Another thread gets the lane."""
        subject = self.view.thread_subject()
        if subject is not None:
            self.view.threads.select(subject.tid)
            self.view.threads.move(by)
            self.changed()


class Findings(Pane):
    """All findings, a line each: only big screens have room for it beside the verdict."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.why", "Open", tooltip="all findings and their chains"),
        Binding("up,k", "cursor(-1)", "Up", show=False, tooltip="the finding above"),
        Binding("down,j", "cursor(1)", "Down", show=False, tooltip="the finding below"),
    ]
    _top = 0

    def wanted(self, width: int) -> int:
        """Always as many, so that nothing jumps."""
        return FINDINGS

    def heading(self) -> Heading:
        """How many."""
        report = self.view.explained.report
        count = len(report.findings) if report else 0
        return [
            ("Findings", ""),
            (f" {count}", "dim"),
        ], f"+{count - FINDINGS} [w]" if count > FINDINGS else "[w] all"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Those around the selected one."""
        rows = self.view.chain.rows(width, self.view.glyphs)
        self._top = max(0, min(self.view.chain.index - height + 1, len(rows) - height))
        return [fit_line(line, width) for line in rows[self._top : self._top + height]]

    def action_cursor(self, by: int) -> None:
        """Another finding."""
        self.view.chain.move(by)
        self.changed()

    def clicked(self, x: int, y: int) -> None:
        """The finding of that line."""
        self.action_cursor(self._top + y - self.view.chain.index)


class Chain(Plain):
    """The chain of the selected finding, open on big screens."""

    def wanted(self, width: int) -> int:
        """Always as many, so that nothing jumps."""
        return 11

    def heading(self) -> Heading:
        """Of which finding."""
        finding = self.view.chain.selected
        title: list[Span] = [("Chain", "")]
        if finding is not None:
            name = escape_text(finding.title, ascii_only=self.view.glyphs.ascii)
            title.append((f" of {self.view.chain.index + 1}: {name}", "dim"))
        return title, "[w] page" if finding is not None else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """As much of it as there is room for."""
        glyphs = self.view.glyphs
        lines = self.view.chain.detail(width, glyphs, replay=False)
        return [fit_line(line, width, ellipsis=glyphs.ellipsis) for line in lines[:height]]


class Chart(Plain):
    """How long the calls of the selected row took, on big screens."""

    def wanted(self, width: int) -> int:
        """The chart with its axis."""
        return 6

    def heading(self) -> Heading:
        """Of which call."""
        row = self.view.calls.selected_row
        name = escape_text(row.api, ascii_only=self.view.glyphs.ascii) if row else "no call"
        return [(name, "")], "Enter on a call"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The chart."""
        row = self.view.calls.selected_row
        return callpage.chart_lines(row, width, height, self.view.glyphs) if row else []


class Log(Plain):
    """The output of the started command."""

    def wanted(self, width: int) -> int:
        """A part of the screen, where it is asked for."""
        return max(3, self.app.size.height // 5) if self.view.log_shown else 0

    def heading(self) -> Heading:
        """What it is."""
        return [("Output of the command", "")], "[l] hide"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The newest lines."""
        log, glyphs = self.view.log, self.view.glyphs
        if not log:
            return [fit_line([(" No output yet.", "dim")], width)]
        shown = (
            clip(escape_text(text.expandtabs(4), ascii_only=glyphs.ascii), width - 1, glyphs.ellipsis)
            for text in log[-height:]
        )
        return [fit_line([(f" {text}", "")], width) for text in shown]


class TimeBar(Plain):
    """Where the screen stands in time, while it is not live."""

    def wanted(self, width: int) -> int:
        """Nothing while it is live."""
        return 0 if self.view.live else 1

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The bar."""
        transport = self.view.transport
        return [transport_line(transport, width, self.view.glyphs)] if transport else []

    def on_click(self, event: events.Click) -> None:
        """Go to the moment that was clicked."""
        transport, screen = self.view.transport, self.screen
        moment = moment_at(transport, self.size.width, self.view.glyphs, event.x) if transport else None
        if moment is not None and isinstance(screen, TimeScreen):
            screen.go_to(moment)


class TooSmall(Plain):
    """Stands alone where the terminal is too small for anything else."""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """One sentence."""
        size = self.app.size
        sentence = f"terminal too small ({size.width}x{size.height}): gputop needs 40x10"
        return [fit_line([(text, "warn")], width) for text in wrap(sentence, max(width, 1))]
