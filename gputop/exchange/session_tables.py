"""A recording as tables with documented columns (docs/exchange.md), a batch of rows at a time.

Times are int64 nanoseconds since the start of the recording, whose wall clock is in ``sessions``. Unknown
values are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gputop.analysis.answer.report import Finding, Report
from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.documents.field_columns import BOOL, INT, REAL, TEXT, columns, row_of
from gputop.engine.facts import Facts, began_ns
from gputop.engine.gpus.gpu_processes import use_by_pid
from gputop.engine.host_figures import SHARES, WHOLE, host_row
from gputop.engine.session_totals import Stats, ThreadTotals
from gputop.exchange.explained import IdlePieces, explained
from gputop.exchange.launches import kernel_names, shapes_of, size_columns
from gputop.exchange.recorded_ranges import RecordedRanges
from probes.activities import TEXTS, activity_rows
from probes.arrays import each, signed
from probes.proc.syscalls import machine_of
from probes.proc.syscalls import name as syscall_name
from probes.samples import ActivityData, FramesData, listed_gpus, sample_data, section
from probes.schema import ALIASED, COPY_SHIFT, NO_SYSCALL, CallFlag, Kind, OffFlag, Records, join, select
from probes.source import ACTIVITY, FRAMES, GPUS, HOST, MARK, RESIDENT, Sample

VERSION: Final = 1

# table -> column -> type; the meaning of each is in docs/exchange.md
COLUMNS: dict[str, dict[str, str]] = {
    "sessions": {
        "source": TEXT, "recorder": TEXT, "start_wall_ns": INT, "start_mono_ns": INT, "duration_ns": INT,
        "host": TEXT, "kernel": TEXT, "driver": TEXT, "private": BOOL, "calls_observed": BOOL,
        "events": INT, "lost_events": INT, "verdict": TEXT, "class": TEXT, "gpu_span_ns": INT,
        "idle_lower_ns": INT, "idle_upper_ns": INT, "idle_estimate_ns": INT,
    },
    "processes": {
        "pid": INT, "name": TEXT, "command": TEXT, "exited": BOOL, "user": TEXT, "container": TEXT,
        "pod": TEXT, "namespace": TEXT, "job_kind": TEXT, "job_id": TEXT, "job_step": TEXT,
        "rank": INT, "world_size": INT, "began_ns": INT, "ended_ns": INT,
    },
    "threads": {"pid": INT, **columns(ThreadTotals, without=("faults", "off_cpu"))},
    "calls": {
        "start_ns": INT, "duration_ns": INT, "pid": INT, "tid": INT, "cpu": INT, "api": TEXT, "layer": TEXT,
        "depth": INT, "nested": BOOL, "within": BOOL, "abandoned": BOOL, "direction": INT, "ret": INT,
        "bytes": INT, "stream": TEXT, "run_delay_ns": INT, "nvcsw": INT, "nivcsw": INT, "stack_id": INT,
        "kernel": TEXT, "grid_x": INT, "grid_y": INT, "grid_z": INT, "block_x": INT, "block_y": INT,
        "block_z": INT, "shared_bytes": INT, "range": TEXT,
    },
    "slices": {
        "start_ns": INT, "duration_ns": INT, "runnable_ns": INT, "pid": INT, "tid": INT, "cpu": INT,
        "state": INT, "involuntary": BOOL, "syscall": TEXT, "waker_pid": INT, "waker_tid": INT,
        "next_pid": INT, "next_tid": INT, "stack_id": INT, "range": TEXT,
    },
    "stacks": {"stack_id": INT, "pid": INT, "depth": INT, "file": TEXT, "line": INT, "function": TEXT},
    "gpu_samples": {
        "time_ns": INT, "gpu": INT, "uuid": TEXT, "utilization_percent": INT, "memory_used_bytes": INT,
        "sm_active_percent": REAL, "power_milliwatts": INT, "sm_clock_mhz": INT, "temperature_celsius": INT,
    },
    "process_samples": {
        "time_ns": INT, "pid": INT, "gpu": INT, "memory_bytes": INT, "sm_percent": INT, "memory_percent": INT,
        "encoder_percent": INT, "decoder_percent": INT, "rss_bytes": INT,
    },
    "host_samples": {
        "time_ns": INT, "cpu_percent": REAL, "load_1": REAL, "load_5": REAL, "load_15": REAL,
        **dict.fromkeys(SHARES, REAL), **dict.fromkeys(WHOLE, INT),
    },
    "gaps": {
        "gpu": TEXT, "start_ns": INT, "end_ns": INT, "cause": TEXT, "title": TEXT, "level": TEXT, "pid": INT,
        "tid": INT, "range": TEXT,
    },
    "activities": {
        "what": TEXT, "name": TEXT, "start_ns": INT, "end_ns": INT, "pid": INT, "tid": INT, "device": INT,
        "stream": INT, "bytes": INT, "detail": TEXT, "direction": INT, "memory": INT, "graph": INT,
        "call_tid": INT, "call_start_ns": INT, "queue_ns": INT, "range": TEXT,
    },
    "findings": {"number": INT, **columns(Finding)},
}  # fmt: skip

_ABOUT = ("user", "container", "pod", "namespace", "job_kind", "job_id", "job_step")
_USED = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")
_ACTIVITY_NUMBERS = ("pid", "tid", "device", "stream", "bytes", "direction", "memory", "graph", "call_tid")

Batch = Mapping[str, Any]  # column -> values, all equally long


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table."""

    table: str
    columns: Batch


def tables(session: Session, progress: Progress = SILENT) -> Iterator[Rows]:
    """Yield all rows of all tables, in the memory of one tick of records and of the explanation.

    Raises:
        GputopError: It cannot be read or understood.
    """
    totals = session.totals(progress)
    report = None
    with understood(session.path):
        ranges = RecordedRanges(reader_of(session))
    if session.calls_observed:
        known = explained(session, progress)
        report = known.report
        yield _gaps(session, known.idle, ranges)
        yield _findings(report)
    yield _session(session, totals, report)
    yield _threads(totals)
    progress.goes_on("writing")
    reader = reader_of(session)
    with understood(session.path):
        items = reader.items()
        made = _Items(session, ranges)
        yield from made.through(progress.through(items, len(reader.marks)))
    yield _processes(session, totals, made.facts)


def _session(session: Session, totals: Stats, report: Report | None) -> Rows:
    header = session.header
    machine = section(header, "machine")
    row = {
        "source": str(header.get("source", "gputop")),
        "recorder": header.get("gputop"),
        "start_wall_ns": totals.start_wall_ns,
        "start_mono_ns": session.start_ns,
        "duration_ns": totals.duration_ns,
        "host": machine.get("host"),
        "kernel": machine.get("kernel"),
        "driver": header.get("driver"),
        "private": bool(header.get("private")),
        "calls_observed": session.calls_observed,
        "events": totals.events,
        "lost_events": totals.lost.events,
        "verdict": report.verdict if report else None,
        "class": report.diagnosis.kind if report and report.diagnosis else None,
        "gpu_span_ns": report.span_ns if report else None,
        "idle_lower_ns": report.idle.lower if report else None,
        "idle_upper_ns": report.idle.upper if report else None,
        "idle_estimate_ns": report.idle.estimate if report else None,
    }
    return _rows("sessions", [row])


def _rows(table: str, rows: list[dict[str, Any]]) -> Rows:
    return Rows(table, {name: [row[name] for row in rows] for name in COLUMNS[table]})


def _processes(session: Session, totals: Stats, facts: Facts) -> Rows:
    """Each observed process with its last facts."""
    rows = []
    for one in totals.processes:
        known: Mapping[str, Any] = facts.of(one.pid) or {}
        began, ended = began_ns(known, session.header), known.get("exited_ns")
        about = {name: known.get(name) or None for name in _ABOUT}
        row = {"pid": one.pid, "name": one.name, "command": one.command, "exited": one.exited, **about}
        row |= {name: known.get(name) for name in ("rank", "world_size")}
        row["began_ns"] = None if began is None else began - session.start_ns
        row["ended_ns"] = None if ended is None else int(ended) - session.start_ns
        rows.append(row)
    return _rows("processes", rows)


def _threads(totals: Stats) -> Rows:
    rows = [
        {"pid": process.pid, **row_of(thread)} for process in totals.processes for thread in process.threads
    ]
    return _rows("threads", rows)


def _gaps(session: Session, idle: IdlePieces, ranges: RecordedRanges) -> Rows:
    columns = {
        "gpu": idle.gpu,
        "start_ns": idle.begin - session.start_ns,
        "end_ns": idle.end - session.start_ns,
        "cause": idle.cause,
        "title": idle.title,
        "level": idle.level,
        "pid": idle.pid,
        "tid": idle.tid,
        "range": ranges.paths(idle.pid, idle.tid, idle.begin),
    }
    return Rows("gaps", columns)


def _findings(report: Report) -> Rows:
    rows = [{"number": number, **row_of(one)} for number, one in enumerate(report.findings, 1)]
    return _rows("findings", rows)


class _Items:
    """Converts items to rows, a tick at a time."""

    def __init__(self, session: Session, ranges: RecordedRanges) -> None:
        self._start = session.start_ns
        self._ranges = ranges
        self.facts = Facts()
        self._held: list[Records] = []
        self._written_stacks: set[int] = set()
        self._rss: dict[int, int] = {}  # by pid, of the last sample
        self._machine = machine_of(session.header)

    def through(self, items: Any) -> Iterator[Rows]:
        for item in items:
            if not isinstance(item, Sample):
                self._held.append(item)
                continue
            self.facts.consume(item)
            if (frames := sample_data(item, FRAMES)) is not None:
                yield self._stacks(frames)
            elif item.kind == GPUS:
                yield self._gpus(item)
                yield self._users(item)
            elif (resident := sample_data(item, RESIDENT)) is not None:
                self._rss = dict(zip(resident.get("pid", ()), resident.get("rss_bytes", ()), strict=False))
            elif item.kind == HOST:
                yield self._host(item)
            elif (activities := sample_data(item, ACTIVITY)) is not None:
                yield self._activities(activities)
            elif item.kind == MARK:
                yield from self._flush()
        yield from self._flush()

    def _flush(self) -> Iterator[Rows]:
        if not self._held:
            return
        records, self._held = join(self._held), []
        yield self._calls(select(records, records["kind"] == Kind.CALL))
        yield self._slices(select(records, records["kind"] == Kind.OFFCPU).view(ALIASED))

    def _times(self, records: Records) -> dict[str, Any]:
        end, duration = signed(records["t_end"]), signed(records["duration"])
        return {"start_ns": end - duration - self._start, "duration_ns": duration}

    def _range(self, records: Any) -> list[str | None]:
        began = self._times(records)["start_ns"] + self._start
        return self._ranges.paths(records["pid"], records["tid"], began)

    def _calls(self, calls: Records) -> Rows:
        flags = calls["flags"]
        names = each(calls["op"], lambda op: self.facts.api(op))
        columns = {
            **self._times(calls),
            **_plain(calls, "pid", "tid", "cpu", "depth", "ret", "nvcsw", "nivcsw"),
            "api": [name for name, _ in names],
            "layer": [layer for _, layer in names],
            "nested": (flags & CallFlag.NESTED) != 0,
            "within": (flags & CallFlag.WITHIN) != 0,
            "abandoned": (flags & CallFlag.ABANDONED) != 0,
            "direction": (flags >> COPY_SHIFT).astype(np.int64),
            "bytes": signed(calls["bytes"]),
            "stream": each(calls["stream"], hex),
            "run_delay_ns": np.where(flags & CallFlag.COUNTERS, calls["run_delay"], 0).astype(np.int64),
            "stack_id": calls["stack"].view(np.int64),
            "kernel": kernel_names(calls, self.facts),
            **size_columns(shapes_of(calls, self.facts)),
            "range": self._range(calls),
        }
        return Rows("calls", columns)

    def _slices(self, rows: Records) -> Rows:
        columns = {
            **self._times(rows),
            **_plain(rows, "pid", "tid", "cpu", "waker_pid", "waker_tid", "next_pid", "next_tid"),
            "runnable_ns": signed(rows["runnable"]),
            "state": rows["ret"].astype(np.int64),
            "involuntary": (rows["flags"] & OffFlag.INVOLUNTARY) != 0,
            "syscall": each(rows["op"], self._syscall),
            "stack_id": np.ascontiguousarray(rows["stack"]).view(np.int64),
            "range": self._range(rows),
        }
        return Rows("slices", columns)

    def _syscall(self, number: int) -> str | None:
        return None if number == NO_SYSCALL else syscall_name(number, self._machine) or str(number)

    def _stacks(self, data: FramesData) -> Rows:
        rows = []
        for pid, stack in zip(data.get("pid", ()), data.get("stack", ()), strict=False):
            number = int(np.uint64(stack).view(np.int64))
            if number in self._written_stacks:
                continue
            self._written_stacks.add(number)
            for depth, frame in enumerate(self.facts.stacks.frames(stack)):
                rows.append({"stack_id": number, "pid": pid, "depth": depth, **frame.to_json()})
        return _rows("stacks", rows)

    def _activities(self, data: ActivityData) -> Rows:
        rows, texts = activity_rows(data)
        linked = rows["call_tid"] >= 0
        columns = {
            **{key: [texts[number] for number in rows[key].tolist()] for key in TEXTS},
            "start_ns": (rows["begin"] - self._start).tolist(),
            "end_ns": (rows["end"] - self._start).tolist(),
            **{key: _known(rows[key].tolist()) for key in _ACTIVITY_NUMBERS},
            "call_start_ns": _where(linked, rows["call_begin"] - self._start),
            "queue_ns": _where(linked, rows["begin"] - rows["call_begin"]),
            # GPU work has the ranges of the call that enqueued it
            "range": self._ranges.paths(
                rows["pid"],
                np.where(linked, rows["call_tid"], rows["tid"]),
                np.where(linked, rows["call_begin"], rows["begin"]),
            ),
        }
        return Rows("activities", columns)

    def _gpus(self, sample: Sample) -> Rows:
        figures = [name for name in COLUMNS["gpu_samples"] if name not in ("time_ns", "gpu", "uuid")]
        rows = [
            {
                "time_ns": sample.time_ns - self._start,
                "gpu": gpu.get("index"),
                "uuid": gpu.get("uuid"),
                **{name: gpu.get(name) for name in figures},
            }
            for gpu in listed_gpus(sample)
        ]
        return _rows("gpu_samples", rows)

    def _users(self, sample: Sample) -> Rows:
        """GPU memory of processes, and their use in NVML's newest sample."""
        rows = []
        for gpu in listed_gpus(sample):
            used = use_by_pid(gpu.get("process_utilization"))
            for client in gpu.get("clients") or ():
                pid = int(client["pid"])
                # NVML's samples leave out idle processes
                figures = dict.fromkeys(_USED) if used is None else used.get(pid, dict.fromkeys(_USED, 0))
                row = {"time_ns": sample.time_ns - self._start, "pid": pid, "gpu": gpu.get("index")}
                row |= {name: figures.get(name) for name in _USED}
                rows.append(
                    row | {"memory_bytes": client.get("memory_bytes"), "rss_bytes": self._rss.get(pid)}
                )
        return _rows("process_samples", rows)

    def _host(self, sample: Sample) -> Rows:
        figures = host_row(sample.data)
        row: dict[str, Any] = {"time_ns": sample.time_ns - self._start}
        load = (*figures.load, None, None, None)
        row |= {f"load_{minutes}": load[at] for at, minutes in enumerate((1, 5, 15))}
        for name in COLUMNS["host_samples"].keys() - row.keys():
            row[name] = getattr(figures, name)
        return _rows("host_samples", [row])


def _known(values: Sequence[int]) -> list[int | None]:
    return [value if value >= 0 else None for value in values]


def _where(known: Any, values: Any) -> list[int | None]:
    return [value if one else None for one, value in zip(known.tolist(), values.tolist(), strict=True)]


def _plain(records: Records, *names: str) -> dict[str, Any]:
    return {name: records[name].astype(np.int64) for name in names}
