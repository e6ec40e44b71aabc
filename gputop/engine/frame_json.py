"""A frame as JSON: what ``--json`` prints, documented in docs/json.md ("gputop.frame/1").

Every number carries its unit in the name of its key. What cannot be known is ``null``. Names come as
they are: JSON escapes what is dangerous to a terminal.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Sequence
from typing import Any, Final

from gputop.documents.frame_schema import FrameDocument
from gputop.engine.calls.histogram import METHOD
from gputop.engine.frame import Frame, GpuProcess, GpuRow, ProcessRow, Share, Storm, ThreadRow
from gputop.engine.threads.fault_sums import faults_json

SCHEMA: Final = "gputop.frame/1"
MOST_THREADS: Final = 512  # of a process that are listed
_MOST_IN_ALL, _FEWEST = 4096, 8  # of all processes, and of each however many there are
_FROM_CALLS = {"events_per_second", "calls_per_second", "top_api_ns_per_second", "top_api_p99_ns"}


def frame_to_json(frame: Frame) -> FrameDocument:
    """The frame as an object that ``json.dumps`` takes.

    Args:
        frame: Any frame, live or replayed.
    """
    plain = ("number", "time_ns", "wall_ns", "start_ns", "window_ns", "utc_offset_s", "rate_hz")
    rates = ("own_cpu_percent", "own_rss_bytes", "events_per_second", "calls_per_second", "driver")
    made: dict[str, Any] = {"schema": SCHEMA}
    made |= {key: getattr(frame, key) for key in plain}
    made["percentiles"] = METHOD
    made["lost"] = {"events": frame.lost.events, "by_kind": dict(frame.lost.by_kind)}
    made |= {key: getattr(frame, key) for key in rates}
    made["gpus"] = [_gpu(gpu) for gpu in frame.gpus]
    watched = [row for row in frame.processes if row.watched]  # the screen lists others of the GPUs as well
    most = _most_threads(watched)
    made["processes"] = [_process(row, most) for row in watched]
    made["lines"] = frame.lines
    made["calls_observed"] = frame.calls_observed
    if not frame.calls_observed:
        for row in (made, *made["processes"]):
            row |= dict.fromkeys(_FROM_CALLS & row.keys())
            for thread in row.get("threads", ()):
                thread["cuda"] = None
    made["host"] = None if frame.host is None else _fields(frame.host)
    made["storms"] = [_storm(storm) for storm in frame.storms]
    made["problems"] = list(frame.problems)
    made["notes"] = list(frame.notes)
    finite: FrameDocument = _finite(made)
    return finite


def _fields(row: Any, *left_out: str) -> dict[str, Any]:
    """The fields of a row in their order; the names in frame.py are the names in JSON."""
    names = (field.name for field in dataclasses.fields(row))
    return {name: getattr(row, name) for name in names if name not in left_out}


def _gpu(gpu: GpuRow) -> dict[str, Any]:
    made = _fields(gpu, "unavailable", "mig", "processes")
    made["unavailable"] = dict(gpu.unavailable)
    made["mig"] = [_fields(row, "unavailable") | {"unavailable": dict(row.unavailable)} for row in gpu.mig]
    made["processes"] = None if gpu.processes is None else [_gpu_process(row) for row in gpu.processes]
    return made


def _gpu_process(row: GpuProcess) -> dict[str, Any]:
    """Without what is not known: recordings of older gputops do not tell it of anybody."""
    return _fields(row, *(["idle_ns"] if row.idle_ns is None else []))


def _most_threads(processes: Sequence[ProcessRow]) -> int:
    """How many of each are listed: a process may have ten thousand, and there may be many of these."""
    most = MOST_THREADS
    while most > _FEWEST and sum(min(len(row.threads), most) for row in processes) > _MOST_IN_ALL:
        most //= 2
    return most


def _busiest(threads: Sequence[ThreadRow], most: int) -> list[ThreadRow]:
    """Those that did most within the window, in their order."""
    if len(threads) <= most:
        return list(threads)
    chosen = heapq.nlargest(
        most, range(len(threads)), lambda at: (threads[at].cuda, _busy_ns(threads[at]), -at)
    )
    return [threads[at] for at in sorted(chosen)]


def _busy_ns(row: ThreadRow) -> int:
    return row.on_cpu_ns + row.runnable_ns


def _process(row: ProcessRow, most: int) -> dict[str, Any]:
    apart = ("calls", "threads", "lines", "unknown_lines", "waits", "unknown_waits")
    # the last ones are for pages of the screen
    made = _fields(row, *apart, "belongs", "watched", "stacks", "samples", "sampled", "kernels", "faults")
    made["calls"] = [_fields(call) | {"at_most": call.at_most} for call in row.calls]
    made["threads"] = [_thread(thread) for thread in _busiest(row.threads, most)]
    if unlisted := len(row.threads) - len(made["threads"]):
        made["unlisted_threads"] = unlisted
    made["lines"] = [
        dict(row.line.to_json())
        | _fields(row, "line", "frames")
        | {"frames": [frame.to_json() for frame in row.frames]}
        for row in row.lines
    ]
    made["unknown_lines"] = row.unknown_lines
    made["waits"] = [dict(wait.line.to_json()) | _fields(wait, "line") for wait in row.waits]
    made["unknown_waits"] = row.unknown_waits
    if row.faults is not None:
        made["faults"] = faults_json(row.faults)
    if row.belongs:
        made["belongs"] = dict(row.belongs)
    return made


def _thread(row: ThreadRow) -> dict[str, Any]:
    return _fields(row, "preempted_by") | {"preempted_by": _shares(row.preempted_by)}


def _storm(storm: Storm) -> dict[str, Any]:
    return _fields(storm, "occupants") | {"occupants": _shares(storm.occupants)}


def _shares(shares: tuple[Share, ...]) -> list[dict[str, Any]]:
    return [_fields(share) for share in shares]


def _finite(value: Any) -> Any:
    """The value with tuples as lists, and ``None`` for what JSON has no number for (NaN, infinity)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
