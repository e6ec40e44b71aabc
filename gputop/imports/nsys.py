"""What ``nsys export --type sqlite`` writes: CUDA calls, kernels, copies, NVTX ranges; tables may be missing.

Times are ns since the session began. ``globalTid`` holds the process (bits 24 to 47) and the thread (below).
Source: the Nsight Systems user guide, "SQLite Schema Reference".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gputop.explain.evidence.activity import OFF_CPU
from gputop.imports.recorded import Trace, gpu_facts
from gputop.imports.tables import Tables, whole

_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_ON_GPU: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "fill",
}
_COLUMNS = (
    "start",
    "end",
    "globalPid",
    "deviceId",
    "streamId",
    "correlationId",
    "bytes",
    "copyKind",
    "shortName",
    "demangledName",
)
_DIRECTIONS: Final = {1: 1, 2: 2, 8: 3, 10: 3}  # copyKind: H2D, D2H, D2D, between devices
_VARIANT: Final = "_v"
_SWITCHES: Final = "SCHED_EVENTS"
_STATES: Final = "ENUM_SAMPLING_THREAD_STATE"


def is_nsys(tables: Tables) -> bool:
    """Whether a database is one of Nsight Systems."""
    return "StringIds" in tables.columns and bool({_CALLS, *_ON_GPU} & set(tables.columns))


def read_nsys(tables: Tables) -> Trace:
    """Everything of such a file that gputop knows."""
    trace = Trace("nsys")
    texts = {whole(row["id"]): str(row["value"]) for row in tables.rows("StringIds", ("id", "value"))}
    for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        trace.realtime_ns = whole(row["utcEpochNs"])
    given = _kernels(tables, texts)
    calls: dict[tuple[int, int], tuple[int, int]] = {}
    columns = ("start", "end", "globalTid", "correlationId", "nameId", "returnValue")
    for row in tables.rows(_CALLS, columns, order="start"):
        begin, end = whole(row["start"]), whole(row["end"])
        pid, tid = _process(row["globalTid"]), whole(row["globalTid"]) & 0xFFFFFF
        name = texts.get(whole(row["nameId"]), "not named").partition(_VARIANT)[0]
        key = pid, whole(row["correlationId"], -1)
        known = {"ret": whole(row["returnValue"]) & 0x7FFFFFFF}
        kernel = given.get(key)
        if kernel is not None:
            known |= {name: max(kernel[name], 0) for name in ("stream", "bytes", "direction")}
            calls.setdefault(key, (begin, tid))
        trace.call(begin, end, pid, tid, name, **known)
    for key, kernel in given.items():
        at, tid = calls.get(key, (-1, -1))
        trace.activity(
            **{name: value for name, value in kernel.items() if name != "direction"},
            call_begin=at,
            call_tid=tid,
        )
    _ranges(tables, trace, texts)
    switches = _switches(tables, trace)
    _about(tables, trace, texts, switches=switches)
    return trace


def _process(number: Any) -> int:
    return whole(number) >> 24 & 0x3FFFFF


def _kernels(tables: Tables, texts: Mapping[int, str]) -> dict[tuple[int, int], dict[str, Any]]:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for table, what in _ON_GPU.items():
        for number, row in enumerate(tables.rows(table, _COLUMNS)):
            pid = _process(row["globalPid"])
            name = (
                texts.get(whole(row["demangledName"], -1)) or texts.get(whole(row["shortName"], -1)) or what
            )
            # without a correlation each is its own
            correlation = whole(row["correlationId"], -2 - number)
            place = (pid, correlation) if (pid, correlation) not in found else (pid, -2 - len(found))
            found[place] = {
                "what": what,
                "begin": whole(row["start"]),
                "end": max(whole(row["end"]), whole(row["start"])),
                "name": name,
                "pid": pid,
                "device": whole(row["deviceId"], -1),
                "stream": whole(row["streamId"], -1),
                "bytes": max(whole(row["bytes"]), 0),
                "direction": _DIRECTIONS.get(whole(row["copyKind"]), 0),
            }
    return found


def _ranges(tables: Tables, trace: Trace, texts: Mapping[int, str]) -> None:
    """NVTX ranges: what the program itself calls its parts."""
    for row in tables.rows("NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid")):
        if row["end"] is None or row["globalTid"] is None:
            continue
        name = row["text"] or texts.get(whole(row["textId"], -1)) or ""
        pid, tid = _process(row["globalTid"]), whole(row["globalTid"]) & 0xFFFFFF
        trace.activity("operator", whole(row["start"]), whole(row["end"]), name=str(name), pid=pid, tid=tid)


def _switches(tables: Tables, trace: Trace) -> bool:
    """Stays off the CPU, by the scheduler's events; whether there are any.

    A thread is off from one that takes it off a CPU to the next one that puts it on one. Of the time before
    its first event and after its last one nothing is known.
    """
    states = {whole(row["id"], -1): str(row["label"] or "") for row in tables.rows(_STATES, ("id", "label"))}
    left: dict[int, tuple[int, str]] = {}  # when each thread left its CPU, and its state then
    seen, open_ended = False, 0
    for row in tables.rows(_SWITCHES, ("start", "isSchedIn", "globalTid", "threadState"), order="start"):
        if row["start"] is None or row["globalTid"] is None or row["isSchedIn"] is None:
            continue
        thread, at, seen = whole(row["globalTid"]), whole(row["start"]), True
        if not whole(row["isSchedIn"]):
            open_ended += thread in left
            left[thread] = at, states.get(whole(row["threadState"], -1), "")
        elif thread in left:
            begin, state = left.pop(thread)
            pid = _process(thread)
            trace.activity(OFF_CPU, begin, max(at, begin), name=state, pid=pid, tid=thread & 0xFFFFFF)
    if open_ended:
        trace.notes.append(f"{open_ended} switches of threads have no end in this file: they are left out")
    return seen


def _about(tables: Tables, trace: Trace, texts: Mapping[int, str], *, switches: bool) -> None:
    for row in tables.rows("TARGET_INFO_GPU", ("id", "name", "totalMemory", "uuid")):
        total = whole(row["totalMemory"]) if row["totalMemory"] else None
        trace.gpus.append(gpu_facts(whole(row["id"]), str(row["name"] or ""), str(row["uuid"] or ""), total))
    known = {gpu["index"] for gpu in trace.gpus}
    for index in sorted({row["device"] for row in trace.activities if row.get("device", -1) >= 0} - known):
        trace.gpus.append(gpu_facts(index))
    switched = {row["pid"] for row in trace.activities if row["what"] == OFF_CPU}
    asked = {row["pid"] for row in trace.activities if row["what"] != OFF_CPU and row["pid"] >= 0}
    for pid in {*trace.calls["pid"], *asked}:
        trace.processes[pid] = {"name": "", "cuda_visible_devices": None, "cuda_device_order": None}
    for pid in switched - trace.processes.keys():
        trace.processes[pid] = {"name": "", "watched": False}
    for row in tables.rows("PROCESSES", ("globalPid", "name")):
        if _process(row["globalPid"]) in trace.processes:
            trace.processes[_process(row["globalPid"])]["name"] = str(row["name"] or "").rpartition("/")[2]
    for row in tables.rows("ThreadNames", ("globalTid", "nameId")):
        number = whole(row["globalTid"])
        trace.threads[number & 0xFFFFFF] = (_process(number), texts.get(whole(row["nameId"], -1), ""))
    if not any(row["what"] in _ON_GPU.values() for row in trace.activities):
        trace.unproved = "the file holds no kernels"
    trace.header["states"] = False
    trace.notes.append(
        "of a thread off the CPU this file does not tell how long it only lacked a CPU, nor who woke it"
        if switches
        else "this file holds no switches: whether a thread ran, waited for a CPU or slept is not known"
    )
