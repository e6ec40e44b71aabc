"""Live, held, gone back, recorded on request: the feed of the live screen over a source made by hand."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis import live as explanation
from gputop.analysis.window import WINDOW_NS
from gputop.engine.frame import Frame
from gputop.playback.bookmarks import MARKED
from gputop.playback.feeds import LiveFeed
from gputop.playback.player import frame_at
from gputop.playback.recorder import Recorder
from gputop.playback.survey import Survey
from probes.source import Item
from replay.coding.file_format import SessionError
from replay.past.history import History
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items as made
from tests import test_history as histories
from tests.waiting import wait_until

TICK = histories.TICK


class Source:
    """Yields what it is given."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = dict(made.HEADER)
        self.given: queue.Queue[Item | Exception | None] = queue.Queue()
        self._session = histories.session(1_000)

    def go(self, marks: int) -> None:
        """That many marks more of the session."""
        while marks:
            item = next(self._session)
            self.given.put(item)
            marks -= getattr(item, "kind", "") == "mark"

    def items(self) -> Iterator[Item]:
        """What was given, until it is closed."""
        while (item := self.given.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        """End after what was given."""
        self.given.put(None)


class Live:
    """A live feed, its source, and every frame that was live."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.source = Source()
        self.history = History(self.source.header, directory=str(directory), **limits)
        self.recorder = Recorder(self.history)
        self.feed = LiveFeed(self.source, recorder=self.recorder)
        self.feed.start()
        self.time = self.feed.transport
        self.frames: list[Frame] = []

    def go(self, marks: int) -> None:
        """Observe that many marks more, one by one."""
        for _ in range(marks):
            self.source.go(1)
            wait_until(
                lambda: self.feed.frame_now is not None and self.feed.frame_now not in self.frames[-1:],
                "the screen to follow",
            )
            assert self.feed.frame_now is not None
            self.frames.append(self.feed.frame_now)

    def goes_on_until_explained(self) -> bool:
        """One mark more: it is explained at marks, and not at each."""
        self.go(1)
        time.sleep(0.05)
        return self.feed.explained().report is not None

    def shown(self) -> int:
        """The number of the frame that is shown."""
        frame = self.feed.latest()
        return frame.number if frame is not None else 0


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A live feed of 24 marks, 6 s."""
    made_here = Live(tmp_path)
    made_here.go(24)
    yield made_here
    made_here.feed.close()


def test_held_the_frame_stays_while_observing_goes_on_and_l_returns(live: Live) -> None:
    live.time.toggle()
    live.go(4)
    assert live.shown() == 24
    assert not live.time.live
    assert live.time.end_ns - live.time.position_ns == 4 * TICK
    live.time.go_live()
    assert live.shown() == 28
    assert live.time.live


@pytest.mark.slow
def test_what_is_stepped_back_to_is_what_was_live_then(live: Live) -> None:
    for number in (23, 22, 21):
        live.time.step(-1)
        wait_until(lambda number=number: live.shown() == number, "the screen to follow")  # type: ignore[misc]
        assert live.feed.latest() == live.frames[number - 1]
    live.go(2)
    live.time.step(1)
    wait_until(lambda: live.shown() == 22, "the screen to follow")
    live.time.seek(live.time.start_ns)
    wait_until(lambda: live.shown() == 1, "the screen to follow")
    live.time.step(-5)
    live.time.seek(live.time.end_ns)
    wait_until(lambda: live.shown() == 26, "the screen to follow")
    assert live.feed.latest() == live.frames[25]
    assert not live.time.live


def test_played_fast_it_catches_up_and_is_live_again(live: Live) -> None:
    live.time.seek(live.time.start_ns)
    live.time.set_speed(64.0)
    live.time.toggle()
    wait_until(lambda: live.shown() == 24 and live.time.live, "the screen to follow")
    assert live.time.speed == 1.0


def test_many_steps_at_once_end_where_they_should(live: Live) -> None:
    for _ in range(15):
        live.time.step(-1)
        live.feed.latest()
    wait_until(lambda: live.shown() == 9, "the screen to follow")


def test_the_past_is_explained_anew_and_the_moment_held_as_it_was(live: Live) -> None:
    wait_until(live.goes_on_until_explained, "the screen to follow")
    live.time.toggle()
    held, newest = live.feed.explained(), len(live.frames) - 1
    live.go(3)
    assert live.feed.explained() is held
    live.time.step(-8)
    wait_until(
        lambda: live.feed.explained().end_ns == live.frames[newest - 8].time_ns, "the screen to follow"
    )


def test_an_explanation_that_stopped_begins_anew_and_says_so(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "MOST_WAITING", 0)
    live.go(1)
    assert "events come faster than it can process them" in live.feed.explained().problem
    monkeypatch.undo()
    live.go(WINDOW_NS // TICK - 1)
    assert live.feed.explained().problem, "that was at once too much again, so it waits for a while"
    live.go(1)
    assert not live.feed.explained().problem
    wait_until(live.goes_on_until_explained, "the screen to follow")
    report = live.feed.explained().report
    assert report is not None
    assert report.start_ns >= live.frames[24].time_ns + WINDOW_NS, "nothing is said of what it does not know"
    (told,) = [text for text in live.frames[-1].problems if "explanation" in text]
    assert told == (
        "the explanation stopped: events come faster than it can process them; it restarted, without the "
        "time before"
    )


def test_what_the_history_drops_stays_on_the_screen(tmp_path: Path) -> None:
    live = Live(tmp_path, span_ns=4 * made.SECOND)
    live.go(12)
    live.time.step(-1)
    wait_until(lambda: live.shown() == 11, "the screen to follow")
    live.go(30)
    assert live.shown() == 11
    assert live.time.position_ns < live.time.start_ns
    live.time.step(-1)
    wait_until(lambda: live.shown() == (live.time.start_ns - made.START) // TICK + 1, "the screen to follow")
    live.feed.close()


def test_without_a_history_space_holds_and_lets_go(tmp_path: Path) -> None:
    live = Live(tmp_path / "missing")
    live.go(3)
    assert any("live history" in problem for problem in live.frames[-1].problems)
    live.time.toggle()
    live.go(2)
    live.time.step(-1)
    assert live.shown() == 3
    live.time.toggle()
    assert live.shown() == 5
    assert live.time.live
    live.feed.close()


def test_a_source_that_dies_says_so_and_its_past_can_be_looked_at(live: Live) -> None:
    live.source.given.put(RuntimeError("the ring is gone"))
    wait_until(lambda: live.feed.failure() is not None, "the screen to follow")
    failure = live.feed.failure()
    assert failure is not None
    assert failure.startswith("observing stopped: ")
    assert "RuntimeError: the ring is gone" in failure
    live.time.step(-3)
    wait_until(lambda: live.shown() == 21, "the screen to follow")


def test_a_recording_begun_late_holds_the_past_and_its_markers(live: Live, tmp_path: Path) -> None:
    live.time.step(-4)
    wait_until(lambda: live.shown() == 20, "the screen to follow")
    live.time.mark("here it stalls")
    live.time.go_live()
    live.go(2)
    file = tmp_path / "run.gputop"
    assert live.recorder.start(str(file), history=True) == ""
    wait_until(
        lambda: live.recorder.state() is not None and live.recorder.state().bytes > 5_000,
        "the screen to follow",
    )  # type: ignore[union-attr]
    live.go(4)
    live.recorder.stop()
    wait_until(lambda: "recorded" in live.recorder.pop_notice(), "the screen to follow")
    assert live.recorder.state() is None
    live.go(1)
    reader = SessionReader(file)
    assert reader.problems == []
    assert [frame_at(reader, index) for index in (0, 19, 29)] == [live.frames[index] for index in (0, 19, 29)]
    assert len(reader.marks) == 30
    survey = Survey(reader)
    survey.start()
    wait_until(lambda: bool(survey.landmarks.since(0)), "the screen to follow")
    survey.close()
    found = [mark for mark in survey.landmarks.since(0) if mark.kind == MARKED]
    assert [(mark.time_ns, mark.text) for mark in found] == [(live.frames[19].time_ns, "here it stalls")]


def test_a_recording_without_the_past_begins_now(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "run.gputop"
    assert live.recorder.start(str(file), history=False) == ""
    live.go(6)
    live.feed.close()
    reader = SessionReader(file)
    assert len(reader.marks) == 6
    last = frame_at(reader, 5)
    assert last.processes[0].name == "process10"
    assert last.processes[0].calls == live.frames[-1].processes[0].calls or last.window_ns < 2 * made.SECOND


def test_a_file_that_cannot_be_written_is_a_sentence_and_no_other_file_is_touched(
    live: Live, tmp_path: Path
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert "there is no directory" in live.recorder.start("/nowhere/x", history=True)
    assert "not a gputop session" in live.recorder.start(str(other), history=True)
    assert other.read_text() == "mine"
    assert live.recorder.state() is None


def test_a_disk_that_fills_up_ends_the_recording_and_nothing_else(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SessionError("the disk is full")

    monkeypatch.setattr(SessionWriter, "append_block", full)
    assert live.recorder.start(str(tmp_path / "a.gputop"), history=True) == ""
    wait_until(lambda: live.recorder.state() is None, "the screen to follow")
    assert live.feed.failure() == "recording stopped: the disk is full; R starts another one"
    live.go(2)
    assert live.shown() == 26
    monkeypatch.undo()
    assert live.recorder.start(str(tmp_path / "b.gputop"), history=True) == ""
    assert live.feed.failure() is None
    live.feed.close()
    assert len(SessionReader(tmp_path / "b.gputop").marks) == 26


def test_a_recording_that_is_ended_at_the_very_end_is_complete(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "run.gputop"
    assert live.recorder.start(str(file), history=True) == ""
    live.recorder.stop()
    live.feed.close()
    reader = SessionReader(file)
    assert reader.problems == []
    assert len(reader.marks) == 24
