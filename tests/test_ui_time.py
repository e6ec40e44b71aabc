"""The keys of time, markers and recording, as a user presses them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Key

from gputop.playback.bookmarks import Landmark
from gputop.playback.feed import RecordingState
from gputop.ui.app import GputopApp
from gputop.ui.panes.dialogs import Question
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import feed_frame, running, said, text_of, until

S = fake.S


class Recorder:
    """Remembers what was asked of it."""

    def __init__(self, span_s: int = 192) -> None:
        self.span_ns = span_s * S
        self.started: list[tuple[str, bool]] = []
        self.stopped = 0
        self.refusal = ""
        self.notice = ""

    def held(self) -> tuple[int, int]:
        return self.span_ns, 12_300_000 if self.span_ns else 0

    def default_path(self) -> str:
        return "gputop-now.gputop"

    def start(self, path: str, *, history: bool) -> str:
        if not self.refusal:
            self.started.append((path, history))
        return self.refusal

    def stop(self) -> None:
        self.stopped += 1

    def pop_notice(self) -> str:
        notice, self.notice = self.notice, ""
        return notice


def asked(app: GputopApp) -> str:
    """The question, what is typed, and the hint: the last three lines."""
    return " ".join(" ".join(text_of(app).splitlines()[-3:]).split())


async def test_the_bar_appears_when_live_is_paused_and_goes_with_l() -> None:
    async with running(fake.frame(0)) as screen:
        app, _, pilot = screen
        assert "paused" not in text_of(app)
        await pilot.press("space")
        await feed_frame(screen, fake.frame(48))
        line = text_of(app).splitlines()[-2]
        assert "paused" in line
        assert "●" in line
        await pilot.press("L")
        assert "paused" not in text_of(app)


async def test_curly_brackets_go_from_finding_to_marker_and_say_what_it_is() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        transport = feed.transport
        assert isinstance(transport, fake.FakeTransport)
        transport.found += [
            Landmark(100 * S, "finding", "C02 device-to-host read every step (`.cpu()`, `.numpy()`)"),
            Landmark(500 * S, "finding", "C13 no CPU \x1b[31m"),
            Landmark(500 * S, "loss", "7 events lost"),
            Landmark(560 * S, "marker", "here"),
        ]
        await pilot.press("right_curly_bracket")
        assert transport.position_ns == 500 * S
        assert not transport.playing
        assert said(app) == "finding: C13 no CPU \\x1b[31m"
        transport.position_ns -= S // 8  # the frame of a landmark is a little older than it
        await pilot.press("right_curly_bracket")
        assert transport.position_ns == 560 * S
        assert said(app) == "marker: here"
        await pilot.press("right_curly_bracket")
        assert transport.position_ns == 560 * S
        assert said(app) == "no later finding or marker"
        await pilot.press("left_curly_bracket", "left_curly_bracket")
        assert transport.position_ns == 100 * S
        await pilot.press("left_curly_bracket")
        assert said(app) == "no earlier finding or marker"
        await pilot.press("right_square_bracket", "right_curly_bracket")
        assert transport.position_ns == 500 * S


@pytest.mark.slow
async def test_home_and_end_are_on_the_bar_but_not_in_a_page() -> None:
    async with running(fake.frame(), replay=True) as (_, feed, pilot):
        await pilot.press("end")
        assert feed.transport.position_ns == 600 * S
        await pilot.press("home")
        assert feed.transport.position_ns == 0
        await pilot.press("question_mark", "end")
        assert feed.transport.position_ns == 0


async def test_home_is_the_first_row_while_live() -> None:
    async with running(fake.frame(processes=9)) as (app, _, pilot):
        await pilot.press("j", "j", "home")
        table = app.view.processes
        assert table.selected == table.rows[0].pid


async def test_a_click_on_the_bar_goes_there() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        lines = text_of(app).splitlines()
        left, right = lines[-2].index("─"), lines[-2].rindex("─")
        for x, seconds in ((left, 0), (right, 600), ((left + right) // 2, 300)):
            await pilot.click(offset=(x, len(lines) - 2))
            assert feed.transport.position_ns == pytest.approx(seconds * S, abs=5 * S)
        await pilot.click(offset=(left - 3, len(lines) - 2))
        assert feed.transport.position_ns == pytest.approx(300 * S, abs=5 * S)


@pytest.mark.slow
async def test_j_asks_where_to_and_says_what_is_wrong_with_the_answer() -> None:
    async with running(fake.frame(), (80, 24), replay=True) as (app, feed, pilot):
        await pilot.press("J", *"soon", "enter")
        assert "'soon' is not a time" in asked(app)
        await pilot.press("ctrl+u", "2", "5", "percent_sign", "enter")
        assert feed.transport.position_ns == 150 * S
        assert not isinstance(app.screen, Question)
        await pilot.press("J", "5", "escape")
        assert feed.transport.position_ns == 150 * S


@pytest.mark.slow
async def test_m_marks_the_moment_shown() -> None:
    async with running(fake.frame(4), (80, 24)) as (app, feed, pilot):
        feed.recorder = Recorder()
        await pilot.press("m", *"slow here", "enter")
        assert said(app).startswith("marked: kept for the last minutes")
        assert [(mark.kind, mark.time_ns, mark.data) for mark in feed.marked] == [
            ("marker", fake.frame(4).time_ns, {"text": "slow here"})
        ]
    async with running(fake.frame(4), (80, 24), replay=True) as (app, feed, pilot):
        await pilot.press("m", *"slow", "enter")
        assert said(app) == "marked: kept until gputop ends: a recording is read-only"
        assert isinstance(feed.transport, fake.FakeTransport)
        assert [mark.text for mark in feed.transport.found] == ["slow"]


@pytest.mark.slow
async def test_r_asks_for_the_past_and_the_name_then_records() -> None:
    async with running(fake.frame(), (80, 24)) as (app, feed, pilot):
        feed.recorder = recorder = Recorder()
        await pilot.press("R")
        assert "record: include the last 03:12 (11.7M)?" in text_of(app)
        assert "n  record from now on" in text_of(app)
        await pilot.press("x", "y")
        assert asked(app).startswith("record to gputop-now.gputop")
        await pilot.press("ctrl+u", "enter")
        assert "enter a file name" in asked(app)
        await pilot.press(*"a.gputop", "enter")
        assert recorder.started == [("a.gputop", True)]
        feed.state = RecordingState("a.gputop", 1, 1.0)
        await pilot.press("R")
        assert recorder.stopped == 1
        recorder.notice = "recorded a.gputop, 1.5M"
        app.poll()
        await pilot.pause()
        assert said(app) == "recorded a.gputop, 1.5M"


@pytest.mark.slow
async def test_no_file_is_replaced_and_a_free_name_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.x").write_text("old")
    async with running(fake.frame(), (200, 50)) as (app, feed, pilot):
        feed.recorder = recorder = Recorder(span_s=0)
        await pilot.press("R", "ctrl+u", *"old.x", "enter")
        assert "old.x exists; record to old-2.x" in asked(app)
        assert recorder.started == []
        await pilot.press("enter")
        assert recorder.started == [("old-2.x", False)]


async def test_why_it_cannot_record_is_reported_where_the_name_is_typed() -> None:
    async with running(fake.frame(), (200, 50)) as (app, feed, pilot):
        feed.recorder = recorder = Recorder(span_s=0)
        recorder.refusal = "there is no directory /nowhere for the recording"
        await pilot.press("R", "enter")
        assert "no directory /nowhere" in asked(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, Question)


@pytest.mark.slow
async def test_a_replay_has_nothing_to_record() -> None:
    async with running(fake.frame(), replay=True) as (app, _, pilot):
        await pilot.press("R")
        assert not isinstance(app.screen, Question)


async def test_keys_that_come_fast_are_all_taken() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        for _ in range(50):
            app.post_message(Key("left_square_bracket", "["))
        await pilot.pause()
        assert feed.transport.position_ns == 432 * S - 50 * S // 4


async def test_a_frame_that_comes_a_moment_after_its_key_is_shown_at_once() -> None:
    """The player makes it in a thread of its own; the next regular look may be a quarter of a second away."""
    frame = fake.frame()
    async with running(frame, replay=True) as (app, feed, pilot):
        await pilot.press("left_square_bracket")
        feed.newest = replace(frame, number=99)
        await until(
            pilot, lambda: app.view.frame is not None and app.view.frame.number == 99, "it", seconds=20
        )


@pytest.mark.parametrize(
    ("key", "why_not"),
    [
        ("right_square_bracket", "this is the newest frame"),
        ("equals_sign", "once paused"),
        ("minus", "once paused"),
        ("L", "this is the newest frame"),
    ],
)
async def test_a_key_that_does_nothing_live_says_why(key: str, why_not: str) -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press(key)
        assert why_not in said(app)


@pytest.mark.parametrize(("key", "why_not"), [("R", "a recording already"), ("K", "K works live only")])
async def test_a_key_that_is_for_a_live_screen_says_so_in_a_replay(key: str, why_not: str) -> None:
    async with running(fake.frame(), replay=True) as (app, _, pilot):
        await pilot.press(key)
        assert why_not in said(app)


@pytest.mark.parametrize(
    ("span_s", "under_way", "promise"),
    [
        (192, True, "kept in the recording"),
        (192, False, "in a recording that includes them"),
        (0, False, "until gputop ends"),
    ],
)
@pytest.mark.slow
async def test_m_promises_what_it_keeps(span_s: int, *, under_way: bool, promise: str) -> None:
    async with running(fake.frame(), (140, 40)) as (app, feed, pilot):
        feed.recorder = Recorder(span_s)
        feed.state = RecordingState("a.msgpack", 1, 1.0) if under_way else None
        await pilot.press("m")
        assert promise in text_of(app)
        await pilot.press("a", "enter")
        assert said(app).startswith("marked")
        assert promise in said(app)
        assert [sample.data["text"] for sample in feed.marked] == ["a"]


async def test_the_live_page_of_the_verdict_offers_moments_and_says_when_one_is_gone() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), end_ns=fake.frame().time_ns)
        app.poll()
        await pilot.press("w")
        assert "[Enter] go there" in text_of(app)
        await pilot.press("enter")
        assert "no longer kept" in said(app), "nothing of the past is held here"
