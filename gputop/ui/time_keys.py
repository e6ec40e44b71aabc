"""The keys that move in time, mark moments and record: each does something to the feed."""

from __future__ import annotations

import os

from gputop.format import escape_text, format_bytes, format_duration
from gputop.playback.feed import Feed, Recorder
from gputop.playback.landmarks import FINDING, MARKED, Landmark
from gputop.playback.player import SPEEDS
from gputop.ui.model.jump import HINT, jump_target
from gputop.ui.model.presenter import Presenter
from gputop.ui.model.prompt import Letter, Prompt
from gputop.ui.model.timebar import TransportView

AFTER_NS = 300_000_000  # a frame shows what came before it: this much after a moment holds it


class TimeKeys:
    """What the program does for the keys of the groups Time and Session.

    Attributes:
        feed: Where frames come from.
        presenter: The screen.
    """

    feed: Feed
    presenter: Presenter
    _visited: Landmark | None = None  # the landmark that was gone to, until time moves otherwise

    def transport_view(self) -> TransportView | None:
        """Where the screen stands in time; None while it is live."""
        transport = self.feed.transport
        if transport.live:
            return None
        return TransportView(
            transport.playing,
            transport.speed,
            transport.position_ns,
            transport.start_ns,
            transport.end_ns,
            tuple((landmark.time_ns, landmark.kind) for landmark in transport.landmarks()),
        )

    def do_pause(self) -> None:
        """Hold time, or let it go."""
        self._visited = None
        self.feed.transport.toggle()

    def do_newest(self) -> None:
        """To the newest frame."""
        self._visited = None
        if self.feed.transport.live:
            self.presenter.notice = "this is the present"
        self.feed.transport.go_live()

    def do_step(self) -> None:
        """One mark forward."""
        if self.feed.transport.live:
            self.presenter.notice = "there is nothing later than the present: [ goes back, space holds it"
            return
        self._visited = None
        self.feed.transport.step(1)

    def do_step_back(self) -> None:
        """One mark back."""
        self._visited = None
        self.feed.transport.step(-1)

    def do_slower(self) -> None:
        """Half the speed."""
        self._scale_speed(0.5)

    def do_faster(self) -> None:
        """Twice the speed."""
        self._scale_speed(2.0)

    def _scale_speed(self, factor: float) -> None:
        transport = self.feed.transport
        if transport.live:
            self.presenter.notice = "the present has one speed: space and [ go back to play it again"
            return
        transport.set_speed(min(max(transport.speed * factor, SPEEDS[0]), SPEEDS[1]))

    def do_home(self) -> None:
        """On the bar to its start; else the first row."""
        self._edge("home")

    def do_end(self) -> None:
        """On the bar to its end; else the last row."""
        self._edge("end")

    def _edge(self, edge: str) -> None:
        transport = self.feed.transport
        if transport.live or self.presenter.overlay:
            self.presenter.act(edge)
        else:
            self.go_to(transport.start_ns if edge == "home" else transport.end_ns)

    def do_next_finding(self) -> None:
        """To the next finding or marker."""
        self._to_landmark(1)

    def do_previous_finding(self) -> None:
        """To the finding or marker before."""
        self._to_landmark(-1)

    def _to_landmark(self, by: int) -> None:
        transport, presenter = self.feed.transport, self.presenter
        places = [mark for mark in transport.landmarks() if mark.kind in (FINDING, MARKED)]
        # its frame may be a little older than the landmark: the next is counted from the landmark itself
        at = Landmark(transport.position_ns, "", "") if self._visited is None else self._visited
        places = [mark for mark in places if (mark > at if by > 0 else mark < at)]
        if not places:
            presenter.notice = f"no {'later' if by > 0 else 'earlier'} finding or marker"
            return
        chosen = places[0 if by > 0 else -1]
        self.go_to(chosen.time_ns)
        self._visited = chosen
        presenter.notice = f"{chosen.kind}: {escape_text(chosen.text)}"

    def go_to(self, time_ns: int) -> None:
        """Go to a moment and stay: nobody wants to see it go by."""
        self._visited = None
        self.feed.transport.seek(time_ns)
        self.feed.transport.step(0)

    def bar_clicked(self, x: int, y: int) -> bool:
        """Go to the moment that was clicked; False where that is not on the bar."""
        presenter = self.presenter
        moment = presenter.bar_moment(x, y)
        if moment is not None:
            presenter.notice = ""
            self.go_to(moment)
        return moment is not None

    def do_jump(self) -> None:
        """Ask for a moment, and go there."""
        if self.presenter.frame is not None:
            self.presenter.ask(Prompt("go to", "", HINT), self._jump)

    def _jump(self, text: str) -> str:
        frame = self.presenter.frame
        try:
            if frame is not None:
                self.go_to(jump_target(text, self.feed.transport, frame))
        except ValueError as error:
            return str(error)
        return ""

    def do_mark(self) -> None:
        """Ask for a note, and mark the moment shown."""
        if self.presenter.frame is not None:
            self.presenter.ask(Prompt("mark this moment, with a note", "", self._kept()), self._mark)

    def _kept(self) -> str:
        """What becomes of a mark: no more is promised than holds."""
        recorder = self.feed.recorder
        if recorder is None:
            return "until gputop ends: a recording is only read"
        if self.feed.recording() is not None:
            return "kept in the recording"
        if recorder.held()[0] > 0:
            return "kept for the last minutes, and in a recording that includes them [R]"
        return "until gputop ends: nothing is recorded [R]"

    def _mark(self, text: str) -> str:
        self.feed.transport.mark(text)
        self.presenter.notice = f"marked: {self._kept()}"
        return ""

    def go_to_moment(self, moment_ns: int) -> None:
        """To one of the worst moments of a finding, from the present too, as far back as it is kept."""
        transport = self.feed.transport
        nothing = transport.live and transport.start_ns >= transport.end_ns
        if nothing or moment_ns + AFTER_NS < transport.start_ns:
            self.presenter.notice = "that moment is not kept any more"
            return
        self.go_to(moment_ns + AFTER_NS)

    # -- recording --------------------------------------------------------------------------------

    def do_record(self) -> None:
        """End the recording, or ask what to record and where."""
        recorder = self.feed.recorder
        if recorder is None:
            self.presenter.notice = "this is a recording already: it is only read"
            return
        if self.feed.recording() is not None:
            self.presenter.notice = "ending the recording ..."
            recorder.stop()
            return
        span_ns, size = recorder.held()
        if span_ns <= 0:
            self._ask_path(recorder, history=False)
            return
        held = f"{format_duration(span_ns)} ({format_bytes(size)})"
        question = Letter(f"record: include the last {held}?", "y", "y or n")
        self.presenter.ask(question, lambda text: self._ask_history(recorder, text))

    def _ask_history(self, recorder: Recorder, text: str) -> str:
        if text.strip().lower() not in ("y", "yes", "n", "no"):
            return "type y or n"
        self._ask_path(recorder, history=text.strip().lower().startswith("y"))
        return ""

    def _ask_path(self, recorder: Recorder, *, history: bool) -> None:
        prompt = Prompt("record to", recorder.default_path(), "a file")
        self.presenter.ask(prompt, lambda path: self._record_to(recorder, path.strip(), history=history))

    def _record_to(self, recorder: Recorder, path: str, *, history: bool) -> str:
        if not path:
            return "type the name of a file"
        path = os.path.expanduser(path)
        if not os.path.lexists(path):
            return recorder.start(path, history=history, overwrite=False)
        question = Letter(f"{escape_text(path)} exists: replace it?", "n", "y or n")

        def replace(text: str) -> str:
            if text.strip().lower() in ("y", "yes"):
                return recorder.start(path, history=history, overwrite=True)
            self._ask_path(recorder, history=history)
            return ""

        self.presenter.ask(question, replace)
        return ""
