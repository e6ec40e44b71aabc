"""Launches by kernel name under real probes equal what programs registered, as the simulated GPU notes it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

from probes.schema import MAX_SHAPES
from tests import inside
from tests.ebpf.growing import traced
from tests.ebpf.recording import Recorded, Workshop, compile_program, library
from tests.simgpu_programs.cuda_toolkit import compiler, real_runtime
from tests.torch_programs.wheel import HERE as TORCH_PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python
from tests.waiting import HANGS_S, wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(400)]
LAMBDA = "__nv_"  # types of nvcc's own, in place of a lambda
PROGRAMS = Path(__file__).resolve().parent / "programs"
CUDA_PROGRAMS = Path(__file__).resolve().parents[1] / "simgpu_programs"


def launched(file: Path, pid: int) -> Counter[str]:
    """Kernel -> launches, from the names that programs registered; C++ names as binutils reads them."""
    mangled: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        process, name, _shape = line.split(" ")
        if int(process) == pid:
            mangled[name] += 1
    said = subprocess.run(["c++filt"], input="\n".join(mangled), text=True, capture_output=True, check=True)
    names: Counter[str] = Counter()
    for name, count in zip(said.stdout.splitlines(), mangled.values(), strict=True):
        names[name] += count
    return names


def assert_shaped(run: Recorded, file: Path) -> None:
    """Launches by shape are those that the device was asked for; of the kernels with one name, theirs."""
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    truth: Counter[tuple[int, ...]] = Counter()
    by_name: dict[str, Counter[tuple[int, ...]]] = {}
    for line in file.read_text().splitlines():
        pid, name, sizes = line.split(" ")
        if int(pid) == process["pid"]:
            shape = tuple(map(int, sizes.split(",")))
            truth[shape] += 1
            by_name.setdefault(name, Counter())[shape] += 1
    told: Counter[tuple[int, ...]] = Counter()
    for row in process["kernels"]:
        mine = Counter(
            {(*one["grid"], *one["block"], one["shared_bytes"]): one["launches"] for one in row["shapes"]}
        )
        told += mine
        assert row["unshaped"] == 0
        assert row["small"] == sum(n for one, n in mine.items() if prod(one[:6]) < 132 * 2048)
        if row["name"] in by_name and row["library"] == "cuBLAS":  # one handle a name
            assert mine == by_name[row["name"]]
    assert told == truth


def plain(name: str) -> str:
    """Without result, templates and arguments."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    while "<" in name and (shorter := re.sub(r"<[^<>]*(>|…?$)", "", name)) != name:
        name = shorter
    return name.partition("(")[0]


def assert_named(run: Recorded, truth: Mapping[str, int]) -> tuple[int, int]:
    """Each name that is reported is one that was launched, that often; (launches with a name, without one).

    Where a template has a lambda, nvcc calls the host's function otherwise than the kernel: by a wrapper.
    """
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    told: Counter[str] = Counter()
    nameless = 0
    assert process.get("kernels"), run.stats["problems"]
    for row in process["kernels"]:
        if row["name"]:
            told[row["name"]] += row["launches"]
        else:
            nameless += row["launches"]
    short: Counter[str] = Counter()
    for name, launches in told.items():
        short[plain(name)] += launches
        if LAMBDA not in name:
            same = [count for known, count in truth.items() if known.startswith(name.removesuffix("…"))]
            assert sum(same) == launches, name
    for name, launches in short.items():
        assert sum(count for known, count in truth.items() if plain(known) == name) == launches, name
    assert sum(told.values()) + nameless == sum(truth.values())
    return sum(told.values()), nameless


def assert_explained(run: Recorded, process: Mapping[str, Any], steps: int) -> None:
    """The explanation counts what the totals count; this program launches each kernel in all steps alike."""
    told = json.loads(inside.run("explain", str(run.path), "--json").stdout)["kernels"]
    totals: Counter[str] = Counter()
    for row in process["kernels"]:
        totals[row["name"]] += row["launches"]
    counts: Counter[str] = Counter()
    for row in told:
        counts[row["name"]] += row["launches"]
        assert row["per_step"] == row["launches"] / steps, row["name"]
    assert counts == totals


def test_kernels_of_an_unmodified_pytorch_are_named_and_counted(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    kernels = tmp_path / "kernels"
    program = str(TORCH_PROGRAMS / "mlp.py")
    env = {"SIMGPU_KERNELS": str(kernels)}
    run = workshop.record(torch_cuda_python(), program, "--steps", "30", env=env, seconds=300)
    (pid,) = [one["pid"] for one in run.stats["processes"] if one["calls"]]
    truth = launched(kernels, pid)
    named, nameless = assert_named(run, truth)
    assert named > 10 * 30
    assert nameless == 0
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    # products of matrices, which cuBLAS launches by a handle of the driver's
    blas = sum(count for name, count in truth.items() if "gemm" in name or "cublas" in name.lower())
    launches = Counter({"torch": 0, "cuBLAS": 0})
    for row in process["kernels"]:
        launches[row["library"]] += row["launches"]
    assert launches == {"torch": named - blas, "cuBLAS": blas}
    assert_explained(run, process, steps=30)
    assert_shaped(run, kernels)


@pytest.mark.long
def test_kernels_of_a_program_of_nvcc_are_named_by_their_author(tmp_path: Path) -> None:
    program, nvcc = tmp_path / "vector_add", str(compiler())
    (tmp_path / "libcudart.so").symlink_to(real_runtime(13))
    source = str(CUDA_PROGRAMS / "vector_add.cu")
    command = [nvcc, "-cudart", "shared", "-o", str(program), source, f"-L{tmp_path}"]
    subprocess.run(command, check=True, capture_output=True)
    workshop = Workshop(tmp_path, lines="slow")
    kernels = tmp_path / "kernels"
    run = workshop.record(str(program), env={"SIMGPU_KERNELS": str(kernels)})
    (pid,) = [one["pid"] for one in run.stats["processes"] if one["calls"]]
    _named, nameless = assert_named(run, launched(kernels, pid))
    assert nameless == 0
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    assert "add(float const*, float const*, float*, int)" in {row["name"] for row in process["kernels"]}
    assert {row["library"] for row in process["kernels"]} == {"vector_add"}
    assert_shaped(run, kernels)


@pytest.mark.long
def test_without_lines_no_kernel_is_named(tmp_path: Path) -> None:
    run = Workshop(tmp_path).python("failing_calls.py")
    assert all("kernels" not in one for one in run.stats["processes"])


@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.long), True])
def test_kernels_of_native_code_are_named_also_where_it_ran_before(tmp_path: Path, late: bool) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    command = [str(compile_program("named_kernels.c", tmp_path)), library("libcudart.so.12")]
    if late:
        program = subprocess.Popen(command, stdin=subprocess.PIPE, env=workshop.environment())
        wait_until(lambda: workshop.simgpu_log.exists(), "the first call")
        recorder = workshop.start(["--pid", str(program.pid), "--duration", "2"])
        run = workshop.finish(recorder)
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(HANGS_S) == 0
    else:
        run = workshop.record("sh", "-c", f"sleep 2 | exec {' '.join(command)}")
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    counts = {row["name"]: row["launches"] for row in process["kernels"]}
    # of a launch under way when gputop came the driver's part is seen alone, and its handle has no name
    assert counts.pop("", 0) <= late
    assert set(counts) == {"often_launched", "launched_once"}
    assert abs(counts["often_launched"] - 2 * counts["launched_once"]) <= 2
    assert {row["library"] for row in process["kernels"] if row["name"]} == {"named_kernels"}


@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.long)])
def test_kernels_of_the_drivers_handles_are_called_what_their_program_requested(
    tmp_path: Path, late: bool
) -> None:
    """Where gputop comes later than the question, there is no name, and none that is wrong."""
    workshop = Workshop(tmp_path, lines="slow")
    kernels, go = tmp_path / "kernels", tmp_path / "go"
    program = [sys.executable, str(PROGRAMS / "handles.py"), str(go)]
    env = {"SIMGPU_KERNELS": str(kernels)}
    if late:
        child = subprocess.Popen(program, env=workshop.environment() | env)
        wait_until((tmp_path / "go.ready").exists, "the program's kernels")
        recorder = workshop.start(["--pid", str(child.pid)])
        wait_until(lambda: any("libcuda" in name for name in traced(workshop.file)), "the driver's probes")
        go.touch()
        assert child.wait(HANGS_S) == 0
        run = workshop.finish(recorder)
    else:
        go.touch()
        run = workshop.record(*program, env=env)
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    truth = launched(kernels, process["pid"])
    assert sum(truth.values()) == 3 * 40 + 2 * 40 + 40 + 40
    if late:
        assert process["calls"]
        assert {row["name"] for row in process.get("kernels", [])} <= {"asked_later", ""}
        return
    named, nameless = assert_named(run, truth)
    assert (named, nameless) == (sum(truth.values()), 0)
    assert_shaped(run, kernels)


@pytest.mark.long
def test_more_shapes_than_have_numbers_are_unknown_and_that_is_reported(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    kernels, count = tmp_path / "kernels", MAX_SHAPES + 500
    program = [sys.executable, str(PROGRAMS / "many_shapes.py"), str(count)]
    run = workshop.record(*program, env={"SIMGPU_KERNELS": str(kernels), "SIMGPU_LAUNCH_NS": "0"})
    (process,) = [one for one in run.stats["processes"] if one["calls"]]
    (row,) = process["kernels"]
    assert row["launches"] == len(kernels.read_text().splitlines()) == count + 1
    assert 500 - 1 <= row["unshaped"] <= 500
    # the last one has the first one's shape, which has its number all the time
    assert row["shapes"][0] == {"grid": [1, 1, 1], "block": [32, 1, 1], "shared_bytes": 0, "launches": 2}
    assert any("shapes: those of later ones are not known" in text for text in run.stats["problems"])
