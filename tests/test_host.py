"""The machine's figures are its kernel's, a process's share of GPUs is NVML's, its memory is /proc's."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.engine.frame_json import frame_to_json
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import UserView
from gputop.ui.model.gpus.host_line import host_spans
from gputop.ui.model.look import UNICODE, plain
from probes.nvml import nvml_processes
from probes.proc.host import LOOK_NS, HostFigures
from probes.proc.resident import ResidentMemory
from probes.source import GPUS, HOST, MARK, PROCESS, RESIDENT, Sample
from tests import fake_frames as fake
from tests.waiting import until_good

START = 1_000_000_000
S = 1_000_000_000


def procfs(folder: Path, second: int) -> Path:
    """A /proc of two CPUs after so many seconds: one half busy, one idle."""
    for part in ("pressure", "net", "class/block/sda1", "class/hwmon/hwmon0", "class/hwmon/hwmon1"):
        (folder / part).mkdir(exist_ok=True, parents=True)
    (folder / "class" / "block" / "sda1" / "partition").write_text("1\n")
    for name, number, label, heat in (("nvme", 0, "Package id 0", 90), ("k10temp", 1, "Tctl", 61)):
        sensor = folder / "class" / "hwmon" / f"hwmon{number}"
        (sensor / "name").write_text(f"{name}\n")
        (sensor / "temp3_label").write_text(f"{label}\n")
        (sensor / "temp3_input").write_text(f"{heat}500\n")
    (folder / "cpuinfo").write_text("processor: 0\nmodel name\t: X\ncpu MHz\t\t: 2596.122\ncpu MHz\t: 1.0\n")
    busy, idle = 50 * second, 50 * second
    cores = f"cpu0 {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu1 0 0 0 {100 * second} 0 0 0 0 0 0\n"
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle + 100 * second} 0 0 0 0 0 0\n{cores}intr 5\n")
    (folder / "loadavg").write_text("1.50 0.75 0.25 1/200 4242\n")
    (folder / "meminfo").write_text(
        "MemTotal: 1024 kB\nMemFree: 32 kB\nMemAvailable: 256 kB\nCached: 64 kB\n"
        "SwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    (folder / "uptime").write_text("183000.42 7.1\n")
    for what, share in (("cpu", 0.25), ("memory", 0.0), ("io", 0.5)):
        total = int(second * share * 1_000_000)
        (folder / "pressure" / what).write_text(f"some avg10=99 avg60=0 avg300=0 total={total}\n")
    disk = [
        f"8 {part} {name} 0 0 {1000 * second} 0 0 0 {10 * second} 0 0 {(300 + 200 * part) * second}"
        for part, name in enumerate(("sda", "sda1"))
    ]
    (folder / "diskstats").write_text("\n".join(disk) + "\n")
    lines = [f"{name}: {512 * second} 0 0 0 0 0 0 0 {256 * second} 0" for name in ("lo", "eth0")]
    (folder / "net" / "dev").write_text("\n".join(("Inter-|", " face |", *lines)) + "\n")
    return folder


def told(folder: Path) -> dict[str, object]:
    seen = HostFigures(START, procfs(folder, 1), folder)
    procfs(folder, 2)
    (sample,) = seen.samples(START + S)
    assert list(seen.samples(START + S + LOOK_NS - 1)) == []
    return sample.data


def test_figures_of_the_machine_are_of_the_second_before(tmp_path: Path) -> None:
    assert told(tmp_path) == {
        "cores_percent": [50.0, 0.0],
        "load": [1.5, 0.75, 0.25],
        "memory_total_bytes": 1 << 20,
        "memory_available_bytes": 256 << 10,
        "memory_free_bytes": 32 << 10,
        "memory_cached_bytes": 64 << 10,
        "threads": 200,
        "cpu_mhz": 2596,
        "cpu_temperature_celsius": 61,
        "uptime_s": 183_000,
        "swap_total_bytes": 0,
        "swap_free_bytes": 0,
        "pressure_cpu_percent": 25.0,
        "pressure_memory_percent": 0.0,
        "pressure_io_percent": 50.0,
        "disk_read_bytes_per_second": 512_000,
        "disk_write_bytes_per_second": 5_120,
        "disk_busy_percent": 30.0,
        "received_bytes_per_second": 512,
        "sent_bytes_per_second": 256,
        "received_bytes": 1024,
        "sent_bytes": 512,
    }


def test_what_a_kernel_does_not_report_has_no_key_and_is_null(tmp_path: Path) -> None:
    seen = HostFigures(START, tmp_path, tmp_path)
    (sample,) = seen.samples(START + S)
    assert sample.data == {}
    row = frame_of(sample).host
    assert row is not None
    assert (row.cpu_percent, row.memory_total_bytes, row.load) == (None, None, ())
    assert plain(host_spans(row, 80, UNICODE)) == ""


def test_processes_are_counted_as_proc_lists_them() -> None:
    """Without a look at each: by the links of its folder."""

    def listed() -> int:
        return sum(entry.isdigit() for entry in os.listdir("/proc"))

    def near() -> bool:
        (sample,) = HostFigures(0).samples(S)
        return abs(int(str(sample.data["processes"])) - listed()) <= 2  # others come and go

    assert until_good(near, bool)


CLOCK = {"monotonic_ns": 0, "boottime_ns": 0, "realtime_ns": 0, "utc_offset_s": 0}
GPU = {
    "index": 0,
    "name": "H100",
    "processes": [[7, 1 << 30]],
    "clients": [{"pid": 7, "type": "C", "memory_bytes": 1 << 30, "gpu_instance": None}],
    "process_utilization": {
        "pid": [7], "sm_percent": [40], "memory_percent": [10],
        "encoder_percent": [0], "decoder_percent": [0],
    },
}  # fmt: skip


def frame_of(*samples: Sample, gpus: tuple[dict[str, object], ...] = (), age_ns: int = 0) -> Frame:
    """The frame two seconds after the start, with one process that began a second before it."""
    engine = Engine({"clock": CLOCK, "start_ns": START})
    at = START + 2 * S
    facts = {"pid": 7, "watched": True, "start_ns": START - S, "seen_ns": START, "exited_ns": None}
    engine.feed(Sample(PROCESS, START, facts))
    engine.feed(Sample(GPUS, at, {"gpus": list(gpus)}))
    for sample in samples:
        engine.feed(replace(sample, time_ns=at - age_ns))
    engine.feed(Sample(MARK, at, {"number": 1, "wall_ns": at}))
    return engine.frame()


def test_a_process_has_its_share_of_gpus_its_memory_and_its_run_time() -> None:
    size = Sample(RESIDENT, 0, {"pid": [7], "rss_bytes": [5 << 20]})
    (row,) = frame_of(size, gpus=(GPU, {**GPU, "index": 1})).processes
    assert (row.sm_percent, row.memory_percent) == (80, 20), "the sum over its GPUs"
    assert row.rss_bytes == 5 << 20
    assert row.run_ns == 3 * S
    made = frame_to_json(frame_of(size, gpus=(GPU,)))["processes"][0]
    assert (made["sm_percent"], made["memory_percent"]) == (40, 10)
    assert (made["rss_bytes"], made["run_ns"]) == (5 << 20, 3 * S)


def test_what_is_not_known_of_a_process_is_none_and_never_zero() -> None:
    silent = {**GPU, "process_utilization": None}
    (row,) = frame_of(gpus=(silent,)).processes
    assert (row.sm_percent, row.memory_percent, row.rss_bytes) == (None, None, None)
    old = Sample(RESIDENT, 0, {"pid": [7], "rss_bytes": [5 << 20]})
    frame = frame_of(old, Sample(HOST, 0, {"load": [1.0]}), age_ns=2 * S + 1)
    assert frame.processes[0].rss_bytes is None, "older than two seconds"
    assert frame.host is None


def test_users_of_a_daemon_see_the_memory_of_their_own_processes_only() -> None:
    owners = Owners()
    for pid, uid in ((7, 1000), (8, 1001)):
        owners.consume(Sample(PROCESS, START, {"pid": pid, "uid": uid, "watched": True, "start_ns": 1}))
    view = UserView(1000, owners)
    (shown,) = view.sample(Sample(RESIDENT, START, {"pid": [7, 8], "rss_bytes": [1, 2]}))
    assert shown.data == {"pid": [7], "rss_bytes": [1]}
    (host,) = view.sample(Sample(HOST, START, {"load": [1.0]}))
    assert host.data == {"load": [1.0]}


def test_own_resident_memory_is_what_the_kernel_says() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    (sample,) = ResidentMemory().samples([os.getpid()], START)
    kernel = int(Path("/proc/self/statm").read_text().split()[1]) * page
    assert sample.data["pid"] == [os.getpid()]
    assert abs(sample.data["rss_bytes"][0] - kernel) < 8 << 20
    assert list(ResidentMemory().samples([1 << 22], START)) == [], "no such process"


class Sampler:
    """An NVML that samples a busy process every so many microseconds."""

    def __init__(self, every_us: int) -> None:
        self.every_us, self.now_us = every_us, 1_000_000_000

    def asked(self, _gpu: object, since_us: int) -> list[object]:
        first = self.now_us // self.every_us * self.every_us
        times = [at for at in (first, first - self.every_us) if at > since_us]
        return [
            SimpleNamespace(pid=7, timeStamp=at, smUtil=50, memUtil=5, encUtil=0, decUtil=0) for at in times
        ]


@pytest.mark.parametrize("every_us", [166_667, 1_000_000, 2_000_000, 3_000_000])
def test_a_process_that_is_always_busy_is_never_idle_between_two_samples(
    every_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, use, told = Sampler(every_us), nvml_processes.ProcessUse(), []
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", driver.asked)
    monkeypatch.setattr(nvml_processes.time, "time_ns", lambda: driver.now_us * 1000)
    for _ in range(80):
        driver.now_us += 250_000
        told.append(7 in use.read(object()))
    settled = told[3 * every_us // 250_000 + 8 :]
    assert settled.count(True) == len(settled) > 0


def test_the_newer_query_answers_where_the_older_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    driver = Sampler(500_000)
    monkeypatch.setattr(nvml_processes.time, "time_ns", lambda: driver.now_us * 1000)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", refuse)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessesUtilizationInfo", driver.asked)
    assert nvml_processes.ProcessUse().read(object())[7]["sm_percent"] == 50
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessesUtilizationInfo", refuse)
    with pytest.raises(pynvml.NVMLError):
        nvml_processes.ProcessUse().read(object())


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_the_host_line_leaves_figures_out_whole(width: int) -> None:
    line = plain(host_spans(fake.host(), width, UNICODE))
    assert len(line) <= width
    whole = plain(host_spans(fake.host(), 400, UNICODE))
    assert all(part in whole for part in line.split("  "))
    assert "CPU" in line
    assert whole.endswith("  cached 48.0G  up 50h50m  on gpu-box")
    assert "processes 412  AMD EPYC 9654 3.7GHz 61°C" in whole
    unknown = replace(fake.host(), memory_cached_bytes=None, uptime_s=None, name="")
    assert not re.search("cached|up|on ", plain(host_spans(unknown, 400, UNICODE)))
    if width >= 80:
        assert all(word in line for word in ("load 6.4", "mem 65.0G/256G", "pressure cpu 12 io 2 %"))
        assert "net ↓12.0M ↑1.0M/s" in line
    calm = replace(fake.host(), pressure_cpu_percent=0.0, pressure_io_percent=0.0)
    assert "pressure 0 %" in plain(host_spans(calm, 400, UNICODE))
