"""How much memory a recorder takes at most, resident, beside a Python that imports numpy and msgpack.

The demo runs meanwhile, so that everything is loaded and all buffers have been used. The ring of events,
16 MiB of the kernel's, counts as resident where it is mapped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tests.bench.processes import peak_bytes
from tests.bench.rows import Row

BOUND = 2.9  # times the other; 27 MB here
SECONDS = 10.0
RUNS = 3
_PATIENCE_S = 60.0
_GPUTOP = (sys.executable, "-m", "gputop")
_DEMO = (*_GPUTOP, "demo", "healthy", "--alone", "--duration")
_OTHER = "import numpy, msgpack; print(flush=True); input()"
_CASES = {"record": (), "record --lines off": ("--lines", "off")}


def of_recorder(folder: Path, words: tuple[str, ...], seconds: float) -> int:
    """The most that was resident until the demo ended, and the recorder with it; in bytes."""
    words = (
        "record",
        "--force",
        "-o",
        str(folder / "memory.gputop"),
        *words,
        "--simgpu",
        "--",
        *_DEMO,
        str(seconds),
    )
    command = (*_GPUTOP, *words)
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most, deadline = 0, time.monotonic() + seconds + _PATIENCE_S
    while recorder.poll() is None and time.monotonic() < deadline:
        most = peak_bytes(recorder.pid) or most
        time.sleep(0.1)
    if recorder.poll() != 0:
        recorder.kill()
        raise RuntimeError(f"the recorder did not end well: {recorder.wait()}")
    return most


def of_plain() -> int:
    """The same of a Python that imports what any recorder needs."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as gputop does
    command = (sys.executable, "-c", _OTHER)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = peak_bytes(other.pid)
        other.communicate("\n")
    return found


def rows(folder: Path) -> list[Row]:
    """With lines, as it is by default, and without; each in turn with the other program."""
    found: dict[str, list[int]] = {name: [] for name in _CASES}
    beside = []
    for _ in range(RUNS):
        beside.append(of_plain())
        for name, words in _CASES.items():
            found[name].append(of_recorder(folder, words, SECONDS))
    plain = median(beside)
    return [
        Row(
            f"memory of {name} / plain Python",
            median(sizes) / plain,
            "",
            BOUND,
            f"{_list(sizes)} MB, with numpy and msgpack alone {plain / 1e6:.1f}",
        )
        for name, sizes in found.items()
    ]


def _list(sizes: list[int]) -> str:
    return ", ".join(f"{size / 1e6:.1f}" for size in sizes)
