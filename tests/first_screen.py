"""The first screen of a recording as a stranger sees it: painted without a key, and read as text."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from gputop.playback.player import ReplayFeed
from gputop.ui.app import GputopApp
from gputop.ui.model.config import Startup
from replay.reader import SessionReader
from tests.screen_support import patient, text_of

PATIENCE_S = 180.0
_SHARE = r"[\d.]+(?:–[\d.]+)? %"
_CAUSE = re.compile(
    rf"^[│ ]\s?1 +{_SHARE} +[█▒▏▎▍▌▋▊▉ ]*(?P<what>\S.*?) +(?P<number>C\d\d)\b"
    r".*?(?P<place>\S+(?:\.py|…):\d+)?[ │]*$",
    re.M,
)
_FIX = re.compile(
    r"^[│ ]\s?FIX 1 (?P<fix>\S.*?)  +saves up to (?P<figure>[\d.]+) (?P<unit>ms|us|s)(?:/step)?"
    r"(?:, [\d.]+ k?J)?[ │]*$",
    re.M,
)
_KIND = re.compile(r"^.{0,4}WHY .*?\b(?P<kind>[a-z]+-bound|starved of CPU|GPU shared)\b", re.M)
_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What is painted, and what can be read from it; "" where it is not there.

    Attributes:
        text: All lines.
        kind: ``input-bound``, where a class is named that a finding stands for.
        what: The first cause in words.
        number: The same as ``C12``.
        place: ``train.py:17``.
        fix: What to change.
        saves_ns: What that saves of a step, or in all, at most, as printed, ns; 0 without a figure.
    """

    text: str
    kind: str
    what: str
    number: str
    place: str
    fix: str
    saves_ns: float


def read(text: str) -> FirstScreen:
    """Reads a painted screen; knows its words and nothing of how they were made."""
    cause, fix, kind = _CAUSE.search(text), _FIX.search(text), _KIND.search(text)
    return FirstScreen(
        text,
        kind["kind"] if kind else "",
        cause["what"] if cause else "",
        cause["number"] if cause else "",
        (cause["place"] or "") if cause else "",
        fix["fix"] if fix else "",
        float(fix["figure"]) * _NS[fix["unit"]] if fix else 0.0,
    )


def first_screen(recording: Path, size: tuple[int, int], mark: int) -> FirstScreen:
    """The screen of a recording at a mark, with what is explained there, and no key pressed."""
    return read(asyncio.run(_painted(recording, size, mark)))


async def _painted(recording: Path, size: tuple[int, int], mark: int) -> str:
    feed = ReplayFeed(SessionReader(recording), mark, playing=False)
    feed.start()
    try:
        app = GputopApp(feed, Startup("replay", title=recording.name))
        async with patient(app, size) as pilot:
            deadline = asyncio.get_running_loop().time() + PATIENCE_S
            while feed.explained().report is None and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.05)
            app.poll()
            await pilot.pause()
            return text_of(app)
    finally:
        feed.close()
