"""What a screen takes that is left open beside a program of 20,000 calls a second: gputop's and others'.

nvitop and btop show other things, bpftrace adds the same calls up in histograms. Each that is installed is
measured in the same rounds, in a terminal of the same size.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from gputop.simgpu import ensure_built, library_build
from tests.bench.inside import build_paced
from tests.bench.processes import gputop_ticks, pss_bytes
from tests.bench.rows import Row
from tests.bench.tmux import Terminal
from tests.conftest import missing_for_bpftrace
from tests.yardstick import USUAL_TURN_S, turn_s

CALLS_PER_S = 20_000
CPU_BOUND, MEMORY_BOUND = 6.0, 150.0  # percent of a core where a turn takes USUAL_TURN_S; MB
GAIN_BOUND = 15.0  # MB in five minutes
ROUNDS = 2
_WARM_UP_S, _WATCH_S, _PATIENCE_S = 12.0, 10.0, 30.0
_FOREVER_S = 3600
_LEFT_OPEN_S, _LOOK_S = 360.0, 2.0
_SETTLED_S = 60.0  # of what is left open: the window is full, and what started it has ended
_RUNTIME = "libcudart.so.12"
_CALLS = ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaStreamCreateWithFlags")


class _EndedError(Exception):
    """A neighbour of gputop's has ended by itself: it is left out of that round."""


def rows(folder: Path) -> list[Row]:
    """The screen's CPU time and memory, each with its bound, then those of its neighbours."""
    found: dict[str, list[tuple[float, float]]] = {}
    with _busy(folder) as (pid, environment):
        for _ in range(ROUNDS):
            for name, command in _commands(pid).items():
                with suppress(_EndedError):
                    found.setdefault(name, []).append(_watched(folder, command, environment))
    most = CPU_BOUND * turn_s() / USUAL_TURN_S
    return [row for name, lives in found.items() if lives for row in _rows(name, lives, most)]


def left_open(folder: Path) -> list[Row]:
    """The screen's memory after minutes, with all processes below it, and how much it gained by the end."""
    sizes = []
    with _busy(folder) as (pid, _environment), Terminal(folder) as terminal:
        terminal.keys(shlex.join(_commands(pid)["gputop"]), "Enter")
        time.sleep(_SETTLED_S)
        own, began = terminal.child(), time.monotonic()
        while time.monotonic() - began < _LEFT_OPEN_S:
            sizes.append(pss_bytes(own) / 1e6)
            time.sleep(_LOOK_S)
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, _PATIENCE_S)
    quarter = len(sizes) // 4
    early, late = median(sizes[:quarter]), median(sizes[-quarter:])
    what = f"gputop left open beside {CALLS_PER_S} calls a second"
    return [
        Row(
            f"{what}, resident",
            late,
            "MB",
            MEMORY_BOUND,
            f"after {_LEFT_OPEN_S / 60:.0f} min; {max(sizes):.0f} at an explanation",
        ),
        Row(f"{what}, gained", late - early, "MB", GAIN_BOUND, f"{early:.0f} to {late:.0f} MB"),
    ]


@contextmanager
def _busy(folder: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """A program of so many calls a second: its number and its environment."""
    environment = library_build.environment(os.environ) | {"SIMGPU_KERNEL_NS": "500"}
    # a launch is a call of the runtime and one of the driver
    words = [str(build_paced(folder)), str(CALLS_PER_S // 2), str(_FOREVER_S), str(folder / "watched")]
    with subprocess.Popen(words, env=environment) as program:
        try:
            yield program.pid, environment
        finally:
            program.kill()


def _commands(pid: int) -> Mapping[str, list[str]]:
    commands = {"gputop": [sys.executable, "-m", "gputop", "--simgpu", "--pid", str(pid)]}
    for name in ("nvitop", "btop"):
        if (path := shutil.which(name, path=_places())) is not None:
            commands[name] = [path]
    if not missing_for_bpftrace():
        library = ensure_built() / _RUNTIME
        entries, returns = (
            ",".join(f"{kind}:{library}:{call}" for call in _CALLS) for kind in ("uprobe", "uretprobe")
        )
        script = (
            f"{entries} {{ @since[tid] = nsecs; }} {returns} /@since[tid]/ "
            "{ @took[func] = hist(nsecs - @since[tid]); delete(@since[tid]); } interval:s:1 { print(@took); }"
        )
        commands["bpftrace, histograms"] = ["bpftrace", "-e", script]
    return commands


def _places() -> str:
    """Where programs are looked for: also beside this Python."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _watched(folder: Path, command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Percent of a core and MB of one life, its own processes included."""
    variables = [f"{name}={environment[name]}" for name in ("LD_LIBRARY_PATH",)]
    ours = command[0] == sys.executable  # it finds the simulated NVML by its flag
    words = command if ours else ["env", *variables, *command]
    with Terminal(folder) as terminal:
        terminal.keys(shlex.join(words), "Enter")
        time.sleep(_WARM_UP_S)
        try:
            pid = terminal.child()
        except RuntimeError as error:  # it holds what the screen shows
            if ours:
                raise
            print(f"{command[0]} ended by itself: {error}", file=sys.stderr)
            raise _EndedError from error
        before, began = gputop_ticks(pid), time.monotonic()
        time.sleep(_WATCH_S)
        ticks = gputop_ticks(pid) - before
        percent = 100 * ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
        megabytes = pss_bytes(pid) / 1e6
        if ours:
            terminal.keys("q")
            terminal.wait(terminal.at_prompt, _PATIENCE_S)
    return percent, megabytes


def _rows(name: str, lives: list[tuple[float, float]], most: float) -> list[Row]:
    ours = name == "gputop"
    percents, sizes = zip(*lives, strict=True)
    texts = [", ".join(f"{value:.1f}" for value in values) for values in (percents, sizes)]
    what = f"{name} beside {CALLS_PER_S} calls a second"
    return [
        Row(what, median(percents), "%", most if ours else None, f"of a core; {texts[0]}"),
        Row(f"{what}, resident", median(sizes), "MB", MEMORY_BOUND if ours else None, f"{texts[1]} MB"),
    ]
