"""How much CPU the first frame takes: of a recording, without a screen, and of an empty Textual program."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from tests.bench.rows import Row
from tests.bench.tmux import Terminal

START_BOUND = 1.9  # starts of an empty program, besides what makes the frame, numpy above all
RUNS = 5
_RECORDING = "recordings/dataloader.msgpack"
_PATIENCE_S = 20.0


def _empty(out: Path) -> int:
    """A program of nothing but Textual."""
    from textual.app import App

    class Empty(App[int]):
        """Ends once it has painted its screen."""

        def on_mount(self) -> None:
            self.call_after_refresh(self.done)

        def done(self) -> None:
            out.write_text(str(time.process_time()))
            self.exit(0)

    return Empty().run() or 0


def _recording(out: Path) -> int:
    """``gputop FILE``, up to its first frame."""
    from gputop.__main__ import main
    from gputop.playback.player import ReplayFeed

    def explain(feed: ReplayFeed) -> None:  # begins when the first frame is on the screen
        out.write_text(str(time.process_time()))

    ReplayFeed.explain = explain  # type: ignore[method-assign]
    sys.argv[1:] = [_RECORDING]
    return main()


def _frame(out: Path) -> int:
    """The first frame without a screen: what that takes beside Python itself."""
    begun = time.process_time()
    from gputop.playback.player import ReplayFeed
    from replay.reader import SessionReader

    with closing(SessionReader(_RECORDING)) as reader:
        ReplayFeed(reader, 0, playing=False)
        out.write_text(str(time.process_time() - begun))
    return 0


def _seconds(folder: Path, what: str) -> float:
    """CPU time of one start."""
    out = folder / "seconds"
    out.unlink(missing_ok=True)
    with Terminal(folder) as terminal:
        # compiled once, as where gputop is installed
        words = [
            "env",
            "-u",
            "PYTHONDONTWRITEBYTECODE",
            sys.executable,
            "-m",
            "tests.bench.start",
            what,
            str(out),
        ]
        terminal.keys(shlex.join(words), "Enter")
        terminal.wait(lambda: out.exists() and out.read_text() != "", _PATIENCE_S)
        if what == "recording":
            terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
    return float(out.read_text())


def rows(folder: Path) -> list[Row]:
    """The ratio of starts that took turns."""
    taken = [[_seconds(folder, what) for what in _STARTS] for _ in range(RUNS)]
    ours, frame, empty = (median(seconds) for seconds in zip(*taken, strict=True))
    detail = f"CPU time {ours:.2f} s, {frame:.2f} of it for the frame, of {empty:.2f} s, medians of {RUNS}"
    name = "screen of the first frame, in empty Textual starts"
    return [Row(name, (ours - frame) / empty, "", START_BOUND, detail)]


_STARTS = {"recording": _recording, "frame": _frame, "empty": _empty}

if __name__ == "__main__":
    sys.exit(_STARTS[sys.argv[1]](Path(sys.argv[2])))
