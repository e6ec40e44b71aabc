"""The timeline: lanes of the GPUs and of threads, in blocks of colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.ui.model.answer.whylines import hidden_text
from gputop.ui.model.look import Line
from gputop.ui.model.time.blocklanes import Look
from gputop.ui.model.time.timeblocks import Picture
from gputop.ui.panes.pane import Heading, Pane, quiet_key
from gputop.ui.panes.time_keys import TimeScreen

NO_LANES = "no lanes yet: the first seconds are still being analysed"


class TimelinePane(Pane):
    """Lanes of the GPUs and of one or all threads over the last seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("comma", "span(-1)", "Less", "less time"),
        Binding("full_stop", "span(1)", "Time", key_display=", .", tooltip="more time: 10 s, 1 min, 5 min"),
        quiet_key("up,k", "thread(-1)", "Up", "the lane of the thread above"),
        quiet_key("down,j", "thread(1)", "Down", "the lane of the thread below"),
        Binding("enter", "screen.zoom", "Zoom", tooltip="all GPUs and all threads"),
    ]
    room: int | None = None  # lines available; None: unlimited
    _seen = False
    _picture: Picture | None = None

    @property
    def has_lanes(self) -> bool:
        """True if there are lanes to draw."""
        frame = self.view.frame
        if frame is None or self.has_class("-unwanted"):
            return False
        return not self.view.timeline.empty(frame.time_ns)

    def full(self, width: int) -> int:
        """Return the number of lines of all lanes."""
        return self.view.timeline.wanted(width)

    def wanted(self, width: int) -> int:
        """Return the lines that fit; none before the first lanes, unless the timeline was opened."""
        frame, timeline = self.view.frame, self.view.timeline
        if frame is None or timeline.empty(frame.time_ns):
            return int(self._seen or self.has_class("-wanted") or self.has_focus)
        self._seen = True  # a line stays, so that nothing jumps
        full = self.full(width)
        return full if self.room is None or self.has_class("-maximized") else min(full, self.room)

    def heading(self) -> Heading:
        frame, hidden = self.view.frame, self._picture.hidden if self._picture else 0
        span = self.view.timeline.title(self.size.width, frame.time_ns) if frame else ""
        keys = "  [,] less [.] more time  [Up Down] thread" if self.has_focus else ""
        labels = self.view.timeline.labels
        more = f"+{hidden_text(hidden, labels)} [z]" if hidden else "click = go there"
        return [("Timeline", ""), (f"  {span}", "dim"), (keys, "key")], more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        view, frame = self.view, self.view.frame
        self._picture = None
        if frame is None:
            return []
        view.timeline.chosen_ns = view.chain.moments_ns
        view.timeline.marked_ns = view.marked_ns
        if view.timeline.empty(frame.time_ns):
            text = NO_LANES if frame.calls_observed else "no lanes: CUDA calls are unknown without eBPF"
            return [view.glyphs.line([(f" {text}", "unknown")], width)]
        subject = view.thread_subject()
        subjects = view.thread_subjects() if self.screen.maximized is self else [subject] if subject else []
        look = Look(view.glyphs, self.app.palette.letters)
        self._picture = view.timeline.picture(width, height, subjects, frame.time_ns, look)
        return self._picture.lines

    def clicked(self, x: int, y: int) -> None:
        moment, screen = self._picture.view.moment_ns(x) if self._picture else None, self.screen
        if moment is not None and isinstance(screen, TimeScreen):
            screen.go_to(moment)

    def action_span(self, by: int) -> None:
        self.view.timeline.zoom(by)
        self.changed()

    def action_thread(self, by: int) -> None:
        subject = self.view.thread_subject()
        if subject is not None:
            self.view.threads.select(subject.tid)
            self.view.threads.move(by)
            self.changed()
