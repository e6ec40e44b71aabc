"""Writes the session file of a trace: its rows in the order of time, with regular marks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import numpy as np

from gputop.analysis.evidence.api_classes import ON_GPU
from gputop.files.output_files import new_session
from gputop.imports.gathered import GatheredTrace, ImportFileError, gpu_facts
from gputop.imports.joining import join
from gputop.imports.spool import Cursor, Ints, Rows, key_of
from probes import api
from probes.activities import MOST_GPUS, NO_SUCH_GPU, TABLE, activity_samples
from probes.arrays import each_number
from probes.schema import ALIASED, COPY_SHIFT, RECORD, CallFlag, Communicator, Kind, Records, empty
from probes.source import (
    APIS,
    FRAMES,
    GPUS,
    MARK,
    NAMES,
    NOTE,
    PLACES,
    PROBLEM,
    PROCESS,
    SHAPES,
    Item,
    Sample,
)

_TICK_NS: Final = 1_000_000, 250_000_000  # the shortest and the usual one
_TICKS: Final = 400  # of a trace whose ticks are between these
_MOST_TICKS: Final = 4_000
_STACK_TEXT: Final = 200_000  # characters of the stacks of a sample
_PLACES: Final = 20_000  # of a sample
_ABSENT: Final = "not in the trace that was imported"
_MOST_NS: Final = 1 << 62


def write_trace(trace: GatheredTrace, path: str, *, force: bool = False) -> tuple[int, int]:
    """Write the session file, with ``force`` over an older one; return its calls and activities.

    Raises:
        ImportFileError: The trace holds nothing.
        GputopError: The file cannot be written.
    """
    low, high = _bounds(trace)
    shift = max(-low, 0) + (0 if low > 0 else 1)  # a session's clock begins above zero
    start, end = low + shift, high + shift
    if end >= _MOST_NS:
        raise ImportFileError(
            f"a moment of this {trace.source} trace lies {end:.2e} ns after its clock's zero: damaged?"
        )
    join(trace)
    _complete(trace)
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
    counts = len(trace.calls), len(trace.activities)
    with new_session(path, header, force=force) as writer:
        for item in chain(_facts(trace, start), _ticks(trace, start, end, shift)):
            writer.write(item)
    return counts


def _bounds(trace: GatheredTrace) -> tuple[int, int]:
    """The earliest begin and the latest end."""
    low, high = [], []
    for spool in (trace.calls, trace.activities, trace.work, trace.switches):
        for chunk in spool.chunks():
            rows = chunk if spool is not trace.work else chunk[chunk["what"] > 0]
            if len(rows):
                low.append(int(rows["begin"].min()))
                high.append(int(rows["end"].max()))
    if not low:
        raise ImportFileError(
            "this trace holds no CUDA calls, no kernels and no operators: nothing to import; "
            f"it holds {trace.contents or 'nothing'}"
        )
    return min(low), max(high)


def _complete(trace: GatheredTrace) -> None:
    """Derive processes and the GPUs in use from the rows."""
    pids = set().union(*(spool.values("pid") for spool in (trace.calls, trace.activities, trace.switches)))
    for pid in sorted(pids):
        trace.processes.setdefault(pid, {})
    for facts in trace.processes.values():
        facts.setdefault("name", "")
    trace.threads = {tid: row for tid, row in trace.threads.items() if row[0] in trace.processes}
    used = trace.activities.values("device")
    if used and max(used) >= MOST_GPUS:
        raise ImportFileError(f"this trace names GPU {max(used)}: {NO_SUCH_GPU}")
    known = {gpu["index"]: gpu for gpu in trace.gpus}
    if used:  # the list may hold further GPUs of the machine, which were not traced
        trace.gpus = [known.get(index) or gpu_facts(index) for index in sorted(used)]
    kinds = [trace.texts.get(what, -1) for what in ON_GPU]
    if not trace.unproved and not trace.activities.values("what").intersection(kinds):
        trace.unproved = "the trace holds no kernels"


# -- facts ------------------------------------------------------------------------------


def _facts(trace: GatheredTrace, start: int) -> Iterator[Item]:
    yield Sample(APIS, start, {"rows": [_row(name) for name in trace.functions]})
    for pid, facts in sorted(trace.processes.items()):
        known = {"pid": pid, "watched": True, "seen_ns": start, "exited_ns": None, "command": "", "user": ""}
        devices = {"cuda_visible_devices": None, "cuda_device_order": None}
        yield Sample(PROCESS, start, {**known, **devices, **facts, "exited_ns": None})
    if threads := trace.threads | trace.strangers:
        tids = list(threads)
        pids, names = zip(*threads.values(), strict=True)
        yield Sample(NAMES, start, {"tid": tids, "pid": list(pids), "name": list(names)})
    yield from _stacks(trace, start)
    if trace.shapes:
        shapes = {"shape": list(trace.shapes.values()), "sizes": [list(sizes) for sizes in trace.shapes]}
        yield Sample(SHAPES, start, shapes)
    if trace.gpus:
        rows = [{**row, "absent": _ABSENT} for row in trace.gpus]
        driver = str(trace.header.get("driver", ""))
        yield Sample(GPUS, start, {"driver": driver, "gpus": rows, "error": ""})
    for text in trace.notes:
        yield Sample(NOTE, start, {"text": text})
    for text in trace.problems:
        yield Sample(PROBLEM, start, {"text": text})


def _row(name: str) -> list[str]:
    known = api.BY_OP[api.OP_OF[name]] if name in api.OP_OF else None
    if known is not None:
        return [known.name, known.layer, known.group]
    layer = "runtime" if name.startswith(("cuda", "hip")) else "nccl" if name.startswith("nccl") else "driver"
    return [name, layer, "other"]


def _stacks(trace: GatheredTrace, start: int) -> Iterator[Item]:
    numbers: list[int] = []
    stacks: list[list[list[Any]]] = []
    size = 0
    for number, frames in trace.stacks.items():
        own = sum(len(file) + len(function) + 8 for file, _, function in frames)
        if numbers and size + own > _STACK_TEXT:
            yield Sample(FRAMES, start, {"pid": [0] * len(numbers), "stack": numbers, "frames": stacks})
            numbers, stacks, size = [], [], 0
        numbers.append(number)
        stacks.append([list(frame) for frame in frames])
        size += own
    if numbers:
        yield Sample(FRAMES, start, {"pid": [0] * len(numbers), "stack": numbers, "frames": stacks})


def _communicators(trace: GatheredTrace, start: int) -> Records:
    """Ranks of communicators, before all else: the trace does not record their creation."""
    only = next(iter(trace.processes)) if len(trace.processes) == 1 else -1
    known = {
        (only if pid < 0 else pid, number): ranks for (pid, number), ranks in trace.communicators.items()
    }
    rows = [
        (pid, number, len(ranks), ranks.index(rank))
        for (pid, number), ranks in known.items()
        if (rank := trace.processes.get(pid, {}).get("rank", -1)) in ranks
    ]
    records = empty(len(rows))
    records["kind"], records["op"], records["t_end"] = Kind.COMMUNICATOR, Communicator.JOINED, start
    for row, (pid, number, ranks, rank) in enumerate(rows):
        records["pid"][row] = records["tid"][row] = pid
        records["aux"][row] = records["stream"][row] = number
        records["bytes"][row] = ranks << 32 | rank
    return records


# -- rows, a tick at a time --------------------------------------------------------------------------------


def _ticks(trace: GatheredTrace, start: int, end: int, shift: int) -> Iterator[Item]:
    span = end - start
    step = max(min(max(_TICK_NS[0], -(-span // _TICKS)), _TICK_NS[1]), -(-span // _MOST_TICKS))
    marks = [*range(start + step, end, step), max(end, start + 1)]
    realtime = None if trace.realtime_ns is None else trace.realtime_ns - shift
    exits = sorted(
        (int(at) + shift, pid)
        for pid, facts in trace.processes.items()
        if (at := facts.get("exited_ns")) is not None
    )
    by_end, streams, texts = key_of("end"), _streams(trace), list(trace.texts)
    calls = Cursor(trace.calls.sorted(by_end), "end")
    switches = Cursor(trace.switches.sorted(by_end), "end")
    activities = Cursor(trace.activities.sorted(by_end), "end")
    places = Cursor(trace.places.sorted(key_of("time")), "time")
    numbers: dict[int, int] = {}
    if trace.communicators:
        yield _numbered(_communicators(trace, start), numbers)
    for number, mark in enumerate(marks, 1):
        bound = mark - shift
        for rows in calls.until(bound):
            yield _numbered(_call_records(rows, shift, streams), numbers)
        for rows in switches.until(bound):
            yield _numbered(_switch_records(rows, shift), numbers)
        count, earliest = 0, mark
        for rows in activities.until(bound):
            count, earliest = count + len(rows), min(earliest, int(rows["begin"].min()) + shift)
            yield from activity_samples(_activities(rows, shift), texts, mark)
        for rows in places.until(bound):
            for first in range(0, len(rows), _PLACES):
                part = rows[first : first + _PLACES]
                columns = {name: part[name].tolist() for name in ("tid", "stack")}
                yield Sample(PLACES, mark, {"time": (part["time"] + shift).tolist(), **columns})
        while exits and exits[0][0] <= mark:
            at, pid = exits.pop(0)
            yield Sample(PROCESS, at, {"pid": pid, "exited_ns": at})
        lost = trace.lost if mark == marks[-1] else {}
        data = {"number": number, "wall_ns": mark + (realtime or 0), "lost": dict(lost)}
        yield Sample(MARK, mark, data | {"activities": [count, earliest]})


def _numbered(records: Records, following: dict[int, int]) -> Records:
    """Number the records of each CPU without gaps."""
    for cpu in np.unique(records["cpu"]).tolist():
        mine = np.flatnonzero(records["cpu"] == cpu)
        first = following.get(cpu, 1)
        records["seq"][mine] = np.arange(first, first + len(mine)) % (1 << 32)
        following[cpu] = first + len(mine)
    return records


def _streams(trace: GatheredTrace) -> dict[int, int]:
    """Stream by the program's handle, from calls with GPU work."""
    found: dict[int, int] = {}
    for chunk in trace.calls.chunks():
        known = chunk[(chunk["handle"] != 0) & (chunk["stream"] >= 0)]
        found.update(zip(known["handle"].tolist(), known["stream"].tolist(), strict=True))
    return found


def _call_records(rows: Rows, shift: int, streams: dict[int, int]) -> Records:
    records = empty(len(rows))
    records["kind"] = Kind.CALL
    records["t_end"], records["duration"] = rows["end"] + shift, rows["end"] - rows["begin"]
    records["pid"], records["tid"], records["op"] = rows["pid"], rows["tid"], rows["name"]
    stream: Ints = rows["stream"].copy()
    if streams:
        meant = each_number(rows["handle"], lambda handle: streams.get(handle, 0))
        stream = np.where(stream < 0, meant, stream)
    records["stream"] = np.maximum(stream, 0)
    for name in ("bytes", "aux", "stack"):
        records[name] = rows[name].astype(np.uint64)
    records["ret"], records["run_delay"] = rows["ret"], rows["shape"]
    records["depth"] = rows["nested"]
    flags = np.clip(rows["direction"], 0, 4) << COPY_SHIFT
    records["flags"] = flags | np.where(rows["nested"] > 0, int(CallFlag.NESTED), 0)
    return records


def _switch_records(rows: Rows, shift: int) -> Records:
    records = np.zeros(len(rows), RECORD)
    aliased = records.view(ALIASED)
    records["kind"] = Kind.OFFCPU
    records["t_end"], records["duration"] = rows["end"] + shift, rows["end"] - rows["begin"]
    for name in ("pid", "tid", "cpu", "flags"):
        records[name] = rows[name]
    records["op"], records["ret"] = rows["syscall"], rows["state"]
    records["stack"] = rows["stack"].astype(np.uint64)
    for name in ("runnable", "queue_cpu", "waker_pid", "waker_tid", "next_pid", "next_tid"):
        aliased[name] = rows[name]
    return records


def _activities(rows: Rows, shift: int) -> Rows:
    table = np.zeros(len(rows), TABLE)
    for name in TABLE.names or ():
        table[name] = rows[name]
    table["begin"] += shift
    table["end"] += shift
    table["call_begin"] = np.where(table["call_tid"] >= 0, table["call_begin"] + shift, -1)
    return table
