"""Memory of unmodified PyTorch programs: a planted leak and shortages are named, healthy loops are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import inside
from tests.ebpf.recording import Workshop
from tests.torch_programs.wheel import HERE as PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python

pytestmark = [pytest.mark.ebpf, pytest.mark.long, pytest.mark.timeout(400)]
PROGRAM = PROGRAMS / "memory.py"
HOLDER = "import sys, cuda; c = cuda.Cuda(); p = c.malloc(5 << 30); print(1, flush=True); sys.stdin.read()"


def explained(workshop: Workshop, mode: str, mib: int = 16384) -> dict[str, Any]:
    """The part of the explanation about memory."""
    env = {"SIMGPU_MEMORY_MIB": str(mib)}
    workshop.record(torch_cuda_python(), str(PROGRAM), mode, env=env, seconds=300)
    found: dict[str, Any] = json.loads(inside.run("explain", "--json", str(workshop.file)).stdout)
    return found


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line)


def test_a_line_that_keeps_tensors_is_a_leak_and_a_healthy_loop_has_none(tmp_path: Path) -> None:
    (tmp_path / "leak").mkdir()
    (tmp_path / "healthy").mkdir()
    leaking = explained(Workshop(tmp_path / "leak", lines="slow"), "leak")
    (leak,) = leaking["memory"]["leaks"]
    assert leak["line"]["line"] == line_of("kept.append(torch.empty(48")
    assert leak["by_torch"]
    healthy = explained(Workshop(tmp_path / "healthy", lines="slow"), "healthy")
    assert healthy["memory"]["leaks"] == healthy["memory"]["out_of_memory"] == []
    assert "failures" not in healthy


@pytest.mark.parametrize(("mode", "blame"), [("full", "own"), ("huge", "request")])
def test_what_a_shortage_is_for_is_reported_with_its_line(tmp_path: Path, mode: str, blame: str) -> None:
    found = explained(Workshop(tmp_path, lines="slow"), mode)
    (short,) = found["memory"]["out_of_memory"]
    assert short["blame"] == blame
    wanted = "kept.append(torch.empty(GIB" if mode == "full" else "torch.empty(100 * GIB"
    assert short["line"]["line"] == line_of(wanted)
    assert short["by_torch"]
    assert {one["error"] for one in found["failures"]} == {"cudaErrorMemoryAllocation"}


def test_a_shortage_for_which_another_process_is_to_blame_names_it(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    env = workshop.environment() | {"SIMGPU_MEMORY_MIB": "6656"}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        (short,) = explained(workshop, "full", 6656)["memory"]["out_of_memory"]
        assert short["blame"] == "others"
        assert [one["pid"] for one in short["others"]] == [holder.pid]
    finally:
        holder.kill()
        holder.wait()
