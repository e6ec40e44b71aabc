"""The panes of the main screen that are no tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gputop.explain.onestep import OneStep
from gputop.format import NS_PER_S as S
from gputop.format import clip, escape_text
from gputop.ui.model import callpage, gpu_history, gpu_users, gpus, header, waterfall, why
from gputop.ui.model.blocklanes import Look
from gputop.ui.model.look import Line, Span, fit_line, wrap
from gputop.ui.model.timebar import moment_at, transport_line
from gputop.ui.model.timeblocks import Picture
from gputop.ui.model.verdict import storm_costs, verdict_line
from gputop.ui.model.whylines import heading, why_lines
from gputop.ui.pane import Heading, Pane
from gputop.ui.time_keys import TimeScreen

USERS = 2  # of GPUs that a huge screen lists beside the GPUs themselves
HUGE, GIANT = 44, 60  # lines of a screen that has room for more, and of one that has it for everything
GRAPHS = 5  # lines of the only GPU: two or more graphs and a line of figures
LEAST_USERS = 2  # lines to spare that are worth it: a heading and a process
PANEL_WIDTH, PANEL_HEIGHT, TALL = 60, 20, 30  # from which on there is a panel, and one with a title
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
    """Why the GPU was idle: ranges of the GPUs, the first causes, the fix; a line where it is narrow."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.why", "Open", tooltip="all findings and their chains"),
    ]

    _told_of: tuple[object, object, why.Why] | None = None
    _made: tuple[object, list[Line]] = (None, [])

    def _why(self) -> why.Why:
        frame, explained = self.view.frame, self.view.explained
        if self._told_of is None or self._told_of[0] is not explained or self._told_of[1] is not frame:
            told = why.why_of(explained, frame) if frame else why.Why(said="nothing was seen yet")
            self._told_of = explained, frame, told
        return self._told_of[2]

    def _is_line(self) -> bool:
        """Whether there is room for one sentence only: on pages, and on small screens."""
        size = self.app.size
        return not self.screen.query(Gpus) or size.width < PANEL_WIDTH or size.height < PANEL_HEIGHT

    def wanted(self, width: int) -> int:
        """Five lines with the title, three on usual terminals; a calm program needs fewer."""
        if self._is_line():
            return 1
        return len(self._panel(width, 4 if self.app.size.height >= TALL else 3))

    def _panel(self, width: int, height: int) -> list[Line]:
        told, titled = self._why(), self.app.size.height < TALL
        asked = told, width, height, titled
        if self._made[0] != asked:
            self._made = asked, why_lines(told, width, height, self.view.glyphs, titled=titled)
        return self._made[1]

    def heading(self) -> Heading | None:
        """The question, how old the answer is, the class."""
        if self._is_line() or self.app.size.height < TALL:
            return None
        told = self._why()
        return heading(told, self.view.glyphs), "" if told.calm and not told.more else "[w] all findings"

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The panel, or the verdict in one line."""
        view, frame = self.view, self.view.frame
        if not self._is_line():
            lines = list(self._panel(width, height))
            if self.app.size.height < TALL and self.has_focus and lines:
                (first, _), *rest = lines[0]
                lines[0] = ((view.glyphs.cursor + first[1:], "title.focus"), *rest)
            return lines
        now_ns = frame.time_ns if frame else view.explained.end_ns
        traced = frame is None or frame.calls_observed
        return [
            verdict_line(view.explained, now_ns, width, view.glyphs, focused=self.has_focus, traced=traced)
        ]

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
        """As many lines as there are GPUs and a heading, or a few graphs of the only one."""
        height, frame = self.app.size.height, self.view.frame
        room = max(1, height // 5 if height < TALL else height // 4)
        if frame is None:
            return 1
        if self._graphed():
            return min(GRAPHS, room)
        lines, uses = gpus.lines_needed(frame, width, room), gpu_users.everybody(frame)
        return lines + 1 + min(len(uses), USERS) if uses and height >= HUGE else lines

    def _graphed(self) -> bool:
        """Whether one GPU has the pane for its graphs."""
        frame = self.view.frame
        return frame is not None and len(frame.gpus) == 1 and self.app.size.height >= TALL

    def heading(self) -> Heading:
        """How many, and the driver; of the only one how much time its graphs span."""
        frame, gpu, glyphs = self.view.frame, self.view.gpu, self.view.glyphs
        if self._graphed() and gpu is not None:
            name = escape_text(gpu.name, ascii_only=glyphs.ascii)
            return [(f"GPU {gpu.index}", ""), (f"  {name}", "dim")], gpu_history.span_text(self.size.width)
        title: list[Span] = [("GPUs", ""), (f" {len(frame.gpus) if frame else 0}", "dim")]
        if frame and frame.driver:
            title.append((f"  driver {escape_text(frame.driver)}", "faint"))
        return title, self._more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The GPUs, then who uses them; graphs of the only one."""
        frame, glyphs, gpu = self.view.frame, self.view.glyphs, self.view.gpu
        if frame is None:
            return []
        if self._graphed() and gpu is not None:
            return gpu_history.detail_lines(self.view.gpu_history, frame, gpu, width, height, glyphs)
        self._first = 1 if gpus.has_full_lines(frame, width, height) else None
        chosen = gpu if self.has_focus else None
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


class Step(Plain):
    """One step of the selected process as a waterfall, beside the GPUs; empty where it repeats nothing."""

    def _step(self) -> OneStep | None:
        row = self.view.selected
        return waterfall.step_of(self.view.explained, row.pid) if row else None

    def wanted(self, width: int) -> int:
        """As high as the GPUs beside it."""
        return GRAPHS if self._step() is not None else 0

    def heading(self) -> Heading:
        """Which step it is."""
        return [(waterfall.title(self._step()), "")], ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The waterfall."""
        letters = self.app.palette.letters
        return waterfall.waterfall_lines(self._step(), width, height, self.view.glyphs, letters=letters)


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
    _picture: Picture | None = None
    _drawn: tuple[object, int] = (None, 0)  # the explanation, and the moment at the right end

    def wanted(self, width: int) -> int:
        """Lines for everything there is, one where there is nothing."""
        frame, timeline = self.view.frame, self.view.timeline
        return timeline.wanted() if frame and not timeline.empty(frame.time_ns) else 1

    def heading(self) -> Heading:
        """How much time."""
        frame, hidden = self.view.frame, self._picture.hidden if self._picture else 0
        span = self.view.timeline.title(self.size.width, frame.time_ns) if frame else ""
        keys = "  [,] less [.] more time  [Up Down] thread" if self.has_focus else ""
        more = f"+{hidden} GPU{'s' if hidden > 1 else ''} [z]" if hidden else "click = go there"
        return [("Timeline", ""), (f"  {span}", "dim"), (keys, "key")], more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """The lanes."""
        view, frame = self.view, self.view.frame
        self._picture = None
        if frame is None:
            return []
        view.timeline.chosen_ns = view.chain.moments_ns
        if view.timeline.empty(frame.time_ns):
            said = NO_LANES if frame.calls_observed else "no lanes: calls are not observed without eBPF"
            return [fit_line([(f" {said}", "unknown")], width, ellipsis=view.glyphs.ellipsis)]
        subject = view.thread_subject()
        subjects = view.thread_subjects() if self.screen.maximized is self else [subject] if subject else []
        look = Look(view.glyphs, self.app.palette.letters)
        if not (view.live and self._drawn[0] is view.explained and 0 <= frame.time_ns - self._drawn[1] < S):
            self._drawn = view.explained, frame.time_ns  # between explanations once a second is enough
        self._picture = view.timeline.picture(width, height, subjects, self._drawn[1], look)
        return self._picture.lines

    def clicked(self, x: int, y: int) -> None:
        """Go to that moment."""
        moment, screen = self._picture.moment_ns(x) if self._picture else None, self.screen
        if moment is not None and isinstance(screen, TimeScreen):
            screen.go_to(moment)

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


class Chain(Plain):
    """The chain of the selected finding, open on big screens."""

    def wanted(self, width: int) -> int:
        """Always as many, so that nothing jumps."""
        return 6 if self.app.size.height < GIANT else 11

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
        return 6 if self.app.size.height >= GIANT else 0

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
