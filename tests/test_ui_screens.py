"""The whole screen in seven states, each in one of three sizes: the text it had when somebody looked at it.

Text and not SVG: a difference reads as a difference of lines, it costs milliseconds, and another version of
Textual changes nothing. After a wanted change: ``make screens``, then look at ``git diff tests/screens``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gputop.engine.frame import Frame, Lost
from gputop.playback.bookmarks import FINDING, LOSS, MARKED
from gputop.playback.feed import Explained, RecordingState
from gputop.ui.model.time.timebar import TransportView
from gputop.ui.panes.pane import Pane
from gputop.ui.terminal.palette import style_of
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Screen, running, text_of, tokens_of

SCREENS = Path(__file__).parent / "screens"
END = 100 * fake.S
SLOW = why.finding(
    "C13",
    900,
    title="the submitting thread is starved of CPU",
    advice=("keep others off its CPU",),
    moments_ns=(91 * fake.S, 95 * fake.S),
)


@dataclass
class State:
    """What the screen is to show."""

    frame: Frame
    explained: Explained
    replay: bool = False
    transport: TransportView | None = None
    recording: RecordingState | None = None


def _state(gpus: int = 2, lossy: bool = False, **changes: object) -> State:
    explained = why.explained(why.finding(), SLOW, lost_events=120 if lossy else 0)
    lanes = why.lanes(gpus=max(gpus, 1), lossy=lossy)
    return State(fake.frame(0, gpus=gpus, **changes), replace(explained, lanes=lanes))  # type: ignore[arg-type]


def normal() -> State:
    """Two GPUs, four processes, one of them in a storm, two findings."""
    return _state()


def paused() -> State:
    """Held, while what is live is 12 s ahead; a recording is under way."""
    found = ((20 * fake.S, FINDING), (60 * fake.S, LOSS))
    view = TransportView(False, 1.0, 88 * fake.S, 0, 100 * fake.S, found)
    return replace(_state(), transport=view, recording=RecordingState("/tmp/run.gputop", 3 << 20, 131.0))


def replayed() -> State:
    """A recording at seven of ten minutes."""
    found = ((100 * fake.S, FINDING), (300 * fake.S, MARKED), (510 * fake.S, FINDING))
    view = TransportView(True, 4.0, 432 * fake.S, 0, 600 * fake.S, found)
    return replace(_state(), replay=True, transport=view)


def lossy() -> State:
    """Records are missing."""
    return _state(lossy=True, lost=Lost(120, (("ring", 120),)))


def rootless() -> State:
    """Without eBPF nothing is known of calls, nor of why the GPU waits."""
    unseen = "CUDA calls and preempting threads are not shown"
    problem = f"no eBPF without root: {unseen}; to see them: sudo gputop"
    state = _state(calls_observed=False, problems=(problem,), storm=False)
    return replace(state, explained=Explained())


def without_gpu() -> State:
    """No NVML, but the calls are seen."""
    return _state(gpus=0, driver="", problems=("NVML: libnvidia-ml.so.1 is not there (no NVIDIA driver)",))


def eight_gpus() -> State:
    """More GPUs than fit, one a line."""
    return _state(gpus=8, processes=12)


# the other sizes are walked through (tests/test_ui_walk.py)
STATES: dict[Callable[[], State], tuple[int, int]] = {
    normal: (120, 40),
    paused: (80, 24),
    replayed: (200, 50),
    lossy: (120, 40),
    rootless: (80, 24),
    without_gpu: (80, 24),
    eight_gpus: (200, 50),
}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_the_screen_is_as_it_was(state: Callable[[], State]) -> None:
    made, size = state(), STATES[state]
    async with running(made.frame, size, replay=made.replay, title="python train.py") as screen:
        assert_as_it_was(await shown(screen, made), f"{state.__name__}-{size[0]}x{size[1]}")


async def shown(screen: Screen, made: State) -> str:
    """The screen in a state."""
    app, feed, pilot = screen
    feed.why, feed.state = made.explained, made.recording
    app.poll()
    app.view.transport = made.transport
    for _ in range(4):  # what one look learns of the size the next one knows
        app.show()
        await pilot.pause()
    for pane in app.screen.query(Pane):
        for _text, token in tokens_of(pane):
            style_of(token)
    return "".join(line.rstrip() + "\n" for line in text_of(app).splitlines())


def assert_as_it_was(text: str, name: str) -> None:
    """It is that of the file."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("GPUTOP_SCREENS") == "write":
        SCREENS.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


def test_the_pictures_of_the_page_are_there_and_fetch_nothing() -> None:
    root = SCREENS.parent.parent
    pages = (root / "README.md", root / "docs" / "screen.md")
    shown = [
        page.parent / name
        for page in pages
        for name in re.findall(r"\(((?:docs/)?pictures/.*?)\)", page.read_text(encoding="utf-8"))
    ]
    assert {file.name for file in shown} == {file.name for file in (root / "docs/pictures").iterdir()}
    for file in shown:
        assert file.stat().st_size < 1_000_000
        picture = file.read_text(encoding="utf-8")
        assert "<script" not in picture
        assert "WHY" in picture
        links = {link for link in re.findall(r"https?://[^\s\"'<)]+", picture) if "w3.org" not in link}
        assert links <= {"https://www.textualize.io"}, "a comment names the program that drew it"
