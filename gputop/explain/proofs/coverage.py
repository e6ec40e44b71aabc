"""Whether NVML agrees: a GPU that was busy while all known streams were empty has invisible work."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, covered
from gputop.explain.proofs.gaps import GpuTime
from probes.samples import listed_gpus
from probes.source import Sample

LONGEST_NS = 1_000_000_000
# how far NVML's utilisation looks back, by product
WINDOWS_NS = tuple(LONGEST_NS // part for part in (6, 4, 3, 2, 1))
SURE = 0.25  # busy this much more than the proofs allow is no rounding


def contradictions(evidence: Evidence, gpu: GpuTime) -> tuple[int, int]:
    """(samples that contradict the proofs, samples that could): utilisation against proved idleness.

    A sample says which part of its window some kernel ran. It contradicts where that part and the part that
    was proved empty exceed the window by a clear margin, whichever window it is: its length is not known, and
    the figure may be as old as it is long.
    """
    against = asked = 0
    for device, index in enumerate(gpu.devices.index):
        mine = gpu.gaps.device == device
        cover = (gpu.gaps.begin[mine], gpu.gaps.end[mine])
        span = next((span for span in gpu.spans if span.device == device), None)
        if index < 0 or span is None or not mine.any():
            continue
        for sample in evidence.gpus:
            # what lies before the span counts as busy, so a window may reach back over its begin
            if not span.begin <= sample.time_ns <= span.end:
                continue
            busy = _utilisation(sample, index)
            if busy is None:
                continue
            empty = float((covered(cover, *_windows(sample.time_ns)) / _LENGTHS).min())
            asked += 1
            against += busy > 1 - empty + SURE
    return against, asked


_LENGTHS = np.repeat(np.array(WINDOWS_NS, np.int64), 3)


def _windows(moment: int) -> tuple[Ints, Ints]:
    """The windows that a sample may tell of: of each length, fresh, half as old as long, as old as long."""
    end = moment - _LENGTHS * np.tile([0, 1, 2], len(WINDOWS_NS)) // 2
    return end - _LENGTHS, end


def _utilisation(sample: Sample, index: int) -> float | None:
    for row in listed_gpus(sample):
        if row.get("index") == index and row.get("utilization_percent") is not None:
            return float(row["utilization_percent"]) / 100
    return None


def others_at_work(evidence: Evidence, gpu: GpuTime, device: int) -> float:
    """The share of a GPU's span in which processes that are not watched used it, as NVML tells, 0 to 1.

    Of several the busiest counts: NVML's shares of processes that take turns overlap.
    """
    span = next(one for one in gpu.spans if one.device == device)
    unknown, index, shares = strangers(evidence, gpu), gpu.devices.index[device], []
    for sample in evidence.gpus:
        if not span.begin <= sample.time_ns <= span.end:
            continue
        for row in listed_gpus(sample):
            told = row.get("process_utilization")
            if row.get("index") == index and isinstance(told, dict):
                used = zip(told.get("pid", ()), told.get("sm_percent", ()), strict=False)
                shares.append(max((int(part or 0) for pid, part in used if pid in unknown), default=0))
    return float(np.mean(shares)) / 100 if shares else 0.0


def strangers(evidence: Evidence, gpu: GpuTime) -> frozenset[int]:
    """Processes that hold memory on a GPU of this recording and whose calls were not seen."""
    known = {int(pid) for pid in gpu.streams.pid.tolist()} | set(evidence.facts.processes)
    found: set[int] = set()
    for sample in evidence.gpus:
        for row in listed_gpus(sample):
            if row.get("index") in gpu.devices.index:
                found |= {int(pid) for pid, _bytes in row.get("processes") or ()}
    numbers = (facts.get("namespace_pid") for facts in evidence.facts.processes.values())
    inner = {int(number) for number in numbers if number is not None}
    return frozenset(found - known - inner)
