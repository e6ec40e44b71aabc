"""Chrome traces of torch.profiler (Kineto): CUDA calls, kernels, operators. Its times are µs, as floats."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gputop.imports.recorded import ImportFileError, Trace, gpu_facts
from gputop.imports.tables import whole
from gputop.library.foreign import named

_MOST_BYTES: Final = 4 << 30  # unpacked; what is larger does not fit into memory as Python's objects
_RATIO: Final = 200  # times a compressed file may grow
_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver"})
_ON_GPU: Final = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill", "gpu_user_annotation": ""}
_AROUND: Final = ("ProfilerStep#", "PyTorch Profiler")  # around all that a step does
_OPERATORS: Final = frozenset({"cpu_op", "user_annotation", "python_function"})
_DIRECTIONS: Final = (("HtoD", 1), ("DtoH", 2), ("DtoD", 3))
_DEEPEST: Final = 1024  # operators within each other; of more than these the outermost are left out
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TIDS: Final = (1 << 22) - 1


def read_chrome(path: str) -> Trace:
    """Everything of such a trace that gputop knows.

    Raises:
        ImportFileError: It is damaged, or holds no events.
    """
    trace = Trace("kineto")
    document = _document(path, trace)
    events = document.get("traceEvents") if isinstance(document, Mapping) else document
    if not isinstance(events, list):
        keys = named("key", list(map(str, document))) if isinstance(document, Mapping) else "no keys"
        raise ImportFileError(f"{path} is JSON with {keys}, and no Chrome trace: it has no list traceEvents")
    base = whole(document.get("baseTimeNanoseconds"), -1) if isinstance(document, Mapping) else -1
    trace.realtime_ns = base if base >= 0 else 0
    if base < 0:
        trace.notes.append(
            "the trace has no baseTimeNanoseconds: its times are microseconds since 1970 as doubles, exact "
            "to 250 ns"
        )
    reader = _Reader(trace)
    for event in events:
        if isinstance(event, dict):
            reader.take(event)
    reader.finish()
    kinds = Counter(str(event["cat"]) for event in events if isinstance(event, dict) and event.get("cat"))
    trace.contents = named("category", [f"{kind} ({count})" for kind, count in kinds.most_common()])
    _about(trace, document if isinstance(document, Mapping) else {})
    return trace


def _document(path: str, trace: Trace) -> Any:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if data.startswith(b"\x1f\x8b"):
            data = _inflated(data)
    except (OSError, zlib.error, EOFError, MemoryError) as error:
        raise ImportFileError(f"{path} cannot be unpacked: {error}") from error
    if len(data) > _MOST_BYTES:
        raise ImportFileError(f"{path} is larger than {_MOST_BYTES >> 30} GB: profile fewer steps")
    text, controls = _CONTROL.subn(b" ", data)  # Kineto writes names as they are: pytorch/pytorch#130622
    if controls:
        trace.problems.append(f"{controls} control characters in the trace were taken for spaces")
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ImportFileError(
            f"{path} is no JSON that can be read: {error}; was its writing interrupted?"
        ) from error


def _inflated(data: bytes) -> bytes:
    limit = min(_MOST_BYTES, _RATIO * len(data) + (1 << 20))
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    result = unpacker.decompress(data, limit + 1)
    if len(result) > limit:
        raise ImportFileError(
            "the trace unpacks to more than a trace of its size can: it was made to fill memory"
        )
    if not unpacker.eof:
        raise EOFError("it ends within its data")
    return result


class _Reader:
    """Takes events; calls and kernels find each other by their correlation."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._calls: list[dict[str, Any]] = []
        self._kernels: list[dict[str, Any]] = []
        self._operators: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
        self._named: dict[tuple[int, int], list[tuple[int, int, str]]] = {}  # those that say what is done
        self._skipped = 0

    def take(self, event: dict[str, Any]) -> None:
        """Takes one."""
        phase, kind = event.get("ph"), str(event.get("cat", "")).lower()
        if phase == "M":
            self._name(event)
        if phase != "X" or kind not in _CALLS | _OPERATORS | set(_ON_GPU):
            return
        begin, length = event.get("ts"), event.get("dur", 0)
        if not _is_number(begin) or not _is_number(length) or length < 0:
            self._skipped += 1
            return
        at = _ns(begin)
        row: dict[str, Any] = {
            "begin": at,
            "end": at + _ns(length),
            "name": str(event.get("name", "")),
            "args": event.get("args") if isinstance(event.get("args"), dict) else {},
            "pid": event.get("pid"),
            "tid": event.get("tid"),
        }
        if kind in _CALLS:
            self._calls.append(row)
        elif kind in _ON_GPU:
            if _ON_GPU[kind]:
                self._kernels.append({**row, "what": _ON_GPU[kind]})
        else:
            thread = whole(row["pid"]) & _TIDS, whole(row["tid"]) & _TIDS
            self._operators.setdefault(thread, []).append((row["begin"], row["end"], row["name"]))
            if kind != "python_function" and not row["name"].startswith(_AROUND):
                self._named.setdefault(thread, []).append((row["begin"], row["end"], row["name"]))

    def _name(self, event: dict[str, Any]) -> None:
        args, pid = event.get("args"), event.get("pid")
        if not isinstance(args, dict) or not isinstance(pid, int):
            return
        name = str(args.get("name", ""))
        if event.get("name") == "process_name":
            self._trace.processes.setdefault(pid & _TIDS, {})["name"] = name
        elif event.get("name") == "thread_name" and isinstance(event.get("tid"), int):
            self._trace.threads[int(event["tid"]) & _TIDS] = (pid & _TIDS, name)

    def finish(self) -> None:
        """Joins kernels with the calls that gave them, and calls with the operators around them."""
        trace = self._trace
        given: dict[int, dict[str, Any]] = {}
        for kernel in self._kernels:
            given.setdefault(whole(kernel["args"].get("correlation"), -1), kernel)
        stacks = _Stacks(trace, self._operators)
        calls: dict[int, tuple[int, int, int]] = {}
        for row in sorted(self._calls, key=lambda one: one["begin"]):
            pid, tid = whole(row["pid"]) & _TIDS, whole(row["tid"]) & _TIDS
            correlation = whole(row["args"].get("correlation"), -1)
            known = {"stack": stacks.of(pid, tid, row["begin"])}
            started = given.get(correlation)
            if started is not None and correlation >= 0:
                known |= {"stream": max(_stream(started), 0), "bytes": _size(started)}
                known["direction"] = _direction(started)
                calls[correlation] = row["begin"], pid, tid
            trace.call(row["begin"], row["end"], pid, tid, row["name"], **known)
        for one in self._kernels:
            at, pid, tid = calls.get(whole(one["args"].get("correlation"), -1), (-1, -1, -1))
            trace.activity(
                one["what"],
                one["begin"],
                one["end"],
                name=one["name"],
                pid=pid,
                device=whole(one["args"].get("device"), whole(one["pid"], -1)),
                stream=_stream(one),
                bytes=_size(one),
                call_begin=at,
                call_tid=tid,
            )
        pids = {*trace.calls["pid"], *(pid for pid, _ in self._operators)}
        trace.processes = {pid: trace.processes.get(pid, {}) for pid in pids}
        for facts in trace.processes.values():
            facts.setdefault("name", "python")
            facts.setdefault("cuda_visible_devices", None)
            facts.setdefault("cuda_device_order", None)
        trace.threads = {tid: row for tid, row in trace.threads.items() if row[0] in pids}
        self._outermost()
        if self._skipped:
            trace.problems.append(f"{self._skipped} events have no time that can be read, and are left out")

    def _outermost(self) -> None:
        """The outermost operators, for what a thread did between its calls."""
        for (pid, tid), rows in self._named.items():
            reach = -1
            for begin, end, name in sorted(rows, key=lambda row: (row[0], -row[1])):
                if begin >= reach:
                    self._trace.activity("operator", begin, end, name=name, pid=pid, tid=tid)
                    reach = end


class _Stacks:
    """The operators around a moment of a thread, as a stack."""

    def __init__(self, trace: Trace, operators: Mapping[tuple[int, int], list[tuple[int, int, str]]]) -> None:
        self._trace, self._operators = trace, operators
        self._open: dict[tuple[int, int], tuple[int, list[tuple[int, int, str]]]] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        for rows in operators.values():
            rows.sort(key=lambda row: (row[0], -row[1]))

    def of(self, pid: int, tid: int, at: int) -> int:
        """The number of the stack; moments of a thread must come in order."""
        thread = pid, tid
        place, held = self._open.get(thread, (0, []))
        rows = self._operators.get(thread, [])
        while place < len(rows) and rows[place][0] <= at:
            held.append(rows[place])
            place += 1
        held = [row for row in held if row[1] > at][-_DEEPEST:]
        self._open[thread] = place, held
        names = tuple(row[2] for row in reversed(held))[:32]
        if not names:
            return 0
        if names not in self._numbers:
            self._numbers[names] = (len(self._numbers) + 1) << 32
            self._trace.stacks[self._numbers[names]] = [_frame(name) for name in names]
        return self._numbers[names]


def _frame(name: str) -> tuple[str, int, str]:
    """An operator, or a function of Python as the profiler writes it: ``train.py(12): step``."""
    found = re.fullmatch(r"(.+\.py)\((\d+)\): (.+)", name)
    return (found[1], int(found[2]), found[3]) if found else ("torch", 0, name)


def _about(trace: Trace, document: Mapping[str, Any]) -> None:
    devices = document.get("deviceProperties")
    for row in devices if isinstance(devices, list) else ():
        if isinstance(row, dict):
            size = whole(row.get("totalGlobalMem")) or None
            trace.gpus.append(gpu_facts(whole(row.get("id")), str(row.get("name", "")), memory_bytes=size))
    known = {gpu["index"] for gpu in trace.gpus}
    for index in sorted({row["device"] for row in trace.activities if row.get("device", -1) >= 0} - known):
        trace.gpus.append(gpu_facts(index))
    job = document.get("distributedInfo")
    if isinstance(job, dict):
        trace.header["distributed"] = {
            key: job[key] for key in ("rank", "world_size", "backend") if key in job
        }
    if not any(row["what"] in _ON_GPU.values() for row in trace.activities):
        trace.unproved = "the trace holds no kernels"
    trace.header["states"] = False
    trace.notes.append(
        "torch.profiler records no switches: whether a thread ran, waited for a CPU or slept is not known; "
        "its own cost is in the times"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e19


def _ns(microseconds: Any) -> int:
    return whole(microseconds * 1000) if isinstance(microseconds, int) else whole(round(microseconds * 1000))


def _stream(kernel: Mapping[str, Any]) -> int:
    return whole(kernel["args"].get("stream"), whole(kernel["tid"], -1))


def _size(kernel: Mapping[str, Any]) -> int:
    return max(whole(kernel["args"].get("bytes")), 0)


def _direction(kernel: Mapping[str, Any]) -> int:
    return next((number for sign, number in _DIRECTIONS if sign in kernel["name"]), 0)
