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
from tests.bench import links
from tests.bench.rows import Row
from tests.bench.tmux import Terminal

# of a core: the screen 3, reading and counting 2, the live history 2, the explanation 2
CPU_BOUND, SCREEN_BOUND, START_BOUND, QUIT_BOUND, RSS_BOUND = 9.0, 3.0, 1.5, 0.5, 220.0
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


def _ticks(stat: Path) -> int:
    """User and system time of a process or thread, in clock ticks."""
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _use(pid: int) -> dict[str, int]:
    """Clock ticks used by each thread, by its number; the whole process is ''."""
    use = {"": _ticks(Path(f"/proc/{pid}/stat"))}
    for task in Path(f"/proc/{pid}/task").iterdir():
        use[task.name] = _ticks(task / "stat")
    return use


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def used_percent(pid: int, seconds: float) -> float:
    """What a process uses of a core while one waits."""
    before, began = _use(pid)[""], time.monotonic()
    time.sleep(seconds)
    ticks = _use(pid)[""] - before
    return ticks * 100 / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def _watch(pid: int, run: Run) -> None:
    time.sleep(WARM_UP_S)
    before, began = _use(pid), time.monotonic()
    time.sleep(WATCH_S)
    after, seconds = _use(pid), time.monotonic() - began
    scale = 100 / os.sysconf("SC_CLK_TCK") / seconds
    used = {task: (ticks - before.get(task, 0)) * scale for task, ticks in after.items()}
    run.cpu_percent = used.pop("")
    run.screen_percent = used[str(pid)]  # Textual runs in the main thread
    run.threads = ", ".join(f"{part:.1f}" for part in sorted(used.values(), reverse=True) if part >= 0.1)
    run.rss_bytes = _rss_bytes(pid)


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
    """CPU and memory of a long run, start and end of all runs."""
    runs = [_live(folder, watch=True), *(_live(folder, watch=False) for _ in range(SHORT_RUNS))]
    long = runs[0]
    starts, ends = [run.start_s for run in runs], [run.quit_s for run in runs]
    left = max(run.left for run in runs)
    return [
        Row("start to the first frame", median(starts), "s", START_BOUND, _list(starts)),
        Row(
            "screen and engine at 4 Hz, of a core",
            long.cpu_percent,
            "%",
            CPU_BOUND,
            f"threads {long.threads}",
        ),
        Row("screen alone", long.screen_percent, "%", SCREEN_BOUND, "the main thread"),
        Row("resident memory", long.rss_bytes / 1e6, "MB", RSS_BOUND),
        Row("q to prompt", median(ends), "s", QUIT_BOUND, _list(ends)),
        Row("probes left at the prompt", left, "links", 0.0, f"of {long.links} links"),
    ]


def _list(seconds: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in seconds)
