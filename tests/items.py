"""Synthetic items: what a live source would yield, with every number known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probes import api
from probes.schema import ALIASED, CallFlag, Kind, OffFlag, Records, empty, join
from probes.source import APIS, GPUS, MARK, NAMES, OPEN, PROCESS, Sample

SECOND = 1_000_000_000
MS = 1_000_000
START = 1_000 * SECOND

HEADER: dict[str, Any] = {
    "start_ns": START,
    "rate_hz": 4.0,
    "clock": {"monotonic_ns": START, "realtime_ns": 1_700_000_000 * SECOND, "utc_offset_s": 3600},
    "driver": "1.2.3",
}


def call(
    t_end: int, duration: int, op: str = "cudaLaunchKernel", *, pid: int = 10, tid: int = 10, **more: int
) -> Records:
    """One finished call."""
    record = empty(1)
    nested = CallFlag.NESTED if more.pop("nested", 0) else 0
    for name, value in {
        "t_end": t_end,
        "duration": duration,
        "pid": pid,
        "tid": tid,
        "op": api.OP_OF[op],
        "kind": Kind.CALL,
        "flags": nested,
        **more,
    }.items():
        record[name] = value
    return record


def off(t_end: int, blocked: int, runnable: int, *, pid: int = 10, tid: int = 10, **more: int) -> Records:
    """One stay off the CPU: blocked, then queued."""
    record = empty(1)
    row = record.view(ALIASED)
    forced = OffFlag.INVOLUNTARY | OffFlag.QUEUED if more.pop("involuntary", 0) else 0
    for name, value in {
        "t_end": t_end,
        "duration": blocked + runnable,
        "runnable": runnable,
        "pid": pid,
        "tid": tid,
        "kind": Kind.OFFCPU,
        "flags": forced,
        **more,
    }.items():
        row[name] = value
    return record


def event(kind: Kind, t_end: int, *, pid: int = 10, tid: int = 10, **more: Any) -> Records:
    """Any other record."""
    record = empty(1)
    row = record.view(ALIASED)
    for name, value in {"t_end": t_end, "pid": pid, "tid": tid, "kind": kind, **more}.items():
        row[name] = value
    return record


def joined(records: Sequence[Records]) -> Records:
    """One batch."""
    return join([empty(0), *records])


def apis() -> Sample:
    """The API table."""
    return Sample(APIS, START, {"rows": [[row.name, row.layer, row.group] for row in api.BY_OP]})


def process(pid: int, time_ns: int = START, **more: Any) -> Sample:
    """Facts of a watched process."""
    facts = {"pid": pid, "name": f"process{pid}", "command": "", "user": "me", "watched": True}
    return Sample(PROCESS, time_ns, {**facts, "seen_ns": time_ns, "exited_ns": None, **more})


def names(time_ns: int, rows: dict[int, str], pid: int = 10) -> Sample:
    """Thread names."""
    return Sample(NAMES, time_ns, {"tid": list(rows), "pid": [pid] * len(rows), "name": list(rows.values())})


def still_open(time_ns: int, rows: Sequence[dict[str, int]]) -> Sample:
    """Watched threads at a mark."""
    keys = {
        "pid": 10,
        "tid": 10,
        "off_since": 0,
        "queued_since": 0,
        "queue_cpu": 0,
        "op": -1,
        "call_since": 0,
    }
    return Sample(OPEN, time_ns, {key: [row.get(key, value) for row in rows] for key, value in keys.items()})


def gpus(time_ns: int, utilization: int, pids: Sequence[int] = ()) -> Sample:
    """One GPU."""
    row = {
        "index": 0,
        "name": "GPU",
        "uuid": "u",
        "utilization_percent": utilization,
        "processes": [[pid, 1 << 20] for pid in pids],
        "unavailable": {"fan_percent": "not offered by this GPU"},
    }
    return Sample(GPUS, time_ns, {"driver": "1.2.3", "gpus": [row], "error": ""})


def mark(number: int, time_ns: int, **lost: int) -> Sample:
    """The end of a tick."""
    data = {
        "number": number,
        "wall_ns": 1_700_000_000 * SECOND + time_ns - START + 7,
        "lost": lost,
        "begun": 0,
        "read": 0,
        "own_cpu_percent": 1.5,
        "own_rss_bytes": 100,
    }
    return Sample(MARK, time_ns, data)
