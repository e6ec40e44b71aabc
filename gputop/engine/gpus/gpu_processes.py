"""The processes on a GPU, watched ones and others, with their metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gputop.engine.facts import Facts
from gputop.engine.frame import GpuProcess, GpuRow
from probes.samples import GpuData

_USE = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")
_Use = dict[str, int | None]
Use = tuple[int | None, int | None]  # of SMs, of memory, in percent


def gpu_processes(row: GpuData, facts: Facts, time_ns: int = 0) -> tuple[GpuProcess, ...] | None:
    """Return the processes that NVML lists on a GPU, most memory first; None without a list."""
    clients = row.get("clients")
    if not isinstance(clients, list):
        return _of_old_recording(row, facts)
    use = use_by_pid(row.get("process_utilization"))
    idle: _Use = dict.fromkeys(_USE, 0 if use is not None else None)
    found = [
        _process(client, (use or {}).get(int(client["pid"]), idle), facts, time_ns) for client in clients
    ]
    return tuple(sorted(found, key=lambda process: -(process.memory_bytes or 0)))


def use_of(gpus: Iterable[GpuRow]) -> dict[int, Use]:
    """Return by pid the shares of a process, summed over its GPUs."""
    sums: dict[int, Use] = {}
    for gpu in gpus:
        for one in gpu.processes or ():
            before = sums.get(one.pid, (None, None))
            sums[one.pid] = _plus(before[0], one.sm_percent), _plus(before[1], one.memory_percent)
    return sums


def watts_of(gpus: Iterable[GpuRow]) -> dict[int, float]:
    """Return by pid its share of the power of its GPUs, by SM time; alone on a GPU it has all of it."""
    watts: dict[int, float] = {}
    for gpu in gpus:
        there = gpu.processes or ()
        used = sum(one.sm_percent or 0 for one in there)
        if gpu.power_milliwatts is None or not (used or len(there) == 1):
            continue
        for one in there:
            part = 1.0 if len(there) == 1 else (one.sm_percent or 0) / used
            watts[one.pid] = watts.get(one.pid, 0.0) + part * gpu.power_milliwatts / 1e3
    return watts


def summed_use(rows: Iterable[GpuData]) -> dict[int, Use]:
    """Return ``use_of`` from NVML's rows: of processes with memory on a GPU, by NVML's numbers."""
    sums: dict[int, Use] = {}
    for row in rows:
        use = use_by_pid(row.get("process_utilization"))
        for client in row.get("clients") or ():
            pid = int(client["pid"])
            one = None if use is None else use.get(pid, dict.fromkeys(_USE, 0))
            before = sums.get(pid, (None, None))
            if one is not None:
                sums[pid] = _plus(before[0], one["sm_percent"]), _plus(before[1], one["memory_percent"])
    return sums


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _of_old_recording(row: GpuData, facts: Facts) -> tuple[GpuProcess, ...] | None:
    entries = row.get("processes")
    if not isinstance(entries, list):
        return None
    unknown: _Use = dict.fromkeys(_USE)
    return tuple(
        _process({"pid": pid, "type": "C", "memory_bytes": size}, unknown, facts) for pid, size in entries
    )


def use_by_pid(columns: Any) -> dict[int, _Use] | None:
    """Return pid -> its shares; None if NVML does not report them."""
    if not isinstance(columns, dict):
        return None
    lists = [columns.get(key, ()) for key in _USE]
    return {
        int(pid): dict(zip(_USE, values, strict=True))
        for pid, *values in zip(columns.get("pid", ()), *lists, strict=False)
    }


def _process(client: dict[str, Any], use: _Use, facts: Facts, time_ns: int = 0) -> GpuProcess:
    pid = _own_number(int(client["pid"]), facts)
    known = facts.of(pid) or {}
    size, instance = client.get("memory_bytes"), client.get("gpu_instance")
    since = client.get("idle_since_ns")
    return GpuProcess(
        pid=pid,
        kind=str(client.get("type", "C")),
        memory_bytes=int(size) if size is not None else None,
        gpu_instance=int(instance) if instance is not None else None,
        name=str(known.get("name", "")),
        user=str(known.get("user", "")),
        command=str(known.get("command", "")),
        container=str(known.get("container", "")),
        watched=bool(known.get("watched")),
        idle_ns=max(time_ns - since, 0) if isinstance(since, int) else None,
        **use,
    )


def _own_number(listed: int, facts: Facts) -> int:
    """The outer number of a process: NVML in a container may list the container's numbers."""
    if facts.of(listed) is not None:
        return listed
    inner = [
        pid
        for pid, known in facts.processes.items()
        if known.get("namespace_pid") == listed and known.get("exited_ns") is None
    ]
    return inner[0] if len(inner) == 1 else listed
