"""Shapes of launches under real probes equal what the simulated GPU was asked for, by each function."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from probes.schema import ALIASED, Kind
from probes.shapes import Shape, Shapes
from probes.source import SHAPES, Sample
from replay.reader import SessionReader
from tests.ebpf.recording import Workshop, library

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(200)]
PROGRAM = Path(__file__).resolve().parent / "programs" / "launch_ways.py"
WAYS = (
    "cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC",
    "cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx",
)  # fmt: skip


@pytest.mark.parametrize("way", ["multi", "perf"])
@pytest.mark.mainly("multi")
def test_each_function_that_launches_shows_its_shape(tmp_path: Path, way: str) -> None:
    workshop = Workshop(tmp_path, lines="off")
    kernels = tmp_path / "kernels"
    env = {"SIMGPU_KERNELS": str(kernels), "GPUTOP_ATTACH": way}
    run = workshop.record(sys.executable, str(PROGRAM), library("libcudart.so.13"), env=env)
    truth: Counter[Shape] = Counter()
    for line in kernels.read_text().splitlines():
        sizes = tuple(map(int, line.split(" ")[2].split(",")))
        truth[Shape((sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5]), sizes[6])] += 1
    assert sum(truth.values()) == 3 * len(WAYS)
    known, told = Shapes(), Counter[Shape | None]()
    functions: list[str] = []
    reader = SessionReader(run.path)
    assert reader.header["attach"] == way
    for item in reader.items():
        if isinstance(item, Sample):
            if item.kind == SHAPES:
                known.consume(item.data)
            if item.kind == "apis":
                functions = [row[0] for row in item.data["rows"]]
            continue
        for row in item.view(ALIASED)[item["kind"] == Kind.CALL]:
            if functions[row["op"]] in WAYS and row["depth"] == 0:
                told[known.get(int(row["shape"]))] += 1
            elif functions[row["op"]] in WAYS:
                assert row["shape"] == 0  # made inside of another launch, which tells it
    assert told == truth
