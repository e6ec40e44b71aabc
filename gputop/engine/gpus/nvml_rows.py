"""GPU rows from NVML samples: clocks, capacity, and the reason of each missing figure."""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import Final

from gputop.engine.facts import Facts
from gputop.engine.frame import GpuRow, MigRow
from gputop.engine.gpus.gpu_of import Device
from gputop.engine.gpus.gpu_processes import gpu_processes
from probes.samples import GpuData, listed_gpus
from probes.source import STALE_NS, Sample

UNKNOWN: Final = 0  # some GPU's figures are unknown


def fill_of(sample: Sample) -> int | None:
    """Return the threads that fill the smallest GPU of a ``gpus`` sample; ``UNKNOWN``; None without a GPU.

    A partitioned GPU (MIG) counts as unknown: a process has a part of it only.
    """
    found: int | None = None
    for row in listed_gpus(sample):
        if row.get("lost"):  # has no more data, and was reported before
            continue
        count, each = row.get("multiprocessors"), row.get("multiprocessor_threads")
        known = UNKNOWN
        if isinstance(count, int) and isinstance(each, int) and row.get("mig_enabled") is not True:
            known = max(count * each, 0)
        found = smaller(found, known)
    return found


def smaller(one: int | None, other: int | None) -> int | None:
    """Return the smaller of two; ``UNKNOWN`` if either is, None if neither was reported."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


# Reasons of a GPU's clocks: NVML's bits as text, and those that cost time.

# bits of nvmlClocksEventReasons
_WORDS = {
    0x1: "idle",
    0x2: "set by the user",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake",
    0x100: "display",
}
# A fault, or a limit of cooling or of the supply. A power limit at full load is as it should be.
HELD = 0x8 | 0x20 | 0x40 | 0x80


def words(bits: int) -> tuple[str, ...]:
    """Return the reasons as text; unknown bits by number."""
    known = [text for bit, text in _WORDS.items() if bits & bit]
    unknown = bits & ~sum(_WORDS)
    return (*known, *([f"0x{unknown:x}"] if unknown else []))


def held_down(bits: int | None) -> bool:
    """True if heat or the power supply limits the clocks."""
    return bits is not None and bool(bits & HELD)


# GPU rows from NVML samples: a stale or refused figure becomes `None` with its reason.

History = dict[int, deque[int | None]]

_FIGURES = tuple(field.name for field in fields(GpuRow) if field.type == "int | None")
_SHARES = tuple(field.name for field in fields(GpuRow) if field.type == "float | None")
_OTHERS = (
    "mig_enabled", "compute_mode", "persistence_enabled", "mig", "processes", "process_utilization",
    "pci_bus_id",
)  # fmt: skip
_SHOWN_ELSEWHERE = ("clients", "multiprocessors", "multiprocessor_threads")
_OLD = "not in this recording, which an older gputop made"
_NO_ANSWER = "NVML gave no reason"


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _share(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def of_all_hosts(known: Sample | None, sample: Sample) -> Sample:
    """Return the newest samples of all hosts of a merged recording as one; else the newest sample."""
    host = sample.data.get("host", 0)
    others = [row for row in listed_gpus(known) if row.get("host", 0) != host]
    if known is None or not others:
        return sample
    here = [{**row, "time_ns": sample.time_ns} for row in listed_gpus(sample)]
    rows = [*({"time_ns": known.time_ns, **row} for row in others), *here]
    rows.sort(key=lambda row: int(row.get("index", 0)))
    return Sample(sample.kind, sample.time_ns, {**known.data, **sample.data, "gpus": rows})


def remember(history: History, sample: Sample | None, limit: int) -> None:
    """Append the newest utilisation of each GPU to its history."""
    for row in listed_gpus(sample):
        values = history.setdefault(int(row.get("index", 0)), deque(maxlen=limit))
        values.append(_integer(row.get("utilization_percent")))


def gpu_rows(sample: Sample | None, history: History, mark_ns: int, facts: Facts) -> tuple[GpuRow, ...]:
    """Return a row for each GPU, from the newest sample before the mark."""
    if sample is None:
        return ()
    return tuple(
        _gpu_row(row, history, facts, mark_ns, int(row.get("time_ns", sample.time_ns)))
        for row in listed_gpus(sample)
    )


def _gpu_row(row: GpuData, history: History, facts: Facts, mark_ns: int, time_ns: int) -> GpuRow:
    age_ns = max(mark_ns - time_ns, 0)
    index = int(row.get("index", 0))
    fresh = {} if age_ns > STALE_NS else row
    figures = {key: _integer(fresh.get(key)) for key in _FIGURES}
    shares = {key: _share(fresh.get(key)) for key in _SHARES}
    mode, bits = fresh.get("compute_mode"), figures["clock_event_reasons"]
    return GpuRow(
        index=index,
        uuid=str(row.get("uuid", "")),
        name=str(row.get("name", "")),
        unavailable=tuple(_reasons(row, fresh, age_ns).items()),
        utilization_history=tuple(history.get(index, ())),
        age_ns=age_ns,
        lost=str(row.get("lost", "")),
        pci_bus_id=str(row.get("pci_bus_id") or ""),
        clock_events=None if bits is None else words(bits),
        compute_mode=mode if isinstance(mode, str) else None,
        persistence_enabled=_flag(fresh.get("persistence_enabled")),
        mig_enabled=_flag(fresh.get("mig_enabled")),
        mig=tuple(_mig_row(one) for one in fresh.get("mig") or () if isinstance(one, dict)),
        processes=gpu_processes(fresh, facts, time_ns),
        **figures,
        **shares,  # type: ignore[arg-type]
    )


def _reasons(row: GpuData, fresh: GpuData, age_ns: int) -> dict[str, str]:
    """Key of each unknown figure -> reason."""
    keys = (*_FIGURES, *_SHARES, *_OTHERS)
    absent = str(row.get("absent") or "")
    if fresh is not row:
        return dict.fromkeys(keys, absent or f"NVML has not answered for {age_ns / 1e9:.0f} s")
    reported = {
        str(key): str(reason)
        for key, reason in row.get("unavailable", {}).items()
        if key not in _SHOWN_ELSEWHERE
    }
    missing = {key: _NO_ANSWER if key in row else absent or _OLD for key in keys if row.get(key) is None}
    return {key: reported.get(key, reason) for key, reason in missing.items()} | reported


def _mig_row(row: GpuData) -> MigRow:
    integers = (
        "gpu_instance", "compute_instance", "multiprocessors", "memory_used_bytes", "memory_total_bytes",
    )  # fmt: skip
    return MigRow(
        index=int(row.get("index", 0)),
        uuid=str(row.get("uuid") or ""),
        name=str(row.get("name") or ""),
        unavailable=tuple((str(key), str(reason)) for key, reason in row.get("unavailable", {}).items()),
        **{key: _integer(row.get(key)) for key in integers},
        **{key: _share(row.get(key)) for key in _SHARES},  # type: ignore[arg-type]
    )


def devices(sample: Sample | None) -> list[Device]:
    """Return all GPUs of the newest sample."""
    return [
        Device(
            int(row.get("index", 0)),
            str(row.get("uuid", "")),
            str(row.get("name", "")),
            int(row.get("host", 0)),
        )
        for row in listed_gpus(sample)
    ]


def usage(sample: Sample | None) -> dict[int, dict[int, int]] | None:
    """Return pid -> {GPU index: bytes}; None if NVML reports no processes of any GPU."""
    known = False
    found: dict[int, dict[int, int]] = {}
    for row in listed_gpus(sample):
        entries = row.get("processes")
        if not isinstance(entries, list):
            continue
        known = True
        for pid, used in entries:
            found.setdefault(int(pid), {})[int(row.get("index", 0))] = int(used or 0)
    return found if known else None
