"""What ``--inside`` costs at two rates of launches, in turns: alone, recorded, and recorded from inside.

A program without the variable that loads the library is the one that is only recorded: it pays nothing more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gputop.simgpu import library_build
from tests.bench.processes import gputop_ticks
from tests.bench.rows import Row
from tests.ebpf.inside_evidence import evidence_of

RATES = (20_000, 200_000)  # launches a second
ROUNDS, SECONDS = 3, 4.0
_PATIENCE_S = 120.0
_QUICK = {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0", "SIMGPU_KERNEL_NS": "500"}
_CASES: dict[str, tuple[str, ...] | None] = {"alone": None, "recorded": (), "inside": ("--inside",)}


@dataclass(frozen=True, slots=True)
class _Run:
    """One life of the program: its launches, gputop's CPU time, and how many kernels are known."""

    launch_ns: float
    gputop_percent: float = 0.0
    made: int = 0
    known: int = 0
    lost_is_reported: bool = False


def build_paced(folder: Path) -> Path:
    """Compiles the program that launches at a steady rate."""
    program = folder / "paced"
    source = Path(__file__).with_name("paced.c")
    subprocess.run(["cc", "-O1", "-o", program, source, "-ldl"], check=True)
    return program


def rows(folder: Path) -> list[Row]:
    """For each rate what the program pays, what gputop takes, and what was lost."""
    program = build_paced(folder)
    found: list[Row] = []
    for rate in RATES:
        runs: dict[str, list[_Run]] = {name: [] for name in _CASES}
        for _ in range(ROUNDS):
            for name, flags in _CASES.items():
                runs[name].append(_run(folder, program, rate, flags))
        found += _rows(rate, runs)
    return found


def _run(folder: Path, program: Path, rate: int, flags: tuple[str, ...] | None) -> _Run:
    out, begun, path = (folder / name for name in ("paced.out", "paced.out.begun", "paced.gputop"))
    for one in (out, begun):
        one.unlink(missing_ok=True)
    command = [str(program), str(rate), str(SECONDS), str(out)]
    environment = {**os.environ, **_QUICK}
    if flags is None:
        environment = library_build.environment(environment)
    else:
        gputop = [sys.executable, "-m", "gputop", "record", "--force", "-o", str(path), "--simgpu", *flags]
        command = [*gputop, "--", *command]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + _PATIENCE_S
        while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        ticks, began = 0, time.monotonic()
        if flags is not None and process.poll() is None:
            before = gputop_ticks(process.pid)
            time.sleep(SECONDS - 0.5)
            ticks = gputop_ticks(process.pid) - before
        seconds = time.monotonic() - began
        if process.wait(_PATIENCE_S):
            raise RuntimeError(f"{command} ended with {process.returncode}")
    made, launch_ns, _ = out.read_text().split()
    percent = 100 * ticks / os.sysconf("SC_CLK_TCK") / seconds if ticks else 0.0
    if flags is None:
        return _Run(float(launch_ns))
    evidence, problems = evidence_of(path)
    known = len(evidence.activities.of("kernel")) if flags else len(evidence.calls)
    lost_is_reported = bool(problems) or bool(len(evidence.lost[0]))
    return _Run(float(launch_ns), percent, int(made), known, lost_is_reported)


def _rows(rate: int, runs: dict[str, list[_Run]]) -> list[Row]:
    launches = {name: median(run.launch_ns for run in some) for name, some in runs.items()}
    found = [
        Row(
            f"a launch recorded from inside, {rate} a second / recorded",
            launches["inside"] / launches["recorded"],
            "",
            None,
            ", ".join(f"{name} {took:.0f} ns" for name, took in launches.items()),
        )
    ]
    for name in ("recorded", "inside"):
        percents = [run.gputop_percent for run in runs[name]]
        found.append(
            Row(
                f"gputop, {rate} launches a second, {name}",
                median(percents),
                "%",
                None,
                f"of a core; {', '.join(f'{percent:.1f}' for percent in percents)}",
            )
        )
    unreported = sum(run.known < run.made and not run.lost_is_reported for run in runs["inside"])
    counts = "; ".join(f"{run.known} of {run.made}" for run in runs["inside"])
    title = f"runs with kernels lost and not reported, {rate} a second"
    found.append(Row(title, unreported, "", 0.0, f"kernels known: {counts}"))
    return found
