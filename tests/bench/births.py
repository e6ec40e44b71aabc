"""What the live screen costs where worker processes are born all the time, beside workers that are kept."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from statistics import median

from tests.bench.processes import gputop_ticks
from tests.bench.rows import Row
from tests.bench.tmux import Terminal

BOUND = 2.0
TURNS, WARM_UP_S, WATCH_S = 2, 8.0, 8.0
_SPARE_S, _PATIENCE_S = 30.0, 20.0
_PROGRAM = str(Path(__file__).with_name("epochs.py"))


def rows(folder: Path) -> list[Row]:
    """In turns: kept, born, kept, born."""
    used: dict[str, list[float]] = {"kept": [], "born": []}
    for _ in range(TURNS):
        for way, found in used.items():
            found.append(_used(folder, way))
    ratio = median(used["born"]) / median(used["kept"])
    figures = {way: " ".join(f"{percent:.1f}" for percent in found) for way, found in used.items()}
    each = ", ".join(f"{way} {text}" for way, text in figures.items())
    detail = f"% of a core of all of gputop's processes: {each}"
    return [Row("live, workers born every epoch / kept", ratio, "", BOUND, detail)]


def _used(folder: Path, way: str) -> float:
    """Percent of a core, once the first explanations are over."""
    program = [sys.executable, _PROGRAM, way, str(WARM_UP_S + WATCH_S + _SPARE_S)]
    command = [sys.executable, "-m", "gputop", "--simgpu", "--", *program]
    with Terminal(folder, (80, 24)) as terminal:
        terminal.keys(shlex.join(command), "Enter")
        terminal.wait(lambda: " lost " in terminal.screen(), _PATIENCE_S)
        pid = terminal.child()
        time.sleep(WARM_UP_S)
        before, began = gputop_ticks(pid), time.monotonic()
        time.sleep(WATCH_S)
        ticks = gputop_ticks(pid) - before
        percent = ticks * 100 / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
    return percent
