"""The screen alone on a crowd at 120x40: 200 processes, 8 GPUs, 64 threads, four new frames a second."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests import fake_frames, fake_reports
from tests.bench.rows import Row
from tests.bench.screen import used_percent
from tests.bench.tmux import Terminal

CPU_BOUND, BLOCK_BOUND = 3.0, 20.0
PROCESSES, GPUS, THREADS = 200, 8, 64
FRAMES = 8  # made before; then they come again
RATE_HZ = 4.0
EXPLAINED_S = 1.0  # explanations come less often than frames
_PATIENCE_S = 20.0
_WARM_UP_S, _WATCH_S, _KEY_S = 2.0, 6.0, 0.4
# what is opened for the first time, and closed again
_KEYS = (
    "w",
    "Escape",
    "?",
    "Escape",
    "!",
    "Escape",
    "s",
    "Escape",
    "/",
    "Escape",
    "Tab",
    "Tab",
    "Enter",
    "Escape",
)


class Crowd(fake_frames.FakeFeed):
    """Frames and explanations by the clock, so that making them costs nothing."""

    def __init__(self) -> None:
        frames = [
            fake_frames.frame(tick, processes=PROCESSES, gpus=GPUS, threads=2) for tick in range(FRAMES)
        ]
        self._frames = []
        for tick, frame in enumerate(frames):
            pid = frame.processes[0].pid
            threads = tuple(fake_frames.thread(pid, index, tick) for index in range(THREADS))
            first = replace(frame.processes[0], threads=threads)
            self._frames.append(replace(frame, processes=(first, *frame.processes[1:])))
        super().__init__(self._frames[0])
        lanes = [fake_reports.thread_lane(fake_frames.process(0).pid + index) for index in range(THREADS)]
        self._whys = []
        for second in range(FRAMES):
            end = (100 + second) * fake_reports.S
            window = replace(fake_reports.lanes(end, gpus=GPUS), threads=tuple(lanes))
            self._whys.append(replace(fake_reports.explained(fake_reports.finding()), lanes=window))

    def latest(self) -> fake_frames.Frame:
        """The frame of now."""
        return self._frames[int(time.monotonic() * RATE_HZ) % FRAMES]

    def explained(self) -> fake_frames.Explained:
        """The explanation of now."""
        return self._whys[int(time.monotonic() / EXPLAINED_S) % FRAMES]


def _show(out: Path) -> int:
    """Shows the crowd until q; writes the longest turn of the main thread's loop, ms of its CPU time.

    The start does not count: it imports what it needs and draws everything.
    """
    from gputop.ui.run import run_app

    longest, begun = 0.0, time.monotonic()
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.events.Handle) -> None:
        nonlocal longest
        began = time.thread_time()
        run(handle)
        if time.monotonic() - begun > _WARM_UP_S:
            longest = max(longest, time.thread_time() - began)

    feed = Crowd()
    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    status = run_app(feed, rate_hz=RATE_HZ)
    out.write_text(str(longest * 1e3))
    return status


def rows(folder: Path) -> list[Row]:
    """CPU of the whole process, and its longest turn."""
    out = folder / "longest"
    command = shlex.join([sys.executable, "-m", "tests.bench.crowd", str(out)])
    with Terminal(folder) as terminal:
        terminal.keys(command, "Enter")
        terminal.wait(lambda: "Timeline" in terminal.screen(), _PATIENCE_S)
        time.sleep(_WARM_UP_S)
        cpu = used_percent(terminal.child(), _WATCH_S)
        for key in _KEYS:
            terminal.keys(key)
            time.sleep(_KEY_S)
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
    return [
        Row("screen of 200 processes, of a core", cpu, "%", CPU_BOUND, "8 GPUs, 64 threads, timeline, 4 Hz"),
        Row(
            "its longest turn",
            float(out.read_text()),
            "ms",
            BLOCK_BOUND,
            "CPU time of the main thread, keys pressed",
        ),
    ]


if __name__ == "__main__":
    sys.exit(_show(Path(sys.argv[1])))
