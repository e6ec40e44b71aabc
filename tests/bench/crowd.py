"""The screen alone on a crowd at 120x40: 200 processes, 8 GPUs, 64 threads, four new frames a second."""

from __future__ import annotations

import gc
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests import fake_frames, fake_reports
from tests.bench import empty
from tests.bench.processes import used_percent
from tests.bench.rows import Row
from tests.bench.tmux import Terminal
from tests.bench.turns import Turns

CPU_BOUND, BLOCK_BOUND = 3.0, 4.0  # times an empty Textual program that draws as often
PROCESSES, GPUS, THREADS = 200, 8, 64
FRAMES = 8  # made before; then they come again
RATE_HZ = 4.0
EXPLAINED_S = 1.0  # explanations come less often than frames
_PATIENCE_S = 20.0
_WARM_UP_S, _WATCH_S, _KEY_S = 2.0, 6.0, 0.4
# what is opened for the first time, and closed again
_KEYS = (
    *(
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
        "J",
        "Escape",
        "m",
        "Escape",
    ),
    *("C-p", "h", "Escape", "C-p", "Escape", "T", "T", "T", "T", "T", "1", "1", "3", "3", "z", "z", "t", "t"),
    *("Tab", "Tab", "Enter", "Escape"),
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
    from gputop.ui.model.config import Startup
    from gputop.ui.run import run_app

    gc.disable()  # as gputop.__main__: the screen lets it begin
    turns = Turns(_WARM_UP_S)
    status = run_app(Crowd(), Startup(rate_hz=RATE_HZ), seen=turns.begin)
    out.write_text(str(turns.longest_ms))
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
    beside, longest = empty.lived(folder), float(out.read_text())
    return [
        Row(
            "screen of 200 processes / empty program",
            cpu / beside.cpu_percent,
            "",
            CPU_BOUND,
            f"{cpu:.1f} % of a core, the empty one {beside.cpu_percent:.1f}; 8 GPUs, timeline, 4 Hz",
        ),
        Row(
            "its longest turn / empty program",
            longest / beside.longest_ms,
            "",
            BLOCK_BOUND,
            f"{longest:.1f} ms of the main thread, keys pressed; the empty one {beside.longest_ms:.1f}",
        ),
    ]


if __name__ == "__main__":
    sys.exit(_show(Path(sys.argv[1])))
