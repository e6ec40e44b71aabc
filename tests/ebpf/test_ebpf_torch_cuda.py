"""An unmodified CUDA build of PyTorch under ``gputop record --simgpu``: every call of it is counted.

Needs what ``make torch-cuda`` installs beside the repository; skipped where it is not there, in CI too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.ebpf.recording import Recorded, Workshop, traced
from tests.torch_programs.wheel import HERE as PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(400)]
PATIENT_S = 300  # importing torch takes 3 s of a CPU, the first zero_grad 2 s, in each process
long = partial(pytest.param, marks=pytest.mark.long)
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch")


@pytest.fixture(scope="module")
def torch() -> str:
    """The interpreter that has torch."""
    return torch_cuda_python()


def assert_all_counted(run: Recorded, workshop: Workshop, processes: int) -> None:
    """Each process that used the GPU: gputop's counts are the simulated GPU's, to the call."""
    assert run.lost == 0
    pids = {process["pid"] for process in run.stats["processes"] if process["calls"]}
    assert len(pids) == processes
    for pid in pids:
        simulated = workshop.simgpu_counts(pid)
        assert run.counts(pid) == traced(simulated)
        assert sum(simulated[name] for name in LAUNCHES) > 30


@pytest.mark.parametrize(
    ("program", "arguments", "processes"),
    [
        long("mlp.py", ["--steps", "30"], 1),
        long("images.py", ["5"], 1),
        long("sequences.py", ["5"], 1),
        long("graphs.py", ["20"], 1),
        long("ddp.py", ["5"], 2),
    ],
)
def test_every_call_of_pytorch_is_counted(
    torch: str, tmp_path: Path, program: str, arguments: list[str], processes: int
) -> None:
    workshop = Workshop(tmp_path)
    env = {"SIMGPU_DEVICES": str(processes), "MEETING": f"file://{tmp_path / 'meeting'}"}
    run = workshop.record(torch, str(PROGRAMS / program), *arguments, env=env, seconds=PATIENT_S)
    assert_all_counted(run, workshop, processes)


def test_every_call_of_a_training_loop_is_counted_and_each_wait_has_its_line(
    torch: str, tmp_path: Path
) -> None:
    workshop = Workshop(tmp_path, lines="all")
    program = PROGRAMS / "mlp.py"
    arguments = ("--steps", "50", "--every", "1", "--workers", "2", "--optimizer", "fused")
    run = workshop.record(torch, str(program), *arguments, seconds=PATIENT_S)
    assert_all_counted(run, workshop, 1)
    (process,) = [process for process in run.stats["processes"] if process["calls"]]
    text = program.read_text().splitlines()
    rows = [row for row in process["lines"] if row["file"] == str(program)]
    waits = {
        text[row["line"] - 1].strip(): row["count"] for row in rows if row["api"] == "cudaStreamSynchronize"
    }
    assert waits["seen += loss.item()"] == 50
