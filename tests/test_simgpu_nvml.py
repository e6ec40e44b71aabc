"""A monitor that knows only NVML sees what the simulated workloads do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from gputop.simgpu import read_trace
from tests.simgpu_programs.harness import Bench, figures, patient
from tests.waiting import HANGS_S


def ask(bench: Bench, body: str, **env: str) -> Any:
    """Runs a Python program that uses pynvml in its own process, with no other setting in common."""
    prelude = (
        "import json, time, pynvml as n\nn.nvmlInit()\n"
        "h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "def t(f, *a):\n"
        "    try: return f(*a)\n"
        "    except n.NVMLError as e: return 'error %d' % e.value\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", prelude + body],
        env=bench.env | env,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    ).stdout
    return json.loads(out)


@patient
def test_a_half_busy_device_shows_half(bench: Bench, workload: int) -> None:
    util, pids, used, samples, power, mhz, state, reasons = ask(
        bench,
        "u = n.nvmlDeviceGetUtilizationRates(h).gpu\n"
        "ps = [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h)]\n"
        "s = [(x.pid, x.smUtil) for x in n.nvmlDeviceGetProcessUtilization(h, 0)]\n"
        "print(json.dumps([u, ps, n.nvmlDeviceGetMemoryInfo(h).used, s, n.nvmlDeviceGetPowerUsage(h),\n"
        "  n.nvmlDeviceGetClockInfo(h, 1), n.nvmlDeviceGetPerformanceState(h),\n"
        "  n.nvmlDeviceGetCurrentClocksEventReasons(h)]))",
    )
    with figures():
        assert 42 <= util <= 58
    assert pids == [[workload, used]]
    assert used == (256 + 100) << 20
    assert samples[0][0] == workload
    with figures():
        assert 42 <= samples[0][1] <= 58
        assert power > 200_000
    assert (mhz, state, reasons) == (1755, 0, 0)


def test_a_killed_workload_is_gone(bench: Bench) -> None:
    with bench.half_busy():
        pass
    time.sleep(0.6)
    result = ask(
        bench,
        "print(json.dumps([n.nvmlDeviceGetUtilizationRates(h).gpu, n.nvmlDeviceGetMemoryInfo(h).used,\n"
        "  len(n.nvmlDeviceGetComputeRunningProcesses(h)), n.nvmlDeviceGetPerformanceState(h),\n"
        "  n.nvmlDeviceGetCurrentClocksEventReasons(h)]))",
    )
    assert result == [0, 0, 0, 8, 1]


def test_devices_have_identities(bench: Bench) -> None:
    bench.run("c = Cuda(); c.Free(None)", SIMGPU_DEVICES="2")
    result = ask(
        bench,
        "g = n.nvmlDeviceGetHandleByIndex(1); u = n.nvmlDeviceGetUUID(g)\n"
        "b = n.nvmlDeviceGetPciInfo(g).busId\n"
        "print(json.dumps([n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(g), u.startswith('GPU-'),\n"
        "  n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(u.encode())),\n"
        "  n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(b.encode() if isinstance(b, str) else b)),\n"
        "  t(n.nvmlDeviceGetHandleByIndex, 2), t(n.nvmlDeviceGetFanSpeed, g), t(n.nvmlDeviceGetMigMode, g),\n"
        "  n.nvmlDeviceGetMemoryInfo(g, n.nvmlMemory_v2).total, n.nvmlDeviceGetEncoderUtilization(g)[0]]))",
    )
    assert result == [2, "SimGPU 80GB", True, 1, 1, "error 2", 30, [0, 0], 80 << 30, 0]


@pytest.mark.parametrize(
    ("fault", "body", "expected"),
    [
        ("lost:0", "t(n.nvmlDeviceGetUtilizationRates, h)", "error 15"),
        ("notsupported:nvmlDeviceGetPowerUsage", "t(n.nvmlDeviceGetPowerUsage, h)", "error 3"),
        (
            "nopermission:nvmlDeviceGetComputeRunningProcesses",
            "t(n.nvmlDeviceGetComputeRunningProcesses, h)",
            "error 4",
        ),
        ("notsupported:nvmlDeviceGetPowerUsage", "t(n.nvmlDeviceGetTemperature, h, 0)", 32),
        ("throttle:0x20:600", "t(n.nvmlDeviceGetCurrentClocksEventReasons, h)", 0x20),
    ],
)
def test_faults_begin_while_the_monitor_runs(bench: Bench, fault: str, body: str, expected: object) -> None:
    control = bench.directory / "fault"
    before, during, after = ask(
        bench,
        f"import pathlib\nf = pathlib.Path({str(control)!r}); r = [{body}]\n"
        f"f.write_text({fault!r}); r.append({body}); f.unlink(); r.append({body})\n"
        "print(json.dumps(r, default=str))",
        SIMGPU_NVML_FAULT_FILE=str(control),
    )
    assert during == expected
    assert before == after
    assert str(before).startswith("error") is False


def test_a_function_can_hang(bench: Bench) -> None:
    spent, other, slept = ask(
        bench,
        "def turn():\n"
        "    a = time.monotonic(); n.nvmlDeviceGetUtilizationRates(h); b = time.monotonic()\n"
        "    n.nvmlDeviceGetPowerUsage(h); c = time.monotonic(); time.sleep(0.3)\n"
        "    return b - a, c - b, time.monotonic() - c\n"
        # whoever is kept from its CPU is late now and then: the shortest of three
        "print(json.dumps([min(each) for each in zip(*(turn() for _ in range(3)))]))",
        SIMGPU_NVML_FAULT="hang:nvmlDeviceGetUtilizationRates:300",
    )
    assert 0.3 <= spent < 2 * slept
    assert other < 2 / 3 * slept


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * 3_000_000])
def test_a_broken_state_file_is_not_trusted(bench: Bench, content: bytes) -> None:
    (bench.directory / "state").write_bytes(content)
    result = ask(bench, "print(json.dumps([n.nvmlDeviceGetCount(), n.nvmlDeviceGetUtilizationRates(h).gpu]))")
    assert result == [1, 0]


def test_a_hostile_state_file_is_bounded(bench: Bench) -> None:
    bench.run("c = Cuda(); c.launch(1000)")
    path = bench.directory / "state"
    data = bytearray(path.read_bytes())
    data[8:] = b"\xff" * (len(data) - 8)
    path.write_bytes(data)
    result = ask(
        bench,
        "print(json.dumps([n.nvmlDeviceGetCount(), n.nvmlDeviceGetUtilizationRates(h).gpu,\n"
        "  n.nvmlDeviceGetComputeRunningProcesses(h)]))",
    )
    assert result[0] == 8
    assert result[1] <= 100
    assert result[2] == []


def test_a_state_file_of_another_version_is_begun_anew(bench: Bench) -> None:
    (bench.directory / "state").write_bytes(b"SIMGPU01" + b"\xff" * 40_000_000)
    used, percent, own = bench.run(
        "import pynvml as n\nn.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "c = Cuda(); c.malloc(1 << 20)\n"
        "print(json.dumps([n.nvmlDeviceGetMemoryInfo(h).used, n.nvmlDeviceGetUtilizationRates(h).gpu,\n"
        "  [p.pid == os.getpid() for p in n.nvmlDeviceGetComputeRunningProcesses(h)]]))"
    )
    assert (used, percent, own) == (257 << 20, 0, [True])


def test_nvml_calls_are_counted_with_the_cuda_calls_of_the_process(bench: Bench) -> None:
    bench.run(
        "import pynvml as n\nc = Cuda(); c.launch(1000); n.nvmlInit()\n"
        "for _ in range(3): n.nvmlDeviceGetPowerUsage(n.nvmlDeviceGetHandleByIndex(0))"
    )
    (process,) = bench.processes()
    assert process.calls["nvmlDeviceGetPowerUsage"] == 3
    assert process.calls["cudaLaunchKernel"] == 1


@patient
def test_throttling_begins_and_ends_while_a_workload_runs(bench: Bench) -> None:
    control, trace = bench.directory / "fault", bench.directory / "trace"
    control.write_text("")
    trace.unlink(missing_ok=True)
    settings = {"SIMGPU_NVML_FAULT_FILE": str(control), "SIMGPU_NVML_WINDOW_MS": "100"}
    workload = bench.start(
        "c = Cuda(); s = c.stream(); print('ready', flush=True); t = time.monotonic() - 0.5\n"
        # half a second is queued, so that the GPU is busy while the machine stands still
        "while True: c.launch(4_000_000, s); t += 0.004; time.sleep(max(0, t - time.monotonic()))\n",
        SIMGPU_TRACE=str(trace),
        **settings,
    )
    assert workload.stdout is not None
    assert workload.stdout.readline() == "ready\n"
    seen = ask(
        bench,
        f"import pathlib\nf = pathlib.Path({str(control)!r}); r = []\n"
        "def look():\n"
        "    time.sleep(0.25); ids = [75, 80, 81, 76, 140]\n"
        "    v = n.nvmlDeviceGetFieldValues(h, ids)\n"
        "    r.append([time.monotonic_ns(), n.nvmlDeviceGetClockInfo(h, 1),\n"
        "      n.nvmlDeviceGetCurrentClocksEventReasons(h),\n"
        "      n.nvmlDeviceGetViolationStatus(h, 1).violationTime,\n"
        "      [x.value.ullVal if x.nvmlReturn == 0 else 'error %d' % x.nvmlReturn for x in v]])\n"
        "look(); a = time.monotonic_ns(); f.write_text('throttle:0x40:585'); look(); look()\n"
        "f.write_text(''); b = time.monotonic_ns(); look(); look(); print(json.dumps([r, a, b]))",
        **settings,
    )
    workload.kill()
    workload.wait()
    looks, begin, end = seen
    assert [look[1] for look in looks] == [1755, 585, 585, 1755, 1755]
    assert [look[2] for look in looks] == [0, 0x40, 0x40, 0, 0]
    thermal = [look[3] for look in looks]
    assert thermal[0] == 0
    with figures():
        assert 0 < thermal[1] < thermal[2] <= thermal[3] == thermal[4]
        assert abs(thermal[4] - (end - begin)) < 60_000_000
    for look in looks:
        *counters, boost, other = look[4]
        assert [boost, other] == [0, "error 3"]
        with figures():
            assert all(look[3] - 20_000_000 < counter <= look[3] for counter in counters)
    rows = read_trace(trace).rows
    lasted = rows["end"] - rows["start"]
    throttled = (rows["enqueue"] > begin + 50_000_000) & (rows["enqueue"] < end - 50_000_000)
    free = (rows["enqueue"] < begin) | (rows["enqueue"] > end + 50_000_000)
    assert set(lasted[throttled]) == {12_000_000}
    assert set(lasted[free]) == {4_000_000}
