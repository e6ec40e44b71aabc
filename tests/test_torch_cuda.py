"""An unmodified CUDA build of PyTorch on the simulated GPU: what runs, and how what does not run ends.

Needs what ``make torch-cuda`` installs beside the repository; skipped where it is not there, in CI too.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import ProcessLog, environment, read_log, read_trace
from tests.torch_programs.wheel import HERE as PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python

pytestmark = pytest.mark.timeout(700)
long = partial(pytest.param, marks=pytest.mark.long)
PATIENT_S = 300  # importing torch takes 3 s of a CPU, the first zero_grad 2 s, in each process


@pytest.fixture(scope="module")
def torch() -> str:
    """The interpreter that has torch."""
    return torch_cuda_python()


class Machine:
    """A simulated machine of a test's own."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python = python
        self.log, self.trace = folder / "log.json", folder / "trace"
        self.env = environment(os.environ) | {
            "SIMGPU_STATE": str(folder / "state"),
            "SIMGPU_LOG": str(self.log),
            "SIMGPU_TRACE": str(self.trace),
            "SIMGPU_INIT_MS": "0",
            "SIMGPU_FIRST_LAUNCH_MS": "0",
            "MEETING": f"file://{folder / 'meeting'}",
        }

    def start(self, program: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        command = [self.python, str(PROGRAMS / program), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.env | env, stdout=pipe, stderr=pipe, text=True)

    def run(self, program: str, *arguments: str, **env: str) -> list[Any]:
        """What a program that ends well says, a line each."""
        process = self.start(program, *arguments, **env)
        said, errors = process.communicate(timeout=PATIENT_S)
        assert process.returncode == 0, errors
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def process(self) -> ProcessLog:
        """The one that used the GPU."""
        (process,) = read_log(self.log)
        return process

    def kernels(self, pid: int) -> int:
        return len(read_trace(self.trace).of(pid, kinds={"kernel"}))


@pytest.fixture
def machine(torch: str, tmp_path: Path) -> Machine:
    return Machine(torch, tmp_path)


def launches(process: ProcessLog) -> int:
    return sum(process.calls.get(name, 0) for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch"))


@pytest.mark.parametrize("optimizer", ["adamw", long("sgd"), long("adam"), long("fused")])
def test_a_loop_as_people_write_it_trains(machine: Machine, optimizer: str) -> None:
    (said,) = machine.run("mlp.py", "--steps", "20", "--optimizer", optimizer)
    process = machine.process()
    assert said["steps"] == 20
    assert launches(process) == machine.kernels(process.pid) > 20 * 9, "three layers, forward and backward"


@pytest.mark.long
def test_workers_that_load_batches_are_no_programs_of_the_gpu(machine: Machine) -> None:
    machine.run("mlp.py", "--steps", "20", "--workers", "2")
    assert machine.process().bytes_h2d >= 20 * 64 * 256 * 4


@pytest.mark.long
def test_convolutions_attention_and_recurrence_run_without_any_setting(machine: Machine) -> None:
    assert machine.run("images.py", "3") == [{"steps": 3, "loss": 0.0, "shape": [16]}]
    assert machine.run("sequences.py", "3") == [{"steps": 3, "loss": 0.0}]


def test_what_asks_the_gpu_gets_an_answer(machine: Machine) -> None:
    (said,) = machine.run("reads.py")
    assert said["name"] == "SimGPU 80GB"
    assert (said["count"], said["item"], said["text"], said["free"]) == (1, 0.0, True, True)
    assert (said["numpy"], said["rows"], said["mask"]) == ([100, 100], [0, 2], [0]), (
        "all that it computes is zero"
    )
    assert said["milliseconds"] > 2 * 1024**3 / (67e12 * 0.6) * 1e3, "a product by its shape, and two fills"


@pytest.mark.long
def test_a_captured_graph_is_replayed(machine: Machine) -> None:
    machine.run("graphs.py", "10")
    assert machine.process().calls["cudaGraphLaunch"] == 10


@pytest.mark.long
@pytest.mark.parametrize("devices", ["1", "2"])
def test_two_ranks_train_one_model(machine: Machine, devices: str) -> None:
    said = machine.run("ddp.py", "5", SIMGPU_DEVICES=devices)
    assert sorted(line["rank"] for line in said) == [0, 1]
    ranks = [process for process in read_log(machine.log) if "ncclCommInitRankConfig" in process.calls]
    assert len(ranks) == 2
    for process in ranks:
        assert process.calls["ncclAllReduce"] >= 5, "of the gradients, in each step"
        assert len(read_trace(machine.trace).of(process.pid, kinds={"comm"})) >= 5


@pytest.mark.long
def test_two_programs_share_a_gpu(machine: Machine) -> None:
    programs = [machine.start("mlp.py", "--steps", "20") for _ in range(2)]
    assert [program.communicate(timeout=PATIENT_S) and program.returncode for program in programs] == [0, 0]
    logs = read_log(machine.log)
    assert {log.pid for log in logs} == {program.pid for program in programs}
    assert launches(logs[0]) == launches(logs[1]), "the same program twice"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("fft", "gputop simgpu: cufftCreate is not simulated"),
        long("solve", "gputop simgpu: cusolverDnCreate is not simulated"),
        long("compile", "Cannot find a working triton installation"),
    ],
)
def test_what_is_not_there_ends_in_a_sentence(machine: Machine, wanted: str, sentence: str) -> None:
    process = machine.start("refused.py", wanted)
    _, errors = process.communicate(timeout=PATIENT_S)
    assert process.returncode == 1
    assert errors.count(sentence) == 1
