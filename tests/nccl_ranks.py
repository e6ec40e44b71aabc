"""Ranks of the simulated NCCL, a process each."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.simgpu_programs.harness import Bench
from tests.waiting import HANGS_S

RANK = (
    "import ctypes\nfrom nccl import Nccl, FLOAT\n"
    "c, n = Cuda(), Nccl(); c.SetDevice(int(os.environ.get('DEVICE', 0)))\n"
    "c.SetDeviceFlags(int(os.environ.get('FLAGS', 0)))\n"
    "rank, ranks, comm = n.rank_from_environment(); s = c.stream(1)\n"
)


def start(bench: Bench, body: str, ranks: int = 2, **env: str) -> list[subprocess.Popen[str]]:
    """Starts a process for each rank."""
    common = {"WORLD": str(ranks), "ID": str(bench.directory / f"id-{time.monotonic_ns()}")} | env
    return [bench.start(RANK + body, RANK=str(rank), **common) for rank in range(ranks)]


def results(processes: list[subprocess.Popen[str]]) -> list[Any]:
    """Waits for the ranks and returns what each printed."""
    out = [process.communicate(timeout=HANGS_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(text) if text.strip() else None for text in out]
