"""The recordings of the repository as a screen has them near their end: frame, explanation, window."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from gputop.analysis.window import Window
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.playback.player import frame_at
from replay.reader import SessionReader

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings"
NAMES = tuple(sorted(path.stem for path in RECORDINGS.glob("*.msgpack")))
BEFORE_END = 4  # marks: later the programs have ended


@lru_cache(maxsize=16)
def reader(name: str) -> SessionReader:
    """A recording."""
    return SessionReader(RECORDINGS / f"{name}.msgpack")


@lru_cache(maxsize=16)
def explained(name: str) -> Explained:
    """What is reported of a recording there."""
    window = Window(reader(name).header)
    for item in reader(name).items_between(-1, place(name)):
        window.feed(item)
    verdict = window.verdict()
    return Explained(
        verdict.report, verdict.end_ns, verdict.start_ns, lanes=verdict.lanes, steps=verdict.steps
    )


@lru_cache(maxsize=64)
def frame(name: str, later: int = 0) -> Frame:
    """The frame of that moment, or some marks later."""
    return frame_at(reader(name), place(name) + later)


def place(name: str) -> int:
    """The number of that mark."""
    return len(reader(name).marks) - BEFORE_END
