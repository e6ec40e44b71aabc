"""Whether NVML agrees: a GPU that was busy while all known streams were empty has invisible work."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputop.explain.evidence import Evidence
from gputop.explain.gaps import GpuTime
from gputop.explain.ranges import covered

WINDOW_NS = 1_000_000_000  # NVML's utilisation looks back 1/6 s to 1 s, by product; taken for the longest
SURE = 0.25  # busy this much more than the proofs allow is no rounding


def contradictions(evidence: Evidence, gpu: GpuTime) -> tuple[int, int]:
    """(samples that contradict the proofs, samples that could): utilisation against proved idleness.

    A sample says which part of its window some kernel ran. It contradicts where that part and the part that
    was proved empty exceed the window, by a clear margin.
    """
    against = asked = 0
    for device, index in enumerate(gpu.devices.index):
        mine = gpu.gaps.device == device
        cover = (gpu.gaps.begin[mine], gpu.gaps.end[mine])
        span = next((span for span in gpu.spans if span.device == device), None)
        if index < 0 or span is None or not mine.any():
            continue
        for sample in evidence.gpus:
            begin = sample.time_ns - WINDOW_NS
            if begin < span.begin or sample.time_ns > span.end:
                continue
            busy = _utilisation(sample.data, index)
            if busy is None:
                continue
            empty = covered(cover, *_one(begin, sample.time_ns))[0] / WINDOW_NS
            # a shorter window may lie wholly in the busy part: only what no window of 1/6 s allows counts
            worst = covered(cover, *_one(sample.time_ns - WINDOW_NS // 6, sample.time_ns))[0] / (
                WINDOW_NS // 6
            )
            asked += 1
            against += busy > 1 - min(empty, worst) + SURE
    return against, asked


def _one(begin: int, end: int) -> tuple[Any, Any]:
    return np.array([begin]), np.array([end])


def _utilisation(data: dict[str, Any], index: int) -> float | None:
    for row in data.get("gpus") or ():
        if row.get("index") == index and row.get("utilization_percent") is not None:
            return float(row["utilization_percent"]) / 100
    return None


def strangers(evidence: Evidence, gpu: GpuTime) -> frozenset[int]:
    """Processes that hold memory on a GPU of this recording and whose calls were not seen."""
    known = {int(pid) for pid in gpu.streams.pid.tolist()} | set(evidence.facts.processes)
    found: set[int] = set()
    for sample in evidence.gpus:
        for row in sample.data.get("gpus") or ():
            if row.get("index") in gpu.devices.index:
                found |= {int(pid) for pid, _bytes in row.get("processes") or ()}
    inner = {
        int(facts["namespace_pid"])
        for facts in evidence.facts.processes.values()
        if facts.get("namespace_pid") is not None
    }
    return frozenset(found - known - inner)
