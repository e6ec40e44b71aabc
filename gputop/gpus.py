"""GPU rows from NVML samples: what is stale or refused becomes ``None`` with its reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from gputop.frame import GpuRow
from gputop.gpu_of import Device
from probes.source import STALE_NS, Sample

History = dict[int, deque[int | None]]

_FIGURES = (
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_milliwatts",
    "power_limit_milliwatts",
    "temperature_celsius",
    "fan_percent",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
)


def _listed(sample: Sample | None) -> Iterator[dict[str, Any]]:
    rows = sample.data.get("gpus", []) if sample is not None else []
    return (row for row in rows if isinstance(row, dict))


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def remember(history: History, sample: Sample | None, limit: int) -> None:
    """Appends the newest utilisation of each GPU to its history."""
    for row in _listed(sample):
        values = history.setdefault(int(row.get("index", 0)), deque(maxlen=limit))
        values.append(_integer(row.get("utilization_percent")))


def gpu_rows(sample: Sample | None, history: History, mark_ns: int) -> tuple[GpuRow, ...]:
    """One row a GPU, as of the newest sample before the mark."""
    if sample is None:
        return ()
    age_ns = max(mark_ns - sample.time_ns, 0)
    stale = age_ns > STALE_NS
    rows = []
    for row in _listed(sample):
        index = int(row.get("index", 0))
        figures = {key: None if stale else _integer(row.get(key)) for key in _FIGURES}
        reasons = row.get("unavailable", {})
        if stale:
            reasons = dict.fromkeys(_FIGURES, f"NVML has not answered for {age_ns / 1e9:.0f} s")
        rows.append(
            GpuRow(
                index=index,
                uuid=str(row.get("uuid", "")),
                name=str(row.get("name", "")),
                unavailable=tuple((str(key), str(reason)) for key, reason in reasons.items()),
                utilization_history=tuple(history.get(index, ())),
                age_ns=age_ns,
                **figures,
            )
        )
    return tuple(rows)


def devices(sample: Sample | None) -> list[Device]:
    """All GPUs of the newest sample."""
    return [
        Device(int(row.get("index", 0)), str(row.get("uuid", "")), str(row.get("name", "")))
        for row in _listed(sample)
    ]


def usage(sample: Sample | None) -> dict[int, dict[int, int]] | None:
    """pid -> {GPU index: bytes}; None when NVML cannot tell for any GPU."""
    known = False
    found: dict[int, dict[int, int]] = {}
    for row in _listed(sample):
        entries = row.get("processes")
        if not isinstance(entries, list):
            continue
        known = True
        for pid, used in entries:
            found.setdefault(int(pid), {})[int(row.get("index", 0))] = int(used or 0)
    return found if known else None
