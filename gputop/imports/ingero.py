"""Traces of Ingero (SQLite): calls by uprobes, time off the CPU without states, block I/O, totals.

``timestamp`` is Unix ns: the entry of a CUDA call, the end of time off the CPU, block I/O or network.
Sources: 1 the CUDA runtime, 3 the host, 4 the CUDA driver, 5 block I/O, 7 the network. There are no streams.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gputop.imports.gathered import FIRST_STACK, GatheredTrace, gpu_facts
from gputop.imports.sqlite_tables import Tables, whole

_RUNTIME, _HOST, _DRIVER, _IO, _NET = 1, 3, 4, 5, 7
_NAMES: Final = {"cudaStreamSync": "cudaStreamSynchronize", "cudaDeviceSync": "cudaDeviceSynchronize"}
_COPIES: Final = frozenset({"cudaMemcpy", "cudaMemcpyAsync", "cuMemcpy", "cuMemcpyAsync"})
_SIZED: Final = _COPIES | {"cudaMalloc", "cudaMallocManaged", "cuMemAlloc", "cuMemAllocManaged"}
_LAUNCHES: Final = frozenset({"cudaLaunchKernel", "cuLaunchKernel"})
_SWITCH, _EXIT = 1, 6
_EVENTS = ("timestamp", "pid", "tid", "source", "op", "duration", "arg0", "arg1", "ret_code", "stack_hash")
_TOTALS = ("bucket", "source", "op", "pid", "count", "stored", "sum_dur")


def is_ingero(tables: Tables) -> bool:
    """True if a database is one of Ingero's."""
    return {"timestamp", "source", "op", "duration"} <= tables.columns.get("events", frozenset())


def read_ingero(tables: Tables, folder: str | None = None) -> GatheredTrace:
    """Return the content without Ingero's verdicts, which rest on counters of one window."""
    trace = GatheredTrace("ingero", folder, realtime_ns=0)
    trace.unproved = "Ingero records no streams"
    ops = {
        (whole(row["source_id"]), whole(row["op_id"])): str(row["name"])
        for row in tables.rows("ops", ("source_id", "op_id", "name"))
    }
    names = {whole(row["pid"]): str(row["name"]) for row in tables.rows("process_names", ("pid", "name"))}
    stacks = _stacks(tables, trace)
    for number, row in enumerate(tables.rows("events", _EVENTS, order="timestamp")):
        _event(trace, row, ops, stacks)
        if not number % 4096:
            trace.settle()
    for pid in trace.calls.values("pid") | trace.activities.values("pid"):
        trace.processes.setdefault(pid, {})["name"] = names.get(pid, "")
    trace.threads = {pid: (pid, name) for pid, name in names.items()}
    _sessions(tables, trace)
    _totals(tables, trace, ops, names)
    return trace


def _event(
    trace: GatheredTrace,
    row: dict[str, Any],
    ops: dict[tuple[int, int], str],
    stacks: dict[int, int],
) -> None:
    at, duration = whole(row["timestamp"]), max(whole(row["duration"]), 0)
    pid, tid = whole(row["pid"]) & 0x3FFFFF, whole(row["tid"]) & 0x3FFFFF
    source, op = whole(row["source"]), whole(row["op"])
    name = ops.get((source, op), f"source {source} op {op}")
    if source in (_RUNTIME, _DRIVER):
        name = _NAMES.get(name, name)
        known = {"ret": whole(row["ret_code"]) & 0x7FFFFFFF, "stack": stacks.get(whole(row["stack_hash"]), 0)}
        if name in _SIZED:
            known["bytes"] = max(whole(row["arg0"]), 0)
        if name in _COPIES:
            known["direction"] = whole(row["arg1"]) & 0xF
        if name in _LAUNCHES:
            known["aux"] = max(whole(row["arg0"]), 0)
        trace.call(at, at + duration, pid, tid, name, **known)
    elif source == _HOST and op == _EXIT:
        trace.processes.setdefault(pid, {})["exited_ns"] = at
    elif source in (_IO, _NET) or (source == _HOST and op == _SWITCH):
        what = "off the CPU" if source == _HOST else name
        # sectors of 512 bytes
        size = {"bytes": max(whole(row["arg0"]), 0) * 512} if source == _IO else {}
        trace.activity(what, at - duration, at, pid=pid, tid=tid, **size)


def _stacks(tables: Tables, trace: GatheredTrace) -> dict[int, int]:
    numbers: dict[int, int] = {}
    for row in tables.rows("stack_traces", ("hash", "frames")):
        try:
            frames = json.loads(row["frames"] or "[]")
            rows = [(str(one.get("f", "")), 0, str(one.get("s") or one.get("i", ""))) for one in frames]
        except (ValueError, TypeError, AttributeError, RecursionError):
            trace.problems.append("a stack of the file is damaged and left out")
            continue
        number = FIRST_STACK * (len(numbers) + 1)
        numbers[whole(row["hash"])] = number
        trace.stacks[number] = rows[:64]
    return numbers


def _sessions(tables: Tables, trace: GatheredTrace) -> None:
    columns = ("gpu_model", "gpu_driver", "kernel", "cpu_cores", "node")
    for row in tables.rows("sessions", columns):
        if row["gpu_model"]:
            name = str(row["gpu_model"]).partition(",")[0]
            trace.gpus = [gpu_facts(0, name)]
        trace.header["driver"] = str(row["gpu_driver"] or "")
        machine = {"kernel": str(row["kernel"] or ""), "cpus": whole(row["cpu_cores"])}
        trace.header["machine"] = {**machine, **({"host": str(row["node"])} if row["node"] else {})}


def _totals(
    tables: Tables, trace: GatheredTrace, ops: dict[tuple[int, int], str], names: dict[int, str]
) -> None:
    """Totals of a minute: how much of each process was stored, and what was not."""
    sums: dict[tuple[int, int, int], list[int]] = {}
    for row in tables.rows("event_aggregates", _TOTALS):
        one = sums.setdefault((whole(row["pid"]), whole(row["source"]), whole(row["op"])), [0, 0, 0])
        for place, column in enumerate(("count", "stored", "sum_dur")):
            one[place] += max(whole(row[column]), 0)
    trace.header["totals"] = [
        {
            "pid": pid,
            "process": names.get(pid, ""),
            "what": "off the CPU" if (source, op) == (_HOST, _SWITCH) else ops.get((source, op), ""),
            "calls": source in (_RUNTIME, _DRIVER),
            "count": count,
            "stored": stored,
            "ns": ns,
        }
        for (pid, source, op), (count, stored, ns) in sorted(sums.items())
    ]
    missing = sum(row["count"] - row["stored"] for row in trace.header["totals"] if row["calls"])
    if missing > 0:
        trace.lost["calls"] = missing
