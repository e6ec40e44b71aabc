"""Allocations and frees with known figures, and what is made of them."""

from __future__ import annotations

from typing import Any

from gputop.analysis.answer.memory_report import MemoryReport
from gputop.analysis.answer.report import Report
from gputop.analysis.build import explain
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.evidence.memory_ledger import Held
from gputop.recording.adaptive import RecordingDetail
from probes.source import FRAMES, GPUS, Item, Sample
from tests import items
from tests.items import HEADER, MS, START

MIB, GIB = 1 << 20, 1 << 30
A, B, C = 1 << 20, 2 << 20, 3 << 20  # stacks
LINES = {A: 10, B: 20, C: 30}


def stacks() -> Sample:
    frames = [[["/w/train.py", line, "step"]] for line in LINES.values()]
    return Sample(FRAMES, START, {"pid": [10] * len(LINES), "stack": list(LINES), "frames": frames})


def took(at_ms: int, address: int, size: int, stack: int = A, op: str = "cudaMalloc", **more: int) -> Item:
    return items.call(START + at_ms * MS, 1000, op, aux=address, bytes=size, stack=stack, **more)


def freed(at_ms: int, address: int, op: str = "cudaFree", duration: int = 1000, **more: int) -> Item:
    return items.call(START + at_ms * MS, duration, op, aux=address, **more)


def held_after(*rows: Item) -> dict[int, int]:
    """Line -> bytes."""
    held = Held()
    for row in rows:
        held.add(row)  # type: ignore[arg-type]
    held.mark(START + 10_000 * MS)
    found: dict[int, int] = {}
    for (_pid, _use, stack), one in held.sums.items():
        found[LINES[stack]] = found.get(LINES[stack], 0) + one.held
    return {line: size for line, size in found.items() if size}


def nvml(at_ms: int, used: int, holders: dict[int, int], total: int = 80 * GIB) -> Sample:
    row = {"index": 0, "name": "GPU", "uuid": "u", "memory_total_bytes": total, "memory_used_bytes": used}
    listed = {"processes": [[pid, size] for pid, size in holders.items()], "unavailable": {}}
    return Sample(GPUS, START + at_ms * MS, {"driver": "1", "gpus": [{**row, **listed}], "error": ""})


def report_of(*stream: Item, ticks: int = 8, detail: RecordingDetail | None = None, **header: Any) -> Report:
    gatherer = Gatherer({**HEADER, "addresses": True, **header})
    end = max([int(one["t_end"].max()) for one in stream if not isinstance(one, Sample)])
    for item in (items.apis(), items.process(10, name="train"), items.process(77, name="notebook"), stacks()):
        gatherer.feed(item)
    marks = [items.mark(number, START + (end - START) * number // ticks) for number in range(1, ticks + 1)]
    timed = [
        (one.time_ns if isinstance(one, Sample) else int(one["t_end"][0]), one) for one in (*stream, *marks)
    ]
    observed = [item for _at, item in sorted(timed, key=lambda one: one[0])]
    if detail is not None:
        observed = [*(one for item in observed for one in detail.consume(item)), *detail.finish()]
    for item in observed:
        gatherer.feed(item)
    return explain(assemble(gatherer))


def memory(*stream: Item, **more: Any) -> MemoryReport:
    found = report_of(*stream, **more).memory
    assert found is not None
    return found
