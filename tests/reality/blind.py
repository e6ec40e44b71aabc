"""The same trace as gputop would have seen it live: its calls, and what NVML would have told. No kernel.

What the calls prove, bound and estimate is held against the kernels that were left out.

- Waits keep their stream where the file reports it, or where only one stream of their process ran anything.
- Events have no identity in such files, so nothing is taken from waits for them.
- NVML's utilisation is the share of its window in which a kernel ran; windows are 1/6 s and 1 s, by product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gputop
from gputop.analysis.build import examine
from gputop.analysis.evidence.api_classes import (
    COPY,
    FILL,
    GRAPH,
    KERNEL,
    WAIT,
    Activities,
    ActivityGatherer,
)
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.columns import Ints, covered, intersect, length, union
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.api.session import reader_of
from probes.activities import Table
from probes.schema import Kind, Records
from probes.source import ACTIVITY, APIS, GPUS, MARK, PROCESS, Item, Sample

WINDOWS_NS = (1_000_000_000 // 6, 1_000_000_000)
EVERY_NS = 250_000_000
LONG_NS = 2_000_000_000  # a file from which on an estimate must be near
NEAR = 0.05  # to the truth
SKEW_NS = 20_000  # by which the clocks of host and GPU are apart in such a file
SMALL = 0.001
DEFAULT = 7  # CUPTI's number of the default stream of a process's first context
_STREAMS = 1_000  # + CUPTI's number: the handle of any other stream
# what says nothing without an event, or without what it returned
_DUMB = (
    "cudaEventSynchronize",
    "cudaEventQuery",
    "cudaEventElapsedTime",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuEventRecord",
    "cuStreamQuery",
    "cuStreamWaitEvent",
)
_STREAM_WAITS = ("cudaStreamSynchronize", "cuStreamSynchronize", "cudaStreamSynchronize_ptsz")


@dataclass(frozen=True, slots=True)
class Blind:
    """One GPU of one file.

    Attributes:
        span_ns: From its first launch to the end of what is known, without its kernels.
        idle: The truth in that time, by the kernels; a share, as the next ones.
        nothing: The time in which nothing was left to do: what was launched had ended.
        started: The time without what had been launched and waited to run, beside that which ran.
        error: How far the estimate may be off by itself.
        proved, most, estimate: What gputop says: bounds, and the estimate where there is one.
        overlap_ns: The longest time within proved idle time in which a kernel or copy ran.
    """

    name: str
    gpu: int
    window_ns: int
    span_ns: int
    idle: float
    nothing: float
    started: float
    proved: float
    most: float
    estimate: float | None
    error: float
    source: str
    overlap_ns: int

    @property
    def bounded(self) -> bool:
        """Whether the truth lies within the bounds: work is there from its launch on, and runs later."""
        return self.proved <= self.idle + SMALL and self.nothing <= self.most + SMALL

    @property
    def apart(self) -> float | None:
        """By how much the estimate is off, where there must be one that is near.

        Work that was launched and did not start is idle time to NVML, and work to calls alone: what lies
        between the two is not off.
        """
        told = self.estimate is not None and self.source and self.span_ns > LONG_NS
        said = self.estimate or 0.0
        return max(said - self.idle, self.started - said, 0.0) if told else None


def blinded(session: Path, name: str) -> Iterator[Blind]:
    """Of each GPU of an imported file, for each window of NVML; none where its launches are not in it."""
    with gputop.open_session(session) as opened:
        reader = reader_of(opened)
        items = list(reader.items_between(-1, len(reader.marks)))
        header = dict(reader.header)
    gatherer = ActivityGatherer()
    for item in items:
        if isinstance(item, Sample) and item.kind == ACTIVITY:
            gatherer.consume(item.data)
    activities = gatherer.table()
    rows = activities.of(KERNEL, COPY, FILL, GRAPH)
    indexes = np.unique(rows["device"])
    rows["device"] = np.searchsorted(indexes, rows["device"])  # a machine that has no other GPUs
    start = _linked_from(rows)
    if start is None or header.get("unproved"):
        return
    for window in WINDOWS_NS:
        feed = Gatherer({**header, "source": "gputop"})
        for item in _without_kernels(items, activities, rows, window):
            feed.feed(item)
        evidence = assemble(feed)
        # what began before the file has ended by then, so all that proofs ask for was seen
        evidence = replace(evidence, complete=frozenset(evidence.threads.pid.tolist()))
        if start >= evidence.end_ns:
            return
        report, scene, _outcome = examine(evidence, None, (start, evidence.end_ns))
        gpu = scene.analysis.gpu
        for span, told in zip(gpu.spans, report.gpus, strict=True):
            index = gpu.devices.index[span.device]
            own = rows[rows["device"] == index]
            busy = union(own["begin"].astype(np.int64), own["end"].astype(np.int64))
            if not span.span_ns or not len(own):
                continue
            whole = (np.array([span.begin]), np.array([span.end]))
            ran = length(*intersect(busy, whole))
            given = union(own["call_begin"].astype(np.int64), own["end"].astype(np.int64))
            left = length(*intersect(given, whole))
            gaps = gpu.gaps
            mine = gaps.proved & (gaps.device == span.device)
            over = covered(busy, gaps.begin[mine], gaps.end[mine])
            idle = told.idle
            yield Blind(
                name,
                int(indexes[index]),
                window,
                span.span_ns,
                1 - ran / span.span_ns,
                1 - left / span.span_ns,
                1 - length(*intersect(_returned(evidence, own), whole)) / span.span_ns,
                idle.lower / span.span_ns,
                idle.upper / span.span_ns,
                None if idle.estimate is None else idle.estimate / span.span_ns,
                (told.account.error_ns or 0) / span.span_ns,
                told.account.source or "",
                int(over.max(initial=0)),
            )


def _returned(evidence: Evidence, rows: Table) -> tuple[Ints, Ints]:
    """From the return of the call that gave each work to that work's end, as one."""
    calls = evidence.calls
    keys = evidence.key(calls["row"], calls["begin"])
    thread = evidence.threads.row(rows["call_tid"])
    place = np.minimum(
        np.searchsorted(keys, evidence.key(np.maximum(thread, 0), rows["call_begin"])), len(keys) - 1
    )
    given = np.minimum(calls["end"][place], rows["begin"]).astype(np.int64)
    return union(given, rows["end"].astype(np.int64))


def _linked_from(rows: Table) -> int | None:
    """From when on the launch of everything is in the file; None where that is never so."""
    lost = rows[rows["call_tid"] < 0]
    if not len(rows) or len(lost) == len(rows):
        return None
    since = int(lost["end"].max()) if len(lost) else int(rows["call_begin"].min())
    later = int(np.count_nonzero(rows["begin"] > since))
    return since if later > len(rows) // 2 else None


def _without_kernels(items: list[Item], activities: Activities, rows: Table, window: int) -> Iterator[Item]:
    facts: list[dict[str, Any]] = []
    ops: list[str] = []
    told: list[Sample] = []
    streams = _streams_of_waits(activities)
    single, chosen = _single(rows, "stream"), _single(rows, "device")
    for item in items:
        if not isinstance(item, Sample):
            while told and len(item) and told[0].time_ns <= int(item["t_end"][0]):
                yield told.pop(0)
            yield _as_seen(item, ops, streams, single)
            continue
        if item.kind == ACTIVITY:
            continue
        if item.kind == MARK:  # it counts what is left out here, which would be mistaken for lost
            item = Sample(MARK, item.time_ns, {**item.data, "activities": None})
        if item.kind == APIS:
            names = [list(row) for row in item.data["rows"]]
            ops = [str(row[0]) for row in names]
            # one more function, which means nothing
            yield Sample(APIS, item.time_ns, {"rows": [*names, ["nothing", "runtime", "other"]]})
            continue
        if item.kind == GPUS and not told and item.data.get("gpus"):
            count = int(rows["device"].max()) + 1
            facts = [{**row, "index": place} for place, row in enumerate(item.data["gpus"][:count])]
            item = Sample(GPUS, item.time_ns, {**item.data, "gpus": facts})
            told = list(_utilisation(facts, rows, activities, window))
        while told and told[0].time_ns <= item.time_ns:
            yield told.pop(0)
        if item.kind == PROCESS and item.data.get("pid") in chosen:
            # which GPU it chose, at its start perhaps, would have been seen
            seen = {"cuda_visible_devices": str(chosen[item.data["pid"]]), "cuda_device_order": "PCI_BUS_ID"}
            yield Sample(PROCESS, item.time_ns, {**item.data, **seen})
            continue
        yield item
    yield from told


def _utilisation(
    facts: list[dict[str, Any]], rows: Table, activities: Activities, window: int
) -> Iterator[Sample]:
    """What NVML would have told of each GPU, four times a second."""
    kernels = rows[np.isin(np.array(activities.texts)[rows["what"]], [KERNEL, GRAPH])]
    first, last = int(rows["begin"].min()), int(rows["end"].max())
    times = np.append(np.arange(first + EVERY_NS, last, EVERY_NS), last)  # and when the recording ends
    shares: dict[int, Ints] = {}
    for gpu in facts:
        own = kernels[kernels["device"] == gpu["index"]]
        busy = union(own["begin"].astype(np.int64), own["end"].astype(np.int64))
        shares[gpu["index"]] = covered(busy, times - window, times)
    for place, at in enumerate(times.tolist()):
        listed = [
            {
                **gpu,
                "utilization_percent": round(100 * int(shares[gpu["index"]][place]) / window),
                "unavailable": {},
            }
            for gpu in facts
        ]
        yield Sample(GPUS, at, {"driver": "", "gpus": listed, "error": ""})


def _streams_of_waits(activities: Activities) -> dict[tuple[int, int], int]:
    """The stream of each wait that the file reports, by (thread, begin of its call)."""
    rows = activities.of(WAIT)
    stream = np.array(["Stream Sync" in text for text in activities.texts] or [False])
    rows = rows[stream[rows["name"]] & (rows["stream"] >= 0) & (rows["call_tid"] >= 0)]
    keys = zip(rows["call_tid"].tolist(), rows["call_begin"].tolist(), strict=True)
    return dict(zip(keys, rows["stream"].tolist(), strict=True))


def _single(rows: Table, name: str) -> dict[int, int]:
    """The one stream or device of each process that has no other."""
    found: dict[int, set[int]] = {}
    for pid, one in np.unique(np.stack([rows["pid"], rows[name]]), axis=1).T.tolist():
        found.setdefault(pid, set()).add(one)
    return {pid: numbers.pop() for pid, numbers in found.items() if len(numbers) == 1}


def _as_seen(
    calls: Records, ops: list[str], streams: dict[tuple[int, int], int], single: dict[int, int]
) -> Records:
    """Calls with handles of streams in place of CUPTI's numbers; what has no identity means nothing."""
    seen: Records = calls.copy()
    nothing = len(ops)
    names = np.array([*ops, "nothing"])[np.minimum(seen["op"], nothing)]
    is_call = seen["kind"] == Kind.CALL
    dumb = is_call & np.isin(names, _DUMB)
    for row in np.flatnonzero(is_call & np.isin(names, _STREAM_WAITS)).tolist():
        begin = int(seen["t_end"][row]) - int(seen["duration"][row])
        stream = streams.get((int(seen["tid"][row]), begin), single.get(int(seen["pid"][row]), -1))
        if stream < 0:
            dumb[row] = True
        else:
            seen["stream"][row] = stream
    seen["op"][dumb] = nothing
    known = is_call & (seen["stream"] != 0)
    number = seen["stream"]
    seen["stream"] = np.where(known, np.where(number == DEFAULT, 0, number + _STREAMS), number)
    return seen
