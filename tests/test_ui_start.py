"""The first frame comes before what it does not need, and nothing that was opened stays behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widget import Widget

from gputop.playback.player import ReplayFeed
from gputop.ui.panes.key_line import Keys
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests.screen_support import Shown, close_all
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
LOADED = "import sys, gputop.commands.screen.replay, gputop.ui.app; print(*sys.modules)"
LATER = (
    "gputop.analysis.causes",
    "gputop.analysis.live",
    "gputop.ui.page_screens",
    "gputop.ui.exports",
    "pygments.lexers",
)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> object:
    yield
    close_all()


def test_what_explains_and_what_keys_open_is_not_loaded_for_the_first_frame() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "gputop.ui.main_screen" in loaded
    assert [name for name in LATER if name in loaded] == []


def test_a_replay_explains_from_the_moment_it_is_asked_to() -> None:
    reader = SessionReader(str(ROOT / "recordings/dataloader.msgpack"))
    feed = ReplayFeed(reader, len(reader.marks) - 1, playing=False)
    before = set(threading.enumerate())
    feed.start(explain=False)
    try:
        begun = {thread.name for thread in set(threading.enumerate()) - before}
        assert "gputop-player" in begun
        assert "gputop-why-load" not in begun
        assert feed.explained().report is None
        assert feed.explained().problem
        feed.explain()
        wait_until(lambda: feed.explained().report is not None, "the explanation")
        # nothing is explained after the program's end, which is some ms before the last mark
        assert reader.marks[-2] <= feed.explained().end_ns <= feed.position_ns
    finally:
        feed.close()
        reader.close()


def widgets() -> int:
    """How many there are in all of this process."""
    gc.collect()
    return sum(isinstance(one, Widget) for one in gc.get_objects())


@pytest.mark.slow
@pytest.mark.long
def test_neither_the_cursor_nor_pages_leave_widgets_behind() -> None:
    shown = Shown(fake.frame())
    shown.press("tab", "w", "escape", "question_mark", "escape", "shift+tab")
    before = widgets()
    for _ in range(5):
        shown.press("tab", "w", "escape", "question_mark", "escape", "shift+tab")
    assert widgets() == before


@pytest.mark.slow
def test_a_click_on_a_key_in_the_last_line_presses_it() -> None:
    shown = Shown(fake.frame())
    last = shown.text().splitlines()[-1]
    shown.click(last.index("? Help") + 2, 39)
    assert type(shown.app.screen).__name__ == "HelpPage"
    shown.press("escape")
    shown.click(last.index("^p palette") + 4, 39)
    assert isinstance(shown.app.screen, CommandPalette)


def test_a_key_under_the_pointer_says_what_it_does() -> None:
    shown = Shown(fake.frame())
    last = shown.text().splitlines()[-1]
    keys = shown.app.screen.query_one(Keys)
    shown.do(lambda: shown.pilot.hover(offset=(last.index("w Why"), 39)))
    assert keys.tooltip == "why the GPU waits: all findings and their chains"
    shown.do(lambda: shown.pilot.hover(offset=(5, 5)))
    assert keys.tooltip is None
