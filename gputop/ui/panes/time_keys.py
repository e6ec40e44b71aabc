"""The keys of every screen that move in time, mark moments and record."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.format import escape_text, format_bytes, format_duration
from gputop.playback.bookmarks import FINDING, MARKED, Landmark
from gputop.playback.feed import RecorderControls
from gputop.playback.player import SPEEDS
from gputop.process.terminal import in_browser
from gputop.ui.model.time.jump import HINT, jump_target
from gputop.ui.panes.dialogs import Confirm, Question
from gputop.ui.panes.pane import PaneScreen, quiet_key

AFTER_NS = 300_000_000  # from a moment to a frame that shows it


class TimeScreen(PaneScreen):
    """A screen with keys to pause, go back in time, mark moments and record."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", tooltip="pause or play; live data is still collected"),
        quiet_key("left_square_bracket", "step(-1)", "Back",
                  "one frame back; live: pause and step back through the last ten minutes"),
        Binding("right_square_bracket", "step(1)", "Step", key_display="[ ]", tooltip="one frame forward"),
        quiet_key("left_curly_bracket", "landmark(-1)", "Earlier",
                  "to the previous finding (!) or marker (M) on the time bar"),
        Binding(
            "right_curly_bracket", "landmark(1)", "Finding", key_display="{ }",
            tooltip="to the next finding or marker; ~: lost events or a gap",
        ),
        quiet_key("minus", "speed(0.5)", "Slower", "half the speed, down to 0.25"),
        Binding(
            "equals_sign,plus", "speed(2.0)", "Speed", show=False, key_display="=",
            tooltip="twice the speed, up to 64",
        ),
        Binding("J", "jump", "Jump", tooltip=f"go to a moment: {HINT}"),
        quiet_key("L", "newest", "Live", "to the newest frame, and follow it"),
        quiet_key("m", "mark", "Mark", "mark this moment with a note"),
        Binding(
            "R", "record", "Record",
            tooltip="start or stop recording; the kept history can be included",
        ),
    ]  # fmt: skip
    _visited: Landmark | None = None  # the landmark shown, until time moves

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable recording in a replay and in a browser."""
        return self.app.view.mode == "live" and not in_browser() if action == "record" else True

    def key_upper_r(self) -> None:
        """Show why recording is disabled."""
        if self.app.view.mode != "live" or in_browser():
            self.action_record()

    def _moved(self) -> None:
        self._visited = None
        self.app.poll_soon()

    def action_pause(self) -> None:
        self.app.feed.transport.toggle()
        self._moved()

    def action_newest(self) -> None:
        if self.app.feed.transport.live:
            self.app.show_message("this is the newest frame")
        self.app.feed.transport.go_live()
        self._moved()

    def action_step(self, marks: int) -> None:
        """Step by marks."""
        if marks > 0 and self.app.feed.transport.live:
            self.app.show_message("this is the newest frame")
            return
        self.app.feed.transport.step(marks)
        self._moved()

    def action_speed(self, factor: float) -> None:
        transport = self.app.feed.transport
        transport.set_speed(min(max(transport.speed * factor, SPEEDS[0]), SPEEDS[1]))
        if transport.live:
            self.app.show_message(f"{transport.speed:g}x, once paused or in the past")
        self.app.poll()

    def go_to_edge(self, edge: int) -> None:
        transport = self.app.feed.transport
        self.go_to(transport.end_ns if edge else transport.start_ns)

    def action_landmark(self, by: int) -> None:
        transport = self.app.feed.transport
        places = [mark for mark in transport.landmarks() if mark.kind in (FINDING, MARKED)]
        # from the landmark itself, since its frame may be a little older
        at = Landmark(transport.position_ns, "", "") if self._visited is None else self._visited
        places = [mark for mark in places if (mark > at if by > 0 else mark < at)]
        if not places:
            self.app.show_message(f"no {'later' if by > 0 else 'earlier'} finding or marker")
            return
        chosen = places[0 if by > 0 else -1]
        self.go_to(chosen.time_ns)
        self._visited = chosen
        self.app.show_message(f"{chosen.kind}: {escape_text(chosen.text)}")

    def go_to(self, time_ns: int) -> None:
        """Go to a moment and pause."""
        self.app.feed.transport.seek(time_ns)
        self.app.feed.transport.step(0)
        self._moved()

    def action_jump(self) -> None:
        if self.app.view.frame is not None:
            self.app.prompt(Question("go to", self._jump, hint=HINT))

    def _jump(self, text: str) -> str:
        frame = self.app.view.frame
        try:
            if frame is not None:
                self.go_to(jump_target(text, self.app.feed.transport, frame))
        except ValueError as error:
            return str(error)
        return ""

    def action_mark(self) -> None:
        if self.app.view.frame is not None:
            self.app.prompt(Question("mark this moment, with a note", self._mark, hint=self._kept()))

    def _kept(self) -> str:
        """Return how long a marker is kept."""
        recorder = self.app.feed.recorder
        if recorder is None:
            return "kept until gputop ends: a recording is read-only"
        if self.app.feed.recording() is not None:
            return "kept in the recording"
        if recorder.held()[0] > 0:
            return "kept for the last minutes, and in a recording that includes them [R]"
        return "kept until gputop ends: nothing is recorded [R]"

    def _mark(self, text: str) -> str:
        self.app.feed.transport.mark(text)
        self.app.show_message(f"marked: {self._kept()}")
        self.app.poll()
        return ""

    def go_to_moment(self, moment_ns: int) -> None:
        """Go to one of a finding's worst moments, if it is still kept."""
        transport = self.app.feed.transport
        nothing = transport.live and transport.start_ns >= transport.end_ns
        if nothing or moment_ns + AFTER_NS < transport.start_ns:
            self.app.show_message("that moment is no longer kept")
            return
        self.go_to(moment_ns + AFTER_NS)

    # -- recording --------------------------------------------------------------------------------

    def action_record(self) -> None:
        if in_browser():
            self.app.show_message("the browser cannot record: use gputop record")
            return
        recorder = self.app.feed.recorder
        if recorder is None:
            self.app.show_message("this is a recording already")
            return
        if self.app.feed.recording() is not None:
            self.app.show_message("ending the recording ...")
            recorder.stop()
            return
        span_ns, size = recorder.held()
        if span_ns <= 0:
            self._prompt_path(recorder, history=False)
            return

        def answered(yes: bool) -> None:
            self._prompt_path(recorder, history=yes)

        held = f"{format_duration(span_ns)} ({format_bytes(size)})"
        question = f"record: include the last {held}?"
        self.app.prompt(Confirm(question, "record from now on", "include it", answered))

    def _prompt_path(self, recorder: RecorderControls, *, history: bool, occupied: str = "") -> None:
        def answered(path: str) -> str:
            return self._record_to(recorder, path.strip(), history=history)

        from gputop.ui.exports import free_name

        path = free_name(occupied or recorder.default_path())
        title = f"{escape_text(occupied)} exists; record to" if occupied else "record to"
        self.app.prompt(Question(title, answered, path, hint="a new file"))

    def _record_to(self, recorder: RecorderControls, path: str, *, history: bool) -> str:
        if not path:
            return "enter a file name"
        path = os.path.expanduser(path)
        if os.path.lexists(path):
            self._prompt_path(recorder, history=history, occupied=path)
            return ""
        return recorder.start(path, history=history)
