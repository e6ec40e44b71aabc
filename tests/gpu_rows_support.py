"""Rows of GPUs as the NVML thread makes them of the simulated NVML, read in a process of its own.

A process can load one NVML library only, so each case has one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gputop.simgpu import library_build
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parent.parent
_PRELUDE = """
import json, sys, time
from pathlib import Path
from probes.nvml.nvml import NvmlSampler
sampler = NvmlSampler(float(sys.argv[2]), Path(sys.argv[1]))
def rows(): return sampler.latest().data["gpus"]
def until(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end: time.sleep(0.005)
def rounds(count):
    seen = {sampler.latest().time_ns}
    until(lambda: seen.add(sampler.latest().time_ns) or len(seen) > count)
sampler.wait_complete(10)
"""


def ask(directory: Path, body: str, interval_s: float = 0.05, **settings: str) -> Any:
    """What a program prints as JSON that has a running ``sampler``, ``rows()``, ``until()`` and ``rounds()``.

    Args:
        directory: Where the simulated GPU keeps its state.
        body: Python.
        interval_s: Of the sampler.
        settings: Of the simulated GPU.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + body, str(library_build.nvml_path()), str(interval_s)],
        env={**os.environ, "SIMGPU_STATE": str(directory / "state"), **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def all_rows(directory: Path, **settings: str) -> Any:
    """The rows of all GPUs after two rounds, when everything was asked."""
    return ask(directory, "rounds(2); print(json.dumps(rows()))", **settings)
