"""The stories in the recordings, on the screen: how many keys it takes from the start to the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.playback.player import ReplayFeed
from replay.reader import SessionReader
from tests.screen_support import Shown
from tests.waiting import wait_until

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings"
SIZES = ((80, 24), (120, 40), (200, 50))
BEFORE_END = 4  # marks: later the programs have ended
# what is wrong with each program, and the call and the thread of its main program
STORIES = {
    "numpy-sync": ("device-to-host read every step (`.cpu()`, `.numpy()`)", "cudaMemcpyAsync"),
    "dataloader": ("input prepared on the main thread (`num_workers=0`)", "cudaMemcpyAsync"),
    "dataloader-workers": ("DataLoader is CPU-bound", "cudaStreamSynchronize"),
    "dataloader-direct": ("input prepared on the main thread (`num_workers=0`)", "cudaMemcpyAsync"),
    "redundant-to-device": ("many small host-to-device copies", "cudaMemcpyAsync"),
}


@pytest.fixture(scope="module", params=STORIES)
def told(request: pytest.FixtureRequest) -> tuple[str, Frame, Explained]:
    """The name, and what is reported near the end of the recording, paused."""
    reader = SessionReader(RECORDINGS / f"{request.param}.msgpack")
    feed = ReplayFeed(reader, len(reader.marks) - BEFORE_END, playing=False)
    feed.start()
    wait_until(lambda: feed.latest() is not None and feed.explained().report is not None, "the explanation")
    frame, explained = feed.latest(), feed.explained()
    feed.close()
    assert frame is not None
    return request.param, frame, explained


@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers", "numpy-sync")
def test_the_cause_is_there_without_a_key_and_the_call_and_the_thread_with_one(
    told: tuple[str, Frame, Explained],
) -> None:
    name, frame, explained = told
    title, api = STORIES[name]
    screen = Shown(frame, size=SIZES[0], replay=True)
    screen.explain(explained)
    for size in SIZES:
        verdict = "\n".join(screen.text(*size).splitlines()[1:6])
        assert title[:12] in verdict, size
        assert "idle" in verdict, size
        assert "FIX 1" in verdict, "what to change stands there as well"
    screen.press("enter")
    for size in SIZES:
        shown = screen.text(*size)
        assert title.partition(" (")[0] in shown, size
        assert api in shown, size
        assert any(f"({row.pid})" in shown or f" of {row.pid})" in shown for row in frame.processes), size
