"""GPU time by kernel, estimated from real probes, against what the simulated GPU's trace says each took."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu.trace import read_trace
from tests import inside
from tests.ebpf.recording import Workshop

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).resolve().parent / "programs" / "mixtures.py"


def recorded(folder: Path, kind: str) -> tuple[dict[str, Any], Counter[str]]:
    """(Name -> what `explain` tells of it, name -> GPU time by the trace, ns)."""
    workshop = Workshop(folder, lines="slow")
    kernels, trace = folder / "kernels", folder / "trace"
    env = {"SIMGPU_KERNELS": str(kernels), "SIMGPU_TRACE": str(trace)}
    run = workshop.record(sys.executable, str(PROGRAM), "5", "120", kind, env=env)
    ran = read_trace(trace).of(kinds={"kernel"}).tolist()
    names = [line.split(" ")[1] for line in kernels.read_text().splitlines()]
    took: Counter[str] = Counter()
    for name, (_pid, _device, _stream, start, end, *_rest) in zip(names, ran, strict=True):
        took[name] += end - start  # one stream: they ran in the order of their launches
    told = json.loads(inside.run("explain", str(run.path), "--json").stdout)["kernels"]
    return {row["name"]: row for row in told}, took


@pytest.mark.long
def test_times_of_kernels_in_different_mixtures_are_within_their_errors(tmp_path: Path) -> None:
    told, took = recorded(tmp_path, "mixed")
    assert set(told) == set(took)
    for name in ("simgpu_gemm", "simgpu_norm"):
        time = told[name]["gpu_ns"]
        assert time is not None
        assert abs(time["estimate"] - took[name]) < time["error"] <= time["estimate"] / 2
        assert time["estimate"] == pytest.approx(took[name], rel=0.1)
    for name in ("simgpu_left", "simgpu_right"):  # always side by side
        assert told[name]["gpu_ns"] is None


@pytest.mark.long
def test_of_a_loop_whose_steps_are_alike_no_time_is_reported(tmp_path: Path) -> None:
    told, took = recorded(tmp_path, "same")
    assert set(told) == set(took)
    assert [row["gpu_ns"] for row in told.values() if row["gpu_ns"]] == []
