"""The machine's figures at a mark: CPU, load, memory, pressure, disks, network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.samples import sample_data
from probes.source import HOST, RESIDENT, STALE_NS, Sample

SHARES = (
    "pressure_cpu_percent", "pressure_memory_percent", "pressure_io_percent", "disk_busy_percent",
)  # fmt: skip
WHOLE = (
    "memory_total_bytes", "memory_available_bytes", "memory_free_bytes", "memory_cached_bytes",
    "swap_total_bytes", "swap_free_bytes", "disk_read_bytes_per_second", "disk_write_bytes_per_second",
    "received_bytes_per_second", "sent_bytes_per_second", "received_bytes", "sent_bytes",
    "uptime_s", "processes", "threads", "cpu_mhz", "cpu_temperature_celsius",
)  # fmt: skip
_LOADS = 3  # of 1, 5 and 15 minutes


@dataclass(frozen=True, slots=True)
class HostRow:
    """Figures of the machine; in a merged recording of the host that reported last."""

    cpu_model: str  # "" in a merged recording, and of an older gputop
    cpu_percent: float | None  # of all CPUs: 100 is all of them busy
    cores_percent: tuple[float, ...]  # of each CPU
    cpu_mhz: int | None  # of the first CPU
    cpu_temperature_celsius: int | None  # of the hottest
    load: tuple[float, ...]  # of 1, 5 and 15 minutes
    processes: int | None
    threads: int | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    memory_free_bytes: int | None
    memory_cached_bytes: int | None  # of files: freed when a process needs it
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    pressure_cpu_percent: float | None  # PSI: share of the time in which some task waited for it
    pressure_memory_percent: float | None
    pressure_io_percent: float | None
    disk_read_bytes_per_second: int | None
    disk_write_bytes_per_second: int | None
    disk_busy_percent: float | None  # of the busiest disk
    received_bytes_per_second: int | None
    sent_bytes_per_second: int | None
    received_bytes: int | None  # since the machine's start
    sent_bytes: int | None
    uptime_s: int | None
    name: str  # "" in a merged recording


class HostWindow:
    """The newest samples of a machine and of its processes' memory."""

    def __init__(self, name: str = "", cpu_model: str = "") -> None:
        self._names = name, cpu_model
        self._host: Sample | None = None
        self._resident: dict[int, tuple[int, int]] = {}  # pid -> (time, bytes); several parts report in turn
        self._cpu: dict[int, tuple[int, int, float | None]] = {}  # pid -> (time, ns, % since the one before)

    def consume(self, sample: Sample) -> bool:
        """Consume a sample; False for other kinds."""
        if sample.kind == HOST:
            self._host = sample
        elif (resident := sample_data(sample, RESIDENT)) is not None:
            since = sample.time_ns - STALE_NS
            self._resident = {pid: known for pid, known in self._resident.items() if known[0] > since}
            for pid, size in zip(resident.get("pid", ()), resident.get("rss_bytes", ()), strict=False):
                self._resident[int(pid)] = sample.time_ns, int(size)
            self._cpu = {pid: known for pid, known in self._cpu.items() if known[0] > since}
            for pid, ns in zip(resident.get("pid", ()), resident.get("cpu_ns", ()), strict=False):
                if ns is not None:
                    before = self._cpu.get(int(pid))
                    share = _share(before, sample.time_ns, int(ns)) if before is not None else None
                    self._cpu[int(pid)] = sample.time_ns, int(ns), share
        else:
            return False
        return True

    def row(self, mark_ns: int) -> HostRow | None:
        """Return the machine's figures; None where unknown."""
        if self._host is None or mark_ns - self._host.time_ns > STALE_NS:
            return None
        return host_row(self._host.data, *self._names)

    def resident(self, mark_ns: int) -> dict[int, int]:
        """Return pid -> bytes."""
        return {pid: size for pid, (at, size) in self._resident.items() if mark_ns - at <= STALE_NS}

    def cpu_percent(self, mark_ns: int) -> dict[int, float]:
        """Return pid -> CPU share of unwatched processes; 100 is one CPU."""
        return {
            pid: share
            for pid, (at, _ns, share) in self._cpu.items()
            if share is not None and mark_ns - at <= STALE_NS
        }


def _share(before: tuple[int, int, float | None], time_ns: int, ns: int) -> float | None:
    lasted = time_ns - before[0]
    return 100 * (ns - before[1]) / lasted if lasted > 0 and ns >= before[1] else None


def host_row(data: Mapping[str, Any], name: str = "", cpu_model: str = "") -> HostRow:
    """Return the figures of a ``host`` sample, with the names of machine and CPU."""
    cores = tuple(float(one) for one in data.get("cores_percent") or ())
    whole: dict[str, int | None] = {key: None if data.get(key) is None else int(data[key]) for key in WHOLE}
    shares: dict[str, float | None] = {key: _number(data.get(key)) for key in SHARES}
    return HostRow(
        cpu_percent=round(sum(cores) / len(cores), 1) if cores else None,
        cores_percent=cores,
        load=tuple(float(one) for one in data.get("load") or ())[:_LOADS],
        name=name,
        cpu_model=cpu_model,
        **whole,
        **shares,  # type: ignore[arg-type]
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
