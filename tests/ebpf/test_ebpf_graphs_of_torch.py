"""CUDA graphs of an unmodified PyTorch under real probes: made where, what they hold, launched how often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import inside
from tests.ebpf.recording import Workshop
from tests.torch_programs.wheel import HERE as TORCH_PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(400)]
REPLAYS, WARM_UP = 40, 3


def test_a_captured_forward_pass_is_reported_with_its_kernels_and_replays(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    kernels, program = tmp_path / "kernels", TORCH_PROGRAMS / "graphs.py"
    env = {"SIMGPU_KERNELS": str(kernels)}
    run = workshop.record(torch_cuda_python(), str(program), str(REPLAYS), env=env, seconds=300)
    told = json.loads(inside.run("explain", str(run.path), "--json").stdout)
    (made,) = told["graphs"]["made"]
    assert (made["instantiated"], made["updated"], made["launches"]) == (1, 0, REPLAYS)
    text = program.read_text().splitlines()[made["line"]["line"] - 1]
    assert "torch.cuda.graph(" in text
    # the forward pass runs three times before it is captured: a quarter of its launches goes into the graph
    forward = [line for line in kernels.read_text().splitlines() if "gemm" in line or "vectorized" in line]
    captured = {row["name"]: row["captured"] for row in told["kernels"] if row["captured"]}
    assert sum(captured.values()) == made["kernels_least"] == made["kernels_most"]
    assert sum(captured.values()) * (WARM_UP + 1) == len(forward)
