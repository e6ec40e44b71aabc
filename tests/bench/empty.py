"""A Textual program that only draws its screen anew, as often as gputop: the measure of gputop's screen."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import rss_bytes, used_percent
from tests.bench.tmux import HEIGHT, WIDTH, Terminal
from tests.bench.turns import Turns

RATE_HZ = 4.0
WARM_UP_S, WATCH_S = 2.0, 6.0
_PATIENCE_S = 20.0
_SHOWN = "empty program"


@dataclass(frozen=True, slots=True)
class Empty:
    """One life of it: seconds, percent of a core, bytes, ms of CPU time."""

    start_s: float
    quit_s: float
    cpu_percent: float
    rss_bytes: int
    longest_ms: float


def _show(out: Path) -> None:
    """Shows it until q."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Program(App[None]):
        BINDINGS = [("q", "quit", "Quit")]  # noqa: RUF012 as Textual has it

        def compose(self) -> ComposeResult:
            yield Static(_SHOWN)

        def on_mount(self) -> None:
            self._tick = 0
            self.set_interval(1 / RATE_HZ, self._draw)

        def _draw(self) -> None:
            self._tick += 1
            line = "".join(chr(ord("a") + (self._tick + place) % 26) for place in range(WIDTH))
            self.query_one(Static).update("\n".join([_SHOWN, *[line] * (HEIGHT - 1)]))

    turns = Turns(WARM_UP_S)
    Program().run()
    out.write_text(str(turns.longest_ms))


def lived(folder: Path) -> Empty:
    """A life of it in a terminal of its own."""
    out = folder / "empty"
    with Terminal(folder) as terminal:
        began = time.monotonic()
        terminal.keys(shlex.join([sys.executable, "-m", "tests.bench.empty", str(out)]), "Enter")
        terminal.wait(lambda: _SHOWN in terminal.screen(), _PATIENCE_S)
        start_s = time.monotonic() - began
        time.sleep(WARM_UP_S)
        pid = terminal.child()
        cpu, rss = used_percent(pid, WATCH_S), rss_bytes(pid)
        began = time.monotonic()
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
        quit_s = time.monotonic() - began
    return Empty(start_s, quit_s, cpu, rss, float(out.read_text()))


if __name__ == "__main__":
    _show(Path(sys.argv[1]))
