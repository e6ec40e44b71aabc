"""nvitop, which knows nothing of the simulation, runs on it and shows what gputop's GPU pane shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.simgpu import library_build
from tests.conftest import skip_or_fail
from tests.gpu_rows_support import ROOT
from tests.simgpu_programs.harness import Bench
from tests.waiting import HANGS_S, until_good

# what the two look at is regular where it gets its CPU in time
pytestmark = pytest.mark.timed
SETTINGS = {
    "SIMGPU_DEVICES": "3",
    "SIMGPU_NVML_FAULT": "ecc:3:1@0,encoder:20@0,mig:2@1,lost:2,throttle:0x4:900@0",
}
# both in one process, as it can load one NVML library only: gputop's thread first, then nvitop at once
_BOTH = """
import json, sys, time
from pathlib import Path
from probes.nvml.nvml import NvmlSampler
from gputop.engine.facts import Facts
from gputop.documents.fields import document
from gputop.engine.gpus.nvml_rows import gpu_rows
sampler = NvmlSampler(0.1, Path(sys.argv[1]))
sampler.wait_complete(10)
from nvitop import Device
time.sleep(0.3)
def figures(device):
    snapshot = device.as_snapshot()
    return {key: getattr(snapshot, key) for key in device.SNAPSHOT_KEYS} | {
        "processes": {pid: one.gpu_memory() for pid, one in device.processes().items()},
        "sm": [one.gpu_sm_utilization() for one in device.processes().values()],
        "instances": [one.as_snapshot().memory_info for one in device.mig_devices()]}
theirs = [figures(device) for device in Device.all()]
sample = sampler.latest()
ours = [document(row) for row in gpu_rows(sample, {}, sample.time_ns, Facts())]
print(json.dumps([theirs, ours], default=str))
sampler.close()
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A machine with one GPU at work, one that is cut and one that is lost."""
    try:
        import nvitop  # noqa: F401
    except ImportError:
        skip_or_fail("nvitop not found: pip install nvitop")
    machine = Bench(tmp_path_factory.mktemp("nvitop"))
    with machine.half_busy(megabytes=1024, SIMGPU_DEVICES="3"):
        yield machine


def run(bench: Bench, *command: str) -> subprocess.CompletedProcess[str]:
    """A program on the simulated GPUs."""
    env = bench.env | SETTINGS | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANGS_S, check=False)


def figures(bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """nvitop's and ours, of each GPU."""
    done = run(bench, sys.executable, "-c", _BOTH, str(library_build.nvml_path()))
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout)
    return theirs, ours


@pytest.fixture(scope="module")
def both(bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """They look one behind the other, and the machine may stand still meanwhile: they look again then."""
    return until_good(lambda: figures(bench), agree)


def test_its_screen_comes_without_an_error(bench: Bench) -> None:
    nvitop = Path(sys.executable).with_name("nvitop")
    done = run(bench, str(nvitop), "--once")
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("SimGPU 80GB", "1280MiB / 80.00GiB", "/ 700W", "3g.40gb @ GI/CI: 1/0", "GPU is Lost"):
        assert text in done.stdout


HALF = pytest.approx(50, abs=20)
PAIRS = (  # nvitop's name, gputop's name, what one of nvitop's is worth
    ("uuid", "uuid", None),
    ("bus_id", "pci_bus_id", None),
    ("memory_used", "memory_used_bytes", 1),
    ("memory_total", "memory_total_bytes", 1),
    ("power_limit", "power_limit_milliwatts", 1),
    ("encoder_utilization", "encoder_percent", 1),
    ("decoder_utilization", "decoder_percent", 1),
    ("sm_clock", "sm_clock_mhz", 1),
    ("memory_clock", "memory_clock_mhz", 1),
    ("total_volatile_uncorrected_ecc_errors", "ecc_uncorrected_errors", 1),
    ("pcie_tx_throughput", "pcie_tx_bytes_per_second", 1024),
)


def worth(value: Any, unit: int | None) -> Any:
    """A figure of nvitop's as gputop has it."""
    if value == "N/A":
        return None
    return value if unit is None else int(value) * unit


def moving(their: dict[str, Any]) -> dict[str, Any]:
    """What gputop may say of a GPU when nvitop has said that."""
    near = {"gpu_utilization": "utilization_percent", "temperature": "temperature_celsius"}
    found: dict[str, Any] = {
        our_key: pytest.approx(worth(their[their_key], 1), abs=15)
        for their_key, our_key in (near | {"fan_speed": "fan_percent"}).items()
    }
    return found | {"power_milliwatts": pytest.approx(worth(their["power_usage"], 1), rel=0.25)}


def shares(their: dict[str, Any]) -> list[Any]:
    """What gputop may say of the use of each process."""
    return [pytest.approx(share, abs=20) for share in their["sm"]]


def agree(found: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> bool:
    """Whether all figures of time that the tests below compare are alike, and the first GPU is half busy."""
    theirs, ours = found
    return (
        all(
            our[our_key] == worth(their[their_key], unit)
            for their, our in zip(theirs[:2], ours[:2], strict=True)
            for their_key, our_key, unit in PAIRS
        )
        and all(ours[0][key] == value for key, value in moving(theirs[0]).items())
        and [one["sm_percent"] for one in ours[0]["processes"]] == shares(theirs[0])
        and ours[0]["utilization_percent"] == HALF
    )


def test_the_modes_and_versions_are_the_same(bench: Bench, both: Any) -> None:
    for their, our in list(zip(*both, strict=True))[:2]:
        assert our["compute_mode"] == their["compute_mode"].lower()
        assert our["persistence_enabled"] == (their["persistence_mode"] == "Enabled")
    head = run(bench, str(Path(sys.executable).with_name("nvitop")), "--once").stdout
    done = run(bench, sys.executable, "-m", "gputop", "--simgpu", "--once", "--json")
    frame = json.loads(done.stdout)
    for name, version in (("Driver", frame["driver"]), ("CUDA Driver", frame["cuda"])):
        assert version
        assert f"{name} Version: {version}" in head


@pytest.mark.parametrize(("their_key", "our_key", "unit"), PAIRS, ids=[pair[1] for pair in PAIRS])
def test_what_does_not_move_is_the_same(both: Any, their_key: str, our_key: str, unit: int | None) -> None:
    for their, our in list(zip(*both, strict=True))[:2]:
        assert our[our_key] == worth(their[their_key], unit)
        assert our[our_key] is not None or our["unavailable"][our_key]


def test_what_moves_is_about_the_same(both: Any) -> None:
    their, our = both[0][0], both[1][0]
    expected = moving(their)
    assert {key: our[key] for key in expected} == expected
    assert our["utilization_percent"] == HALF


def test_the_same_processes_hold_the_same_memory(both: Any) -> None:
    their, our = both[0][0], both[1][0]
    assert {str(one["pid"]): one["memory_bytes"] for one in our["processes"]} == their["processes"]
    assert [one["sm_percent"] for one in our["processes"]] == shares(their)


def test_the_same_instances_and_the_same_loss(both: Any) -> None:
    theirs, ours = both
    assert [row["mig_enabled"] for row in ours[:2]] == [False, True]
    assert [row["mig_mode"] for row in theirs[:2]] == ["Disabled", "Enabled"]
    assert len(theirs[1]["instances"]) == len(ours[1]["mig"]) == 2
    assert ours[2]["lost"] == "the GPU is lost"
    assert ours[2]["power_milliwatts"] is None
