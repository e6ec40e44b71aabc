"""The live screen on the demo, in a real terminal: how fast it comes and goes, what it uses meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from probes.proc import procfs
from tests.bench import empty, links
from tests.bench.processes import rss_bytes, use
from tests.bench.rows import Row
from tests.bench.tmux import Terminal

# times what an empty Textual program takes that draws its screen as often, in turn with gputop: of a core,
# all of it and the screen alone; to the first frame; to the prompt; memory
CPU_BOUND, SCREEN_BOUND, START_BOUND, QUIT_BOUND, RSS_BOUND = 6.0, 2.5, 4.5, 4.0, 6.0
WARM_UP_S, WATCH_S, SHORT_S = 7.0, 6.0, 1.0  # the first five seconds of work are explained more often
SHORT_RUNS = 2
_PATIENCE_S = 20.0
_FIRST_FRAME = " lost "  # the header has figures
_COMMAND = shlex.join([sys.executable, "-m", "gputop", "demo", "healthy"])


@dataclass(slots=True)
class Run:
    """One life of the screen: seconds, percent of a core, bytes."""

    start_s: float = 0.0
    quit_s: float = 0.0
    cpu_percent: float = 0.0
    screen_percent: float = 0.0
    threads: str = ""
    rss_bytes: int = 0
    links: int = 0
    left: int = 0


def _watch(pid: int, run: Run) -> None:
    time.sleep(WARM_UP_S)
    before, began = use(pid), time.monotonic()
    time.sleep(WATCH_S)
    after, seconds = use(pid), time.monotonic() - began
    scale = 100 / os.sysconf("SC_CLK_TCK") / seconds
    used = {task: (ticks - before.get(task, 0)) * scale for task, ticks in after.items()}
    run.cpu_percent = used.pop("")
    run.screen_percent = used[str(pid)]  # Textual runs in the main thread
    run.threads = ", ".join(f"{part:.1f}" for part in sorted(used.values(), reverse=True) if part >= 0.1)
    run.rss_bytes = rss_bytes(pid)


def _is_demo(pid: int) -> bool:
    return b"gputop.demo" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _live(folder: Path, *, watch: bool) -> Run:
    run = Run()
    with Terminal(folder) as terminal:
        began = time.monotonic()
        terminal.keys(_COMMAND, "Enter")
        terminal.wait(lambda: _FIRST_FRAME in terminal.screen(), _PATIENCE_S)
        run.start_s = time.monotonic() - began
        pid = terminal.child()
        if watch:
            _watch(pid, run)
        else:
            time.sleep(SHORT_S)
        held = links.of_process(pid)
        demos = [child for child in procfs.descendants((pid,)) if _is_demo(child)]
        began = time.monotonic()
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
        run.quit_s = time.monotonic() - began
        for demo in demos:  # it goes on without its screen, and would be beside whatever is measured next
            os.kill(demo, signal.SIGKILL)
        run.links, run.left = len(held), sum(map(links.alive, held))
    if not run.links:
        raise RuntimeError("gputop held no probes")
    return run


def rows(folder: Path) -> list[Row]:
    """CPU and memory of a long run, start and end of all runs; each beside the same of an empty program."""
    runs, beside = [], []
    for watch in (True, *[False] * SHORT_RUNS):
        beside.append(empty.lived(folder))
        runs.append(_live(folder, watch=watch))
    long = runs[0]
    starts, ends = [run.start_s for run in runs], [run.quit_s for run in runs]
    left = max(run.left for run in runs)
    cpu = median(one.cpu_percent for one in beside)
    memory = median(one.rss_bytes for one in beside)
    return [
        _row("start to the first frame", starts, [one.start_s for one in beside], START_BOUND),
        Row(
            "screen and engine at 4 Hz / empty program",
            long.cpu_percent / cpu,
            "",
            CPU_BOUND,
            f"{long.cpu_percent:.1f} % of a core, the empty one {cpu:.1f}; threads {long.threads}",
        ),
        Row(
            "screen alone / empty program",
            long.screen_percent / cpu,
            "",
            SCREEN_BOUND,
            f"the main thread: {long.screen_percent:.1f} % of a core",
        ),
        Row(
            "resident memory / empty program",
            long.rss_bytes / memory,
            "",
            RSS_BOUND,
            f"{long.rss_bytes / 1e6:.0f} MB, the empty one {memory / 1e6:.0f}",
        ),
        _row("q to prompt", ends, [one.quit_s for one in beside], QUIT_BOUND),
        Row("probes left at the prompt", left, "links", 0.0, f"of {long.links} links"),
    ]


def _row(name: str, seconds: list[float], beside: list[float], bound: float) -> Row:
    detail = f"{_list(seconds)} s, the empty one {_list(beside)}"
    return Row(f"{name} / empty program", median(seconds) / median(beside), "", bound, detail)


def _list(seconds: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in seconds)
