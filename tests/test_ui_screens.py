"""The whole screen in seven states and three sizes, compared with the text it had when somebody looked at it.

Text and not SVG: a difference reads as a difference of lines, it costs milliseconds, and another version of
Textual changes nothing. After a wanted change: ``make screens``, then look at ``git diff tests/screens``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.engine.frame import Lost
from gputop.playback.feed import Explained, RecordingState
from gputop.playback.landmarks import FINDING, LOSS, MARKED
from gputop.ui.model.look import plain
from gputop.ui.model.presenter import Presenter
from gputop.ui.model.timebar import TransportView
from gputop.ui.theme import style_of
from tests import fake_frames as fake
from tests import fake_reports as why

SCREENS = Path(__file__).parent / "screens"
SIZES = ((80, 24), (120, 40), (200, 50))
END = 100 * fake.S
SLOW = why.finding(
    "C13",
    900,
    title="the submitting thread is starved of CPU",
    advice=("keep others off its CPU",),
    moments_ns=(91 * fake.S, 95 * fake.S),
)


def _shown(mode: str = "live", gpus: int = 2, lossy: bool = False, **changes: object) -> Presenter:
    presenter = Presenter(mode, ascii_only=False, title="python train.py")
    presenter.show(fake.frame(0, gpus=gpus, **changes))  # type: ignore[arg-type]
    explained = why.explained(why.finding(), SLOW, lost_events=120 if lossy else 0)
    presenter.explain(replace(explained, lanes=why.lanes(gpus=max(gpus, 1), lossy=lossy)))
    return presenter


def normal() -> Presenter:
    """Two GPUs, four processes, one of them in a storm, two findings."""
    return _shown()


def paused() -> Presenter:
    """Held, while what is live is 12 s ahead; a recording is under way."""
    presenter = _shown()
    presenter.paused, presenter.behind_ns = True, 12 * fake.S
    found = ((20 * fake.S, FINDING), (60 * fake.S, LOSS))
    presenter.transport = TransportView(False, 1.0, 88 * fake.S, 0, 100 * fake.S, found)
    presenter.recording = RecordingState("/tmp/run.gputop", 3 << 20, 131.0)
    return presenter


def replayed() -> Presenter:
    """A recording at seven of ten minutes."""
    presenter = _shown("replay")
    found = ((100 * fake.S, FINDING), (300 * fake.S, MARKED), (510 * fake.S, FINDING))
    presenter.transport = TransportView(True, 4.0, 432 * fake.S, 0, 600 * fake.S, found)
    return presenter


def lossy() -> Presenter:
    """Records are missing."""
    return _shown(lossy=True, lost=Lost(120, (("ring", 120),)))


def rootless() -> Presenter:
    """Without eBPF nothing is known of calls, nor of why the GPU waits."""
    problem = "no eBPF without root: CUDA calls and who preempts are not shown; for them: sudo gputop"
    presenter = _shown(calls_observed=False, problems=(problem,), storm=False)
    presenter.explain(Explained())
    return presenter


def without_gpu() -> Presenter:
    """No NVML, but the calls are seen."""
    return _shown(gpus=0, driver="", problems=("NVML: libnvidia-ml.so.1 is not there (no NVIDIA driver)",))


def eight_gpus() -> Presenter:
    """More GPUs than fit, one a line."""
    return _shown(gpus=8, processes=12)


STATES: tuple[Callable[[], Presenter], ...] = (
    normal,
    paused,
    replayed,
    lossy,
    rootless,
    without_gpu,
    eight_gpus,
)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_screen_is_as_it_was(state: Callable[[], Presenter], size: tuple[int, int]) -> None:
    presenter = state()
    presenter.paint(*size)
    lines = presenter.paint(*size)  # what one paint learns of the size the next one knows
    for line in lines:
        for _text, token in line:
            style_of(token)
    text = "".join(plain(line).rstrip() + "\n" for line in lines)
    file = SCREENS / f"{state.__name__}-{size[0]}x{size[1]}.txt"
    if os.environ.get("GPUTOP_SCREENS") == "write":
        SCREENS.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


def test_the_pictures_of_the_page_are_there_and_fetch_nothing() -> None:
    root = SCREENS.parent.parent
    shown = re.findall(r"\((docs/pictures/.*?)\)", (root / "README.md").read_text(encoding="utf-8"))
    assert len(shown) >= 4
    for name in shown:
        picture = (root / name).read_text(encoding="utf-8")
        assert "WHY" in picture
        links = {link for link in re.findall(r"https?://[^\s\"'<)]+", picture) if "w3.org" not in link}
        assert links <= {"https://www.textualize.io"}, "a comment names the program that drew it"
