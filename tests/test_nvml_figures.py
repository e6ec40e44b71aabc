"""Every figure of a GPU, or why it is not to be had; what is slow to ask delays nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from probes.nvml import nvml_gpm
from probes.nvml.nvml_errors import RefusalError
from probes.nvml.nvml_gpu import QUESTIONS, GpuReader
from tests.gpu_rows_support import all_rows, ask
from tests.waiting import until_good

ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")


def test_a_gpu_that_offers_everything_has_every_figure(tmp_path: Path) -> None:
    settings = {"SIMGPU_NVML_FAULT": "ecc:3:1,encoder:20,decoder:5", "SIMGPU_DEVICES": "2"}
    row = all_rows(tmp_path, **settings)[0]
    assert row["unavailable"] == {}
    assert [key for key, value in row.items() if value is None] == []
    assert (row["ecc_corrected_errors"], row["ecc_uncorrected_errors"]) == (3, 1)
    assert (row["encoder_percent"], row["decoder_percent"], row["fan_percent"]) == (20, 5, 30)
    assert (row["pcie_generation"], row["pcie_width"], row["performance_state"]) == (5, 16, 8)
    assert (row["sm_clock_mhz"], row["sm_clock_max_mhz"]) == (345, 1980)
    assert (row["multiprocessors"], row["multiprocessor_threads"]) == (132, 2048)
    assert row["pci_bus_id"] == "00000000:10:00.0"
    assert (row["mig_enabled"], row["mig"], row["clients"]) == (False, [], [])


REFUSALS = (  # each of another GPU
    ("notsupported:nvmlDeviceGetFanSpeed", ("fan_percent",), "not offered by this GPU"),
    ("nopermission:nvmlDeviceGetProcessUtilization", ("process_utilization",), "not permitted for this user"),
    ("error:nvmlDeviceGetTemperature:999", ("temperature_celsius",), "NVML reports an unknown error"),
    (
        "error:nvmlDeviceGetMemoryInfo:13",
        ("memory_used_bytes", "memory_total_bytes"),
        "not offered by this driver",
    ),
    ("notsupported:nvmlGpmQueryDeviceSupport", ACTIVITY, "offered from the Hopper generation on (GPM)"),
    ("nopermission:nvmlGpmSampleGet", ACTIVITY, "not permitted for this user"),
    ("notsupported:nvmlDeviceGetEccMode", ("ecc_uncorrected_errors",), "not offered by this GPU"),
    ("notsupported:nvmlDeviceGetFieldValues", ("nvlink_tx_bytes_per_second",), "not offered by this GPU"),
)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Eight GPUs with a fault each."""
    faults = ",".join(f"{fault}@{index}" for index, (fault, _, _) in enumerate(REFUSALS))
    return all_rows(tmp_path_factory.mktemp("gpus"), SIMGPU_NVML_FAULT=faults, SIMGPU_DEVICES="8")


@pytest.mark.parametrize("index", range(len(REFUSALS)), ids=[fault for fault, _, _ in REFUSALS])
def test_a_refusal_holds_for_its_gpu_and_its_figures_alone(refused: Any, index: int) -> None:
    _, keys, reason = REFUSALS[index]
    for key in keys:
        assert refused[index][key] is None
        assert refused[index]["unavailable"][key] == reason
        for other, (_, others, _) in enumerate(REFUSALS):
            assert refused[other][key] is not None or key in others
    assert refused[index]["utilization_percent"] == 0


def test_without_another_gpu_there_is_no_nvlink_and_that_is_reported(tmp_path: Path) -> None:
    (row,) = all_rows(tmp_path)
    assert row["nvlink_tx_bytes_per_second"] is None
    assert row["unavailable"]["nvlink_tx_bytes_per_second"] == "no NVLink on this GPU, or none in use"


@pytest.mark.parametrize("fault", ["lost:1", "error:nvmlDeviceGetPowerUsage:15@1"])
def test_a_lost_gpu_says_so_and_leaves_the_others(tmp_path: Path, fault: str) -> None:
    rows, error = ask(
        tmp_path,
        "print(json.dumps([rows(), sampler.latest().data['error']]))",
        SIMGPU_NVML_FAULT=fault,
        SIMGPU_DEVICES="3",
    )
    assert [row["lost"] for row in rows] == ["", "the GPU is lost", ""]
    assert rows[1]["utilization_percent"] is None
    assert rows[1]["processes"] is None
    assert set(rows[1]["unavailable"].values()) <= {"the GPU is lost", "not queried yet"}
    assert [row["utilization_percent"] for row in rows[::2]] == [0, 0]
    assert error == "GPU 1: the GPU is lost. See dmesg | grep -i xid; reset it or reboot."


def test_a_gpu_that_is_lost_later_keeps_its_name_and_may_come_back(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text("")
    before, lost, after = ask(
        tmp_path,
        f"f = Path({str(fault)!r}); r = [rows()[0]]\n"
        "for text in ('lost:0', ''):\n"
        "    f.write_text(text); until(lambda: bool(rows()[0]['lost']) == bool(text)); rounds(2)\n"
        "    r.append(rows()[0])\n"
        "print(json.dumps([[x['name'], x['uuid'], x['lost'], x['power_milliwatts']] for x in r]))",
        SIMGPU_NVML_FAULT_FILE=str(fault),
    )
    assert before == after
    assert lost == [*before[:2], "the GPU is lost", None]


def test_the_instances_of_a_gpu_and_what_it_no_longer_shows(tmp_path: Path) -> None:
    row = ask(
        tmp_path,
        "until(lambda: [one for one in rows()[0]['mig'] or () if one['sm_active_percent'] is not None])\n"
        "print(json.dumps(rows()[0]))",
        SIMGPU_NVML_FAULT="mig:3",
        SIMGPU_MEMORY_MIB="81920",
    )
    assert row["mig_enabled"] is True
    assert [(one["gpu_instance"], one["multiprocessors"]) for one in row["mig"]] == [
        (3, 32),
        (4, 32),
        (5, 32),
    ]
    assert {one["memory_total_bytes"] for one in row["mig"]} == {20 << 30}
    assert [one["sm_active_percent"] for one in row["mig"]] == [0, 0, 0]
    assert all(one["name"].endswith("MIG 2g.20gb") and one["uuid"].startswith("MIG-") for one in row["mig"])
    assert row["utilization_percent"] is None
    reason = "not offered while the GPU is cut into instances (MIG)"
    assert {row["unavailable"][key] for key in ("utilization_percent", "encoder_percent")} == {reason}


def test_slow_questions_leave_the_others_their_rate(tmp_path: Path) -> None:
    """Eight GPUs without GPM: each of 16 PCIe figures takes the driver 20 ms, 0.32 s together."""

    def usual_gap_ms() -> float:
        gap_ns, pcie = ask(
            tmp_path,
            "seen = set()\n"
            "until(lambda: seen.add(sampler.latest().time_ns) or len(seen) > 11)\n"
            "times = sorted(seen); gaps = sorted(b - a for a, b in zip(times, times[1:]))\n"
            "print(json.dumps([gaps[len(gaps) // 2], [r['pcie_tx_bytes_per_second'] for r in rows()]]))",
            interval_s=0.1,
            SIMGPU_NVML_FAULT="notsupported:nvmlGpmQueryDeviceSupport",
            SIMGPU_DEVICES="8",
        )
        assert pcie == [0] * 8
        return float(gap_ns) / 1e6

    assert until_good(usual_gap_ms, lambda gap: gap < 200) < 200, "half of the samples come when they should"


def test_where_gpm_counts_pcie_the_call_that_blocks_is_not_made(tmp_path: Path) -> None:
    settings = {"SIMGPU_NVML_FAULT": "notsupported:nvmlDeviceGetPcieThroughput"}
    assert all_rows(tmp_path, **settings)[0]["pcie_rx_bytes_per_second"] == 0
    settings["SIMGPU_NVML_FAULT"] += ",notsupported:nvmlGpmQueryDeviceSupport"
    assert all_rows(tmp_path, **settings)[0]["pcie_rx_bytes_per_second"] is None


def test_samples_of_gpm_are_at_least_a_tenth_of_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often is asked; in between the newest answer holds."""
    clock, taken = [100.0], []
    monkeypatch.setattr(nvml_gpm, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(
        nvml_gpm, "metrics_between", lambda before, after: {"sm_active_percent": float(len(taken))}
    )
    for name in ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc"):
        monkeypatch.setattr(pynvml, name, lambda *_: SimpleNamespace(isSupportedDevice=1))
    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", lambda _, sample: taken.append(clock[0]))
    meter = nvml_gpm.GpmMeter()
    with pytest.raises(RefusalError, match="two samples"):
        meter.read(None)
    values = []
    for _ in range(20):
        clock[0] += 0.03
        values.append(meter.read(None)["sm_active_percent"])
    assert len(taken) == 1 + 5
    assert values == sorted(values)


@pytest.mark.parametrize(
    ("capability", "cores", "multiprocessors"),  # as NVIDIA's data sheets have both
    [
        ((7, 0), 5120, 80),  # V100
        ((7, 5), 2560, 40),  # T4
        ((8, 0), 6912, 108),  # A100
        ((8, 6), 10752, 84),  # A40
        ((8, 9), 16384, 128),  # RTX 4090
        ((9, 0), 16896, 132),  # H100 SXM, H200
        ((12, 0), 21760, 170),  # RTX 5090
    ],
)
def test_multiprocessors_follow_from_cores_and_capability(
    capability: tuple[int, int], cores: int, multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", lambda _handle: list(capability))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNumGpuCores", lambda _handle: cores)
    (question,) = [one for one in QUESTIONS if "multiprocessors" in one.keys]
    assert question.query(GpuReader(0))[0] == multiprocessors


def test_of_a_newer_capability_multiprocessors_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", lambda _handle: [99, 0])
    (question,) = [one for one in QUESTIONS if "multiprocessors" in one.keys]
    with pytest.raises(RefusalError, match=r"compute capability 99\.0 is newer than this gputop"):
        question.query(GpuReader(0))
