"""NVML as a witness: the share of the time with a kernel running, and whether it agrees with the proofs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.columns import Ints, covered
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import GpuTime
from probes.samples import GpuData, listed_gpus
from probes.source import Sample

FEWEST = 3  # samples
SHORTEST_NS = 1_500_000_000  # of a stretch: a window and a half of the slowest product
# age of the middle of NVML's window when its figure is read: fresh and short, usual, old and long
AGES_NS = (100_000_000, 350_000_000, 800_000_000)
_USUAL = 1
WINDOWS_NS = (1_000_000_000 // 6, 250_000_000, 500_000_000, 1_000_000_000)  # of utilisation, by product
OTHERS = 0.1  # share of the time in which unwatched processes use a GPU, from which on nothing is proved
MANY = 6  # readings that determine a window
ROUNDED = 0.005  # NVML reports whole percents
GPM_KEY, SAMPLES_KEY = "graphics_active_percent", "utilization_samples"
UTILIZATION_KEY = "utilization_percent"


@dataclass(frozen=True, slots=True)
class Witness:
    """NVML's figure for one GPU."""

    busy: float  # the share of the time in which a kernel ran, 0 to 1
    error: float  # its error, as a share
    samples: int  # number of readings
    source: str  # ``gpm``, ``samples`` or ``utilization``


@dataclass(frozen=True, slots=True)
class ModelledWork:
    """The work of a GPU by a model."""

    busy: tuple[Ints, Ints]  # when it was at work: disjoint intervals, in order
    moved: Ints  # when copies and fills were enqueued, in order
    moved_ns: npt.NDArray[np.float64]  # duration of each of these, ns

    def kernels(self, begin: Ints, end: Ints) -> npt.NDArray[np.float64]:
        """Return the time with kernels in each [begin, end), ns: the work without copies and fills."""
        total = np.append(0.0, np.cumsum(self.moved_ns))
        moved = total[np.searchsorted(self.moved, end)] - total[np.searchsorted(self.moved, begin)]
        ran: npt.NDArray[np.float64] = np.maximum(covered(self.busy, begin, end) - moved, 0.0)
        return ran


def witness(evidence: Evidence, index: int, low: int, high: int) -> Witness | None:
    """Return NVML's figure for one GPU between two times, ns of CLOCK_MONOTONIC.

    None for an unknown GPU, fewer than ``FEWEST`` readings, a stretch shorter than ``SHORTEST_NS``.
    """
    if index < 0 or high - low < SHORTEST_NS:
        return None
    return (
        _between(*readings(evidence, index, GPM_KEY), low, high, "gpm")
        or _between(*_samples(evidence, index), low, high, "samples")
        or _by_utilization(evidence, index, low, high)
    )


def readings(evidence: Evidence, index: int, key: str) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return (time, value) of each sample of a GPU with a figure, in order of time."""
    rows = sorted(
        (sample.time_ns, float(row[key]))
        for sample in evidence.gpus
        for row in _rows(sample, index)
        if row.get(key) is not None
    )
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)


def _rows(sample: Sample, index: int) -> list[GpuData]:
    return [row for row in listed_gpus(sample) if row.get("index") == index]


def _samples(evidence: Evidence, index: int) -> tuple[Ints, npt.NDArray[np.float64]]:
    """(time, value) of the samples in NVML's own buffer, in order of time."""
    rows = {
        int(at): float(percent)
        for sample in evidence.gpus
        for row in _rows(sample, index)
        for at, percent in row.get(SAMPLES_KEY) or ()
    }
    return np.array(sorted(rows), np.int64), np.array([rows[at] for at in sorted(rows)], np.float64)


def _between(time: Ints, value: npt.NDArray[np.float64], low: int, high: int, source: str) -> Witness | None:
    """Each reading covers the time since the one before."""
    begin = np.append(low, time[:-1]) if len(time) else time
    shared = np.maximum(np.minimum(time, high) - np.maximum(begin, low), 0)
    shared[:1] = 0  # the first one's start is unknown
    known = int(shared.sum())
    if np.count_nonzero(shared) < FEWEST or known < 0.5 * (high - low):
        return None
    busy = float((shared * value).sum() / known / 100)
    spread = float(np.std(value[shared > 0])) / 100
    # time without readings may have been like the rest, within its spread
    unknown = 1 - known / (high - low)
    return Witness(busy, ROUNDED + unknown * max(spread, 0.05), int(np.count_nonzero(shared)), source)


def _by_utilization(evidence: Evidence, index: int, low: int, high: int) -> Witness | None:
    """The mean of the readings for each age of the figures; the difference of the means is the error."""
    time, value = readings(evidence, index, UTILIZATION_KEY)
    means, counts = [], []
    for age in AGES_NS:
        at = time - age
        inside = (at >= low) & (at <= high)
        counts.append(int(np.count_nonzero(inside)))
        means.append(_mean(time[inside], value[inside]))
    if min(counts) < FEWEST:
        return None
    inside = (time - AGES_NS[_USUAL] >= low) & (time - AGES_NS[_USUAL] <= high)
    # readings follow each other faster than the windows: a second holds one that is new
    fresh = (high - low) / 1e9
    chance = float(np.std(value[inside])) / 100 / np.sqrt(fresh)
    apart = max(abs(mean - means[_USUAL]) for mean in means)
    return Witness(means[_USUAL], ROUNDED + max(apart, chance), counts[_USUAL], "utilization")


def _mean(time: Ints, value: npt.NDArray[np.float64]) -> float:
    if len(time) < 2:
        return float(value.mean()) / 100 if len(value) else 0.0
    weight = np.diff(time, prepend=2 * time[0] - time[1])
    return float((weight * value).sum() / max(int(weight.sum()), 1)) / 100


def misfit(
    evidence: Evidence, index: int, low: int, high: int, work: ModelledWork
) -> tuple[float, float] | None:
    """Return (busy share by NVML minus that of a model, its error).

    NVML does not report the window of its utilisation: of all possible ones the one that fits the model best
    counts.
    """
    time, value = readings(evidence, index, UTILIZATION_KEY)
    best: tuple[float, float] | None = None
    least = np.inf
    for window in WINDOWS_NS:
        for lag in (0, window // 2, window):
            end = time - lag
            inside = (end - window >= low) & (end <= high)
            count = int(np.count_nonzero(inside))
            if count < MANY:
                continue
            end = end[inside]
            off = value[inside] / 100 - work.kernels(end - window, end) / window
            if float((off**2).mean()) < least:
                least = float((off**2).mean())
                independent = min(count, (high - low) / window)
                best = float(off.mean()), ROUNDED + float(off.std()) / np.sqrt(independent)
    return best


# Whether NVML agrees: a GPU that was busy while all known streams were empty has invisible work.

LONGEST_NS = 1_000_000_000
AGREEMENT_WINDOWS_NS = tuple(LONGEST_NS // part for part in (6, 4, 3, 2, 1))  # of utilisation, by product
SURE = 0.25  # a busy share this far above the one that the proofs allow is no rounding


def contradictions(evidence: Evidence, gpu: GpuTime) -> tuple[int, int]:
    """Return (samples that contradict the proofs, samples that could): utilisation against proved idleness.

    A sample contradicts where its busy share and the share proved empty exceed its window by ``SURE``,
    whichever window it is: its length is unknown, and its age may be up to its length.
    """
    against = checked = 0
    figures, spans = _utilisations(evidence, gpu), {span.device: span for span in gpu.spans}
    for device, index in enumerate(gpu.devices.index):
        mine = gpu.gaps.device == device
        cover = (gpu.gaps.begin[mine], gpu.gaps.end[mine])
        span = spans.get(device)
        if index < 0 or span is None or not mine.any():
            continue
        for time_ns, busy in figures.get(index, ()):
            # time before the span counts as busy, so a window may begin before it
            if not span.begin <= time_ns <= span.end:
                continue
            # of each length: fresh, half as old as long, as old as long
            end = time_ns - _LENGTHS * np.tile([0, 1, 2], len(AGREEMENT_WINDOWS_NS)) // 2
            empty = float((covered(cover, end - _LENGTHS, end) / _LENGTHS).min())
            checked += 1
            against += busy > 1 - empty + SURE
    return against, checked


_LENGTHS = np.repeat(np.array(AGREEMENT_WINDOWS_NS, np.int64), 3)


def _utilisations(evidence: Evidence, gpu: GpuTime) -> dict[int, list[tuple[int, float]]]:
    """(time, busy share) of each GPU, by its index."""
    known = set(gpu.devices.index)
    found: dict[int, list[tuple[int, float]]] = {}
    for sample in evidence.gpus:
        figures: dict[int, float] = {}
        for row in listed_gpus(sample):
            if row.get("index") in known and row.get("utilization_percent") is not None:
                figures.setdefault(row["index"], float(row["utilization_percent"]) / 100)
        for index, busy in figures.items():
            found.setdefault(index, []).append((sample.time_ns, busy))
    return found


def others_at_work(evidence: Evidence, gpu: GpuTime) -> dict[int, float]:
    """Return by device the share of its span in which unwatched processes used it, by NVML, 0 to 1.

    Of several processes the busiest counts: NVML's shares of alternating processes overlap.
    """
    unknown, known = strangers(evidence, gpu), set(gpu.devices.index)
    used: dict[int, list[tuple[int, int]]] = {}
    for sample in evidence.gpus if unknown else ():
        for row in listed_gpus(sample):
            utilization = row.get("process_utilization")
            if row.get("index") in known and isinstance(utilization, dict):
                parts = zip(utilization.get("pid", ()), utilization.get("sm_percent", ()), strict=False)
                most = max((int(part or 0) for pid, part in parts if pid in unknown), default=0)
                used.setdefault(row["index"], []).append((sample.time_ns, most))
    found = {}
    for span in gpu.spans:
        rows = used.get(gpu.devices.index[span.device], ())
        shares = [most for time_ns, most in rows if span.begin <= time_ns <= span.end]
        found[span.device] = float(np.mean(shares)) / 100 if shares else 0.0
    return found


def shared_gpus(evidence: Evidence, gpu: GpuTime) -> set[int]:
    """Return the GPUs that unwatched processes use so much that nothing is proved."""
    return {device for device, share in others_at_work(evidence, gpu).items() if share >= OTHERS}


def strangers(evidence: Evidence, gpu: GpuTime) -> frozenset[int]:
    """Return processes that hold memory on a GPU of this recording and whose calls were not observed."""
    known = {int(pid) for pid in gpu.streams.pid.tolist()} | set(evidence.facts.processes)
    found: set[int] = set()
    indices = set(gpu.devices.index)
    for sample in evidence.gpus:
        for row in listed_gpus(sample):
            if row.get("index") in indices:
                found |= {int(pid) for pid, _bytes in row.get("processes") or ()}
    numbers = (facts.get("namespace_pid") for facts in evidence.facts.processes.values())
    inner = {int(number) for number in numbers if number is not None}
    return frozenset(found - known - inner)
