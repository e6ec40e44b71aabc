"""What an importer has read, and the session file that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.errors import GputopError
from gputop.files.output import new_session
from probes import api
from probes.activities import FIELDS, TEXTS, Table, activity_samples, unknown_rows
from probes.schema import COPY_SHIFT, NOT_ASKED, CallFlag, Kind, Records, empty
from probes.source import APIS, FRAMES, GPUS, MARK, NAMES, NOTE, PROBLEM, PROCESS, Item, Sample

_TICK_NS: Final = 250_000_000
_MOST_TICKS: Final = 4_000
_STACKS: Final = 200  # of one sample
_ABSENT: Final = "not in the trace that was imported"
_MOST_NS: Final = 1 << 62

Ints = npt.NDArray[np.int64]


class ImportFileError(GputopError):
    """The file is no trace that can be imported, or is damaged."""


@dataclass(slots=True)
class Trace:
    """What was read; times are ns of one clock, the source's own.

    Attributes:
        source: Whose file it is: ``ingero``, ``kineto``, ``nsys``.
        realtime_ns: What to add to its times for the time since the epoch; None: not known.
        calls: Columns ``begin``, ``end``, ``pid``, ``tid``, ``name`` (function), and where they are known
            ``bytes``, ``direction`` (cudaMemcpyKind), ``stream``, ``ret``, ``aux``, ``stack``.
        activities: What others measured (evidence/activity.py).
        processes: Facts by number, ``name`` and what else is known.
        threads: (process, name) by thread.
        stacks: Frames by number, the innermost first: (file, line, function).
        gpus: Facts of GPUs: ``index`` and what else is known.
        unproved: Why nothing about an idle GPU can be concluded from the calls; "": it can.
        header: What else stands in the header of the session file.
        lost: Events that the source counted and did not store, by kind.
        notes: What cannot be known from this file, in sentences.
        problems: What was wrong in the file.
        contents: What the file holds, in words, for one with nothing to import.
    """

    source: str
    realtime_ns: int | None = None
    calls: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                "begin",
                "end",
                "pid",
                "tid",
                "name",
                "bytes",
                "direction",
                "stream",
                "ret",
                "aux",
                "stack",
            )
        }
    )
    activities: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    stacks: dict[int, list[tuple[str, int, str]]] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    unproved: str = ""
    header: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    contents: str = ""

    def call(self, begin: int, end: int, pid: int, tid: int, name: str, **known: int) -> None:
        """Adds a call."""
        row = {"begin": begin, "end": end, "pid": pid, "tid": tid, "name": name, "stack": NOT_ASKED, **known}
        for column, values in self.calls.items():
            values.append(row.get(column, 0))

    def activity(self, what: str, begin: int, end: int, **known: Any) -> None:
        """Adds something that was measured beside the calls."""
        self.activities.append({"what": what, "begin": begin, "end": end, **known})


def gpu_facts(index: int, name: str = "", uuid: str = "", memory_bytes: int | None = None) -> dict[str, Any]:
    """A GPU as NVML's samples list it, as far as it is known."""
    facts = {"index": index, "name": name, "uuid": uuid, "lost": "", "unavailable": {}, "processes": []}
    return facts if memory_bytes is None else {**facts, "memory_total_bytes": memory_bytes}


def write_trace(trace: Trace, path: str) -> int:
    """Writes the session file; returns how many calls are in it.

    Raises:
        ImportFileError: The trace holds nothing.
        GputopError: The file cannot be written.
    """
    times = [*trace.calls["begin"], *(row["begin"] for row in trace.activities)]
    ends = [*trace.calls["end"], *(row["end"] for row in trace.activities)]
    if not times:
        raise ImportFileError(
            "this trace holds no CUDA calls, no kernels and no operators: nothing to import; "
            f"it holds {trace.contents or 'nothing'}"
        )
    shift = max(-min(times), 0) + (0 if min(times) > 0 else 1)  # a session's clock begins above zero
    start, end = min(times) + shift, max(ends) + shift
    if end >= _MOST_NS:
        raise ImportFileError(
            f"a moment of this {trace.source} trace lies {end:.2e} ns after its clock's zero: damaged?"
        )
    calls, rows = _calls(trace, shift)
    header = {
        "start_ns": start,
        "calls_observed": True,
        "source": trace.source,
        "clock": {"monotonic_ns": start, "utc_offset_s": 0}
        | ({} if trace.realtime_ns is None else {"realtime_ns": trace.realtime_ns + start - shift}),
        **trace.header,
    }
    if trace.unproved:
        header["unproved"] = trace.unproved
    with new_session(path, header) as writer:
        for item in _items(trace, calls, rows, start, end, shift):
            writer.write(item)
    return len(calls)


def _calls(trace: Trace, shift: int) -> tuple[Records, list[list[str]]]:
    """(CALL records in the order of their ends, the table of functions)."""
    columns = trace.calls
    names, which = np.unique(np.array(columns["name"], object).astype(str), return_inverse=True)
    rows = [_row(name) for name in names.tolist()]
    count = len(columns["begin"])
    begin = np.array(columns["begin"], np.int64) + shift
    end = np.maximum(np.array(columns["end"], np.int64) + shift, begin)
    tid = np.array(columns["tid"], np.int64)
    records = empty(count)
    records["kind"] = Kind.CALL
    records["t_end"], records["duration"] = end, end - begin
    records["pid"], records["tid"] = np.array(columns["pid"], np.int64), tid
    records["op"] = which.reshape(-1)
    for name in ("bytes", "stream", "aux", "stack"):
        records[name] = np.array(columns[name], np.int64).astype(np.uint64)
    records["ret"] = np.array(columns["ret"], np.int64)
    nested = _nested(tid, begin, end)
    records["depth"] = nested
    flags = np.array(columns["direction"], np.int64) << COPY_SHIFT
    records["flags"] = flags | np.where(nested, int(CallFlag.NESTED), 0)
    order = np.argsort(end, kind="stable")
    sorted_records: Records = records[order]
    sorted_records["seq"] = np.arange(count)
    return sorted_records, rows


def _row(name: str) -> list[str]:
    known = api.BY_OP[api.OP_OF[name]] if name in api.OP_OF else None
    if known is not None:
        return [known.name, known.layer, known.group]
    layer = "runtime" if name.startswith("cuda") else "nccl" if name.startswith("nccl") else "driver"
    return [name, layer, "other"]


def _nested(tid: Ints, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Which calls lie within another one of their thread."""
    order = np.lexsort((-end, begin, tid))
    inside = np.zeros(len(tid), np.bool_)
    reach, thread = -1, -1
    for row, own, last in zip(order.tolist(), tid[order].tolist(), end[order].tolist(), strict=True):
        if own != thread:
            thread, reach = own, -1
        inside[row] = last <= reach
        reach = max(reach, last)
    return inside


def _items(
    trace: Trace, calls: Records, rows: list[list[str]], start: int, end: int, shift: int
) -> Iterator[Item]:
    yield Sample(APIS, start, {"rows": rows})
    for pid, facts in sorted(trace.processes.items()):
        known = {"pid": pid, "watched": True, "seen_ns": start, "exited_ns": None, "command": "", "user": ""}
        yield Sample(PROCESS, start, {**known, **facts, "exited_ns": None})
    if trace.threads:
        tids = list(trace.threads)
        pids, names = zip(*trace.threads.values(), strict=True)
        yield Sample(NAMES, start, {"tid": tids, "pid": list(pids), "name": list(names)})
    yield from _stacks(trace, start)
    if trace.gpus:
        yield Sample(
            GPUS,
            start,
            {
                "driver": str(trace.header.get("driver", "")),
                "gpus": [{**row, "absent": _ABSENT} for row in trace.gpus],
                "error": "",
            },
        )
    for text in trace.notes:
        yield Sample(NOTE, start, {"text": text})
    for text in trace.problems:
        yield Sample(PROBLEM, start, {"text": text})
    activities, texts = _activities(trace, shift)
    ends = activities["end"]
    step = max(_TICK_NS, -(-(end - start) // _MOST_TICKS))
    marks = [*range(start + step, end, step), max(end, start + 1)]
    realtime = None if trace.realtime_ns is None else trace.realtime_ns - shift
    first_call = first_activity = 0
    exits = [
        (int(at) + shift, pid)
        for pid, facts in sorted(trace.processes.items())
        if (at := facts.get("exited_ns")) is not None
    ]
    for number, mark in enumerate(marks, 1):
        last_call = int(np.searchsorted(calls["t_end"], mark, side="right"))
        last_activity = int(np.searchsorted(ends, mark, side="right"))
        if last_call > first_call:
            yield calls[first_call:last_call]
        yield from activity_samples(activities[first_activity:last_activity], texts, mark)
        for at, pid in (one for one in exits if one[0] <= mark):
            yield Sample(PROCESS, at, {"pid": pid, "exited_ns": at})
        exits = [one for one in exits if one[0] > mark]
        first_call, first_activity = last_call, last_activity
        lost = trace.lost if mark == marks[-1] else {}
        yield Sample(MARK, mark, {"number": number, "wall_ns": mark + (realtime or 0), "lost": dict(lost)})


def _activities(trace: Trace, shift: int) -> tuple[Table, list[str]]:
    """What was measured beside calls, in the order of its ends."""
    rows, texts = unknown_rows(len(trace.activities)), {"": 0}
    for name in FIELDS:
        default = rows[name][:1].tolist()
        rows[name] = [row.get(name, *default) for row in trace.activities]
    for name in TEXTS:
        rows[name] = [texts.setdefault(str(row.get(name, "")), len(texts)) for row in trace.activities]
    for name in ("begin", "end"):
        rows[name] += shift
    rows["call_begin"] = np.where(rows["call_tid"] >= 0, rows["call_begin"] + shift, -1)
    ordered: Table = rows[np.argsort(rows["end"], kind="stable")]
    return ordered, list(texts)


def _stacks(trace: Trace, start: int) -> Iterator[Item]:
    known = list(trace.stacks.items())
    for first in range(0, len(known), _STACKS):
        part = known[first : first + _STACKS]
        frames = [[list(frame) for frame in frames] for _, frames in part]
        yield Sample(
            FRAMES, start, {"pid": [0] * len(part), "stack": [number for number, _ in part], "frames": frames}
        )
