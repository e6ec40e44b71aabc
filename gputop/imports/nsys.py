"""Databases of ``nsys export --type sqlite``: calls, kernels, copies, NVTX ranges; tables may be missing.

Times are ns since the session began. ``globalTid`` holds the process (bits 24 to 47) and the thread (below).
Source: the Nsight Systems user guide, "SQLite Schema Reference".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gputop.analysis.evidence.api_classes import (
    COPY,
    FILL,
    GRAPH,
    KERNEL,
    OFF_CPU,
    OS_CALL,
    OVERHEAD,
    RANGE,
    SPAN,
    WAIT,
)
from gputop.imports.gathered import FIRST_STACK, GatheredTrace, gpu_facts
from gputop.imports.names import FRAME_KINDS, cleaned, collective_of
from gputop.imports.sqlite_tables import Tables, correlation_of, handle, whole

_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_ON_GPU: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": FILL,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GRAPH,
}
_COLUMNS: Final = (
    "start",
    "end",
    "globalPid",
    "deviceId",
    "streamId",
    "correlationId",
    "bytes",
    "copyKind",
    "srcKind",
    "dstKind",
    "shortName",
    "demangledName",
    "graphId",
    "graphNodeId",
)
_SIZES: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SHARED: Final = "dynamicSharedMemory"
_DIRECTIONS: Final = {1: 1, 2: 2, 8: 3, 10: 3}  # copyKind: H2D, D2H, D2D, between devices
_HOST_SIDE: Final = {1: "srcKind", 2: "dstKind"}  # by direction
_VARIANT: Final = "_v"
_WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_WAIT_NAMES: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_OVERHEADS: Final = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
_SWITCHES: Final = "SCHED_EVENTS"
_STATES: Final = "ENUM_SAMPLING_THREAD_STATE"
_NESTED_RANGES, _SPANS = (59, 70), (60, 71)
_FRAMES: Final = 64  # of a stack
_OF_CALLS, _OF_SAMPLES = 1, 2  # added to the numbers of stacks of each table


def is_nsys(tables: Tables) -> bool:
    """True if a database is one of Nsight Systems."""
    return "StringIds" in tables.columns and bool({_CALLS, *_ON_GPU} & set(tables.columns))


def read_nsys(tables: Tables, folder: str | None = None) -> GatheredTrace:
    """Return the parts of such a file that gputop understands."""
    trace = GatheredTrace("nsys", folder)
    texts = {whole(row["id"]): str(row["value"]) for row in tables.rows("StringIds", ("id", "value"))}
    for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        trace.realtime_ns = whole(row["utcEpochNs"])
    _calls(tables, trace, texts)
    _add_work(tables, trace, texts)
    _waits(tables, trace)
    _ranges(tables, trace, texts)
    _system(tables, trace, texts)
    _samples(tables, trace, texts)
    switches = _switches(tables, trace)
    _about(tables, trace, texts, switches=switches)
    return trace


def _process(number: Any) -> int:
    return whole(number) >> 24 & 0x3FFFFF


def _thread(trace: GatheredTrace, number: Any) -> tuple[int, int]:
    pid = _process(number)
    return pid, trace.thread(pid, whole(number) & 0xFFFFFF)


def _settled(trace: GatheredTrace, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        if not number % 4096:
            trace.settle()
        yield row


def _calls(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str]) -> None:
    stacks = _Stacks(trace, tables, "CUDA_CALLCHAINS", _OF_CALLS, texts)
    columns = ("start", "end", "globalTid", "correlationId", "nameId", "returnValue", "callchainId")
    for row in _settled(trace, tables.rows(_CALLS, columns)):
        pid, tid = _thread(trace, row["globalTid"])
        name = texts.get(whole(row["nameId"], -1), "not named").partition(_VARIANT)[0]
        known = {
            "ret": whole(row["returnValue"]) & 0x7FFFFFFF,
            "correlation": correlation_of(pid, row["correlationId"]),
        }
        if stack := stacks.number(row["callchainId"]):
            known["stack"] = stack
        trace.call(whole(row["start"]), whole(row["end"]), pid, tid, name, **known)


def _add_work(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str]) -> None:
    devices = {
        (whole(row["pid"], -1), whole(row["cudaId"], -1)): whole(row["gpuId"], -1)
        for row in tables.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    }
    for table, what in _ON_GPU.items():
        wanted = (*_COLUMNS, *_SIZES, _SHARED) if what == KERNEL else _COLUMNS
        for row in _settled(trace, tables.rows(table, wanted)):
            pid, device = _process(row["globalPid"]), handle(row["deviceId"])
            known = {
                "pid": pid if row["globalPid"] is not None else -1,
                "device": devices.get((pid, device), device),
                "stream": handle(row["streamId"]),
                "correlation": correlation_of(pid, row["correlationId"]),
            }
            name = (
                texts.get(whole(row["demangledName"], -1)) or texts.get(whole(row["shortName"], -1)) or what
            )
            if what == KERNEL:
                sizes = [whole(row[column]) for column in (*_SIZES, _SHARED)]
                if all(0 < one < 1 << 32 for one in sizes[:6]) and 0 <= sizes[6] < 1 << 32:
                    known["shape"] = trace.shape(sizes)
                known["graph"] = whole(row["graphId"], -1) if row["graphNodeId"] is not None else -1
            elif what == GRAPH:
                known["graph"] = whole(row["graphId"], -1)
                name = f"CUDA graph {known['graph']}"
            else:
                known["bytes"] = max(whole(row["bytes"]), 0)
            if what == COPY:
                known["direction"] = _DIRECTIONS.get(whole(row["copyKind"]), -1)
                memory = (
                    handle(row[_HOST_SIDE[known["direction"]]]) if known["direction"] in _HOST_SIDE else 2
                )
                known["memory"] = memory if memory <= 4 else -1
            trace.add_work(what, whole(row["start"]), whole(row["end"]), name, **known)


def _waits(tables: Tables, trace: GatheredTrace) -> None:
    columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "syncType", "eventId")
    for row in _settled(trace, tables.rows(_WAITS, columns)):
        pid = _process(row["globalPid"])
        trace.add_work(
            WAIT,
            whole(row["start"]),
            whole(row["end"]),
            _WAIT_NAMES.get(whole(row["syncType"]), "Sync"),
            pid=pid,
            device=handle(row["deviceId"]),
            stream=handle(row["streamId"]),
            event=handle(row["eventId"]),
            correlation=correlation_of(pid, row["correlationId"]),
        )
    for row in tables.rows(_RECORDS, ("globalPid", "streamId", "correlationId", "eventId")):
        correlation = correlation_of(_process(row["globalPid"]), row["correlationId"])
        event, stream = handle(row["eventId"]), handle(row["streamId"])
        trace.add_work("", 0, 0, correlation=correlation, event=event, stream=stream)


def _ranges(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str]) -> None:
    """NVTX ranges of the program."""
    columns = ("start", "end", "text", "textId", "globalTid", "eventType")
    for row in _settled(trace, tables.rows("NVTX_EVENTS", columns)):
        if row["end"] is None or row["globalTid"] is None:
            continue
        name = cleaned(str(row["text"] or texts.get(whole(row["textId"], -1)) or ""))
        pid, tid = _thread(trace, row["globalTid"])
        begin, end = whole(row["start"]), whole(row["end"])
        what = SPAN if whole(row["eventType"]) in _SPANS else RANGE
        trace.activity(what, begin, end, name, pid=pid, tid=tid)
        if what == RANGE:
            trace.frame(FRAME_KINDS.index(RANGE), begin, end, tid, name)
        # NCCL's own ranges have the names of its functions
        if name.startswith("nccl") and (function := collective_of(name[4:].removeprefix(":"))):
            trace.call(begin, end, pid, tid, function)


def _system(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str]) -> None:
    """Calls of the operating system's libraries, and the profiler's overhead."""
    for row in _settled(trace, tables.rows("OSRT_API", ("start", "end", "globalTid", "nameId"))):
        if row["end"] is not None and row["globalTid"] is not None:
            pid, tid = _thread(trace, row["globalTid"])
            name = texts.get(whole(row["nameId"], -1), "")
            trace.activity(OS_CALL, whole(row["start"]), whole(row["end"]), name, pid=pid, tid=tid)
    for table in _OVERHEADS:
        for row in _settled(trace, tables.rows(table, ("start", "end", "globalTid", "nameId"))):
            pid, tid = _thread(trace, row["globalTid"]) if row["globalTid"] is not None else (-1, -1)
            name = texts.get(whole(row["nameId"], -1), "")
            trace.activity(OVERHEAD, whole(row["start"]), whole(row["end"]), name, pid=pid, tid=tid)


def _samples(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str]) -> None:
    """Samples of threads on a CPU."""
    stacks = _Stacks(trace, tables, "SAMPLING_CALLCHAINS", _OF_SAMPLES, texts)
    for row in _settled(trace, tables.rows("COMPOSITE_EVENTS", ("id", "start", "globalTid"))):
        if row["globalTid"] is not None and (stack := stacks.number(row["id"])):
            trace.places.add((whole(row["start"]), _thread(trace, row["globalTid"])[1], stack))


class _Stacks:
    """Stacks of a table of call chains, by their numbers there; equal ones are merged."""

    def __init__(
        self, trace: GatheredTrace, tables: Tables, table: str, kind: int, texts: Mapping[int, str]
    ) -> None:
        chains: dict[int, list[tuple[int, int, int]]] = {}
        for row in tables.rows(table, ("id", "stackDepth", "symbol", "module")):
            frame = whole(row["stackDepth"]), whole(row["symbol"], -1), whole(row["module"], -1)
            chains.setdefault(whole(row["id"], -1), []).append(frame)
        self._number: dict[int, int] = {}
        known: dict[tuple[tuple[int, int, int], ...], int] = {}
        for chain, frames in chains.items():
            key = tuple(sorted(frames)[:_FRAMES])
            if key not in known:
                known[key] = FIRST_STACK * (len(known) + 1) + kind
                rows = [(texts.get(module, ""), 0, texts.get(symbol, "")) for _, symbol, module in key]
                trace.stacks[known[key]] = rows
            self._number[chain] = known[key]

    def number(self, chain: Any) -> int:
        """Return the number of a chain's stack; 0: none."""
        return self._number.get(whole(chain, -1), 0)


def _switches(tables: Tables, trace: GatheredTrace) -> bool:
    """Time off the CPU, by the scheduler's events; True if there are any.

    A thread is off the CPU from a switch-out event to the next switch-in. Before its first event and after
    its last one its state is unknown.
    """
    states = {whole(row["id"], -1): str(row["label"] or "") for row in tables.rows(_STATES, ("id", "label"))}
    left: dict[int, tuple[int, str]] = {}  # when each thread left its CPU, and its state then
    seen, open_ended = False, 0
    columns = ("start", "isSchedIn", "globalTid", "threadState")
    for row in _settled(trace, tables.rows(_SWITCHES, columns, order="start")):
        if row["start"] is None or row["globalTid"] is None or row["isSchedIn"] is None:
            continue
        thread, at, seen = whole(row["globalTid"]), whole(row["start"]), True
        if not whole(row["isSchedIn"]):
            open_ended += thread in left
            left[thread] = at, states.get(whole(row["threadState"], -1), "")
        elif thread in left:
            begin, state = left.pop(thread)
            pid, tid = _thread(trace, thread)
            trace.activity(OFF_CPU, begin, at, state, pid=pid, tid=tid)
    if open_ended:
        trace.notes.append(f"{open_ended} switches of threads without an end in this file are left out")
    return seen


def _about(tables: Tables, trace: GatheredTrace, texts: Mapping[int, str], *, switches: bool) -> None:
    for row in tables.rows("TARGET_INFO_GPU", ("id", "name", "totalMemory", "uuid", "smCount")):
        total = whole(row["totalMemory"]) if row["totalMemory"] else None
        facts = gpu_facts(whole(row["id"]), str(row["name"] or ""), str(row["uuid"] or ""), total)
        trace.gpus.append(facts | ({"multiprocessors": whole(row["smCount"])} if row["smCount"] else {}))
    users = trace.calls.values("pid") | trace.work.values("pid")
    for pid in users:
        trace.processes[pid] = {"name": ""}
    for pid in trace.activities.values("pid") - users:
        trace.processes[pid] = {"name": "", "watched": False}
    for row in tables.rows("PROCESSES", ("globalPid", "name")):
        if _process(row["globalPid"]) in trace.processes:
            trace.processes[_process(row["globalPid"])]["name"] = str(row["name"] or "").rpartition("/")[2]
    for row in tables.rows("ThreadNames", ("globalTid", "nameId")):
        if _process(row["globalTid"]) in trace.processes:
            pid, tid = _thread(trace, row["globalTid"])
            trace.threads[tid] = (pid, texts.get(whole(row["nameId"], -1), ""))
    trace.header["states"] = False
    trace.notes.append(
        "of a thread off the CPU this file records neither the time in the run queue nor the waker"
        if switches
        else "this file holds no switches: whether a thread ran, waited for a CPU or slept is not known"
    )
