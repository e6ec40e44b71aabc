"""NVML figures: what is refused says why; a call that hangs makes figures unknown and nothing late.

Each case runs in a process of its own: a process can load one NVML library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import library_build
from tests.waiting import HANGS_S

_START = """
import json, sys, time
from pathlib import Path
from probes.nvml.nvml import NvmlSampler
from probes.source import STALE_NS
from gputop.engine.facts import Facts
from gputop.engine.gpus.nvml_rows import gpu_rows
sampler = NvmlSampler(0.1, Path(sys.argv[1]))
sampler.wait_first(30)
"""
# after that the newest sample stays the newest
_HANG = """
Path(sys.argv[2]).write_text("hang:nvmlDeviceGetMemoryInfo:60000")
end = time.monotonic() + 30
while time.monotonic_ns() - sampler.latest().time_ns <= STALE_NS and time.monotonic() < end:
    time.sleep(0.01)
"""
# the least of five: who waits for the driver does so each time
_ROW = """
took = []
for _ in range(5):
    began = time.monotonic()
    sample = sampler.latest()
    rows = gpu_rows(sample, {}, time.monotonic_ns(), Facts())
    took.append(time.monotonic() - began)
row = rows[0]
print(json.dumps({"utilization": row.utilization_percent, "total": row.memory_total_bytes,
    "power": row.power_milliwatts, "unavailable": dict(row.unavailable), "took": min(took),
    "error": sample.data["error"], "driver": sampler.driver, "name": row.name}))
sampler.close()
"""

_HANGS = """
import json, os, sys, time
from pathlib import Path
from probes.nvml.nvml import NvmlSampler
began = time.monotonic()
sampler = NvmlSampler(0.1, Path(sys.argv[1]))
sampler.wait_opened(0.1)
made_s = time.monotonic() - began
while "yet" in sampler.latest().data["error"]:
    time.sleep(0.05)
print(json.dumps({"made_s": made_s, **sampler.latest().data}), flush=True)
os._exit(0)
"""


def sampled(
    tmp_path: Path, *arguments: str, script: str = _START + _ROW, **environment: str
) -> dict[str, Any]:
    """One row of the first GPU, as a script with so many arguments more tells it."""
    result = subprocess.run(
        [sys.executable, "-c", script, str(library_build.nvml_path()), *arguments],
        env={**os.environ, "SIMGPU_STATE": str(tmp_path / "state"), **environment},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_figures_have_their_units(tmp_path: Path) -> None:
    row = sampled(tmp_path, SIMGPU_MEMORY_MIB="4096")
    assert row["total"] == 4096 << 20
    assert row["utilization"] == 0
    assert row["name"].startswith("SimGPU")
    assert row["driver"]


def test_what_a_gpu_does_not_offer_is_unknown_with_the_reason(tmp_path: Path) -> None:
    row = sampled(tmp_path, SIMGPU_NVML_FAULT="notsupported:nvmlDeviceGetPowerUsage")
    assert row["power"] is None
    assert row["unavailable"]["power_milliwatts"] == "not offered by this GPU"
    assert row["utilization"] == 0


def test_a_refusal_says_so(tmp_path: Path) -> None:
    row = sampled(tmp_path, SIMGPU_NVML_FAULT="nopermission:nvmlDeviceGetUtilizationRates")
    assert row["utilization"] is None
    assert row["unavailable"]["utilization_percent"] == "not permitted for this user"


@pytest.mark.timed
def test_a_call_that_hangs_makes_figures_unknown_and_nobody_waits(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text("")
    script = _START + _HANG + _ROW
    row = sampled(tmp_path, str(fault), script=script, SIMGPU_NVML_FAULT_FILE=str(fault))
    assert row["utilization"] is None
    assert "NVML has not answered for" in row["unavailable"]["utilization_percent"]
    assert row["took"] < 0.05


@pytest.mark.parametrize(
    "function", ["nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"]
)
@pytest.mark.timed
def test_a_first_call_that_hangs_delays_nothing_and_is_not_mistaken_for_no_gpu(
    tmp_path: Path, function: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _HANGS, str(library_build.nvml_path())],
        env={
            **os.environ,
            "SIMGPU_STATE": str(tmp_path / "state"),
            "SIMGPU_NVML_FAULT": f"hang:{function}:60000",
        },
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
    )
    told = json.loads(result.stdout)
    assert told["made_s"] < 5
    assert told["gpus"] == []
    assert "NVML does not answer" in told["error"]
