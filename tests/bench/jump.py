"""What a far jump in a recording takes: until the screen is there, and until its verdict is."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from statistics import median

from gputop.analysis.live import ReplayExplainer
from gputop.playback.player import frame_at
from replay.reader import SessionReader
from tests.bench import explain
from tests.bench.rows import Row
from tests.yardstick import USUAL_TURN_S, turn_s

BOUND_MS = 100.0  # where a turn of a loop of Python takes USUAL_TURN_S
PLACES = (0.95, 0.7, 0.8, 0.9, 0.75)  # each as of who has read nothing before it


def rows(folder: Path) -> list[Row]:
    """CPU time of opening, of the frame and of the verdict: 72,000 calls a second, two minutes."""
    path = folder / "jump.msgpack"
    events = explain.write(path)
    opened, frames, verdicts = [], [], []
    for place in PLACES:
        began = time.process_time()
        with contextlib.closing(SessionReader(path)) as reader:
            opened.append((time.process_time() - began) * 1e3)
            index = int(len(reader.marks) * place)
            began = time.process_time()
            frame_at(reader, index)
            frames.append((time.process_time() - began) * 1e3)
            began = time.process_time()
            ReplayExplainer(reader).verdict_at(index)
            verdicts.append((time.process_time() - began) * 1e3)
    size, bound = path.stat().st_size / 1e6, BOUND_MS * turn_s() / USUAL_TURN_S
    detail = f"CPU; {events / 1e6:.1f} M events, {size:.0f} MB; opened in {median(opened):.1f} ms"
    return [
        Row("far jump, until the screen is there", median(frames), "ms", bound, detail),
        Row("far jump, its verdict", median(verdicts), "ms", None, "after the screen"),
    ]
