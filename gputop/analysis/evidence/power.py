"""Energy of GPUs and their processes: NVML's power, over the time between two samples.

A process's share of a GPU's energy is its share of the processes' SM time; alone on a GPU it has all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from gputop.documents.additive import COUNTED, NESTED_ROWS, SUM
from gputop.documents.fields import FLAT, Mark, marked
from gputop.format import NS_PER_S
from probes.samples import listed_gpus
from probes.source import Sample

FAR_NS = 5 * NS_PER_S  # between two samples: beyond, nothing is known of the power


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """One GPU: the time for which its power is known, and its energy in that time."""

    measured_ns: Annotated[int, SUM]
    joules: Annotated[float, SUM]

    @property
    @marked(Mark())
    def watts(self) -> float:
        """The mean power."""
        return self.joules * NS_PER_S / max(self.measured_ns, 1)


@dataclass(frozen=True, slots=True)
class OneGpu:
    """The energy of a GPU."""

    index: int
    energy: Annotated[GpuEnergy, FLAT]


@dataclass(frozen=True, slots=True)
class ProcessEnergy:
    """The energy of a process."""

    pid: int
    joules: float
    watts: float


@dataclass(frozen=True, slots=True)
class EnergyFigures:
    """The energy of GPUs, processes and a step; ``saved_joules`` of each finding."""

    gpus: tuple[OneGpu, ...]
    processes: tuple[ProcessEnergy, ...]
    step_joules: float | None
    saved_joules: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of some time, by number of the GPU, and by process in joules.

    Attributes:
        times_ns: For how long each process had a part of a GPU's power.
    """

    gpus: Annotated[Mapping[int, GpuEnergy], NESTED_ROWS]
    processes: Annotated[Mapping[int, float], COUNTED]
    times_ns: Annotated[Mapping[int, int], COUNTED]

    @property
    def joules(self) -> float:
        """The energy of all GPUs."""
        return sum(gpu.joules for gpu in self.gpus.values())

    def watts_on(self, gpus: Collection[int]) -> float | None:
        """Return the mean power of some GPUs together, by index; None where none of them was measured.

        Without an index that of the only GPU.
        """
        chosen = gpus or (self.gpus if len(self.gpus) == 1 else ())
        known = [self.gpus[index] for index in chosen if index in self.gpus]
        return sum(one.watts for one in known) if known else None

    def watts_of(self, pid: int) -> float | None:
        """Return the mean power of a process while it had any; None: not known."""
        joules = self.processes.get(pid)
        return None if joules is None else joules * NS_PER_S / max(self.times_ns.get(pid, 0), 1)


def energy_of(samples: Iterable[Sample], begin_ns: int, end_ns: int) -> Energy:
    """Return the energy between two moments."""
    before: dict[int, tuple[int, float]] = {}
    measured: dict[int, int] = {}
    joules: dict[int, float] = {}
    processes: dict[int, float] = {}
    times: dict[int, int] = {}
    for sample in samples:
        now_ns: dict[int, int] = {}
        for row in listed_gpus(sample):
            index, milliwatts = row.get("index"), row.get("power_milliwatts")
            if not isinstance(index, int) or not isinstance(milliwatts, int | float):
                continue
            now = sample.time_ns, float(milliwatts)
            (last_ns, last), before[index] = before.get(index, now), now
            low, high = max(last_ns, begin_ns), min(now[0], end_ns)
            if not high - low > 0 or now[0] - last_ns > FAR_NS:
                continue
            energy = (last + now[1]) / 2 / 1e3 * (high - low) / NS_PER_S
            measured[index] = measured.get(index, 0) + high - low
            joules[index] = joules.get(index, 0.0) + energy
            for pid, part in _parts(row).items():
                processes[pid] = processes.get(pid, 0.0) + part * energy
                now_ns[pid] = max(now_ns.get(pid, 0), high - low)
        for pid, ns in now_ns.items():  # of several GPUs once
            times[pid] = times.get(pid, 0) + ns
    return Energy(
        {index: GpuEnergy(measured[index], joules[index]) for index in sorted(joules)}, processes, times
    )


def _parts(row: Mapping[str, Any]) -> dict[int, float]:
    """Return by process its share of the SM time of all; the only one on a GPU has all of it."""
    there = {int(pid) for pid, _bytes in row.get("processes") or ()}
    if len(there) == 1:
        return dict.fromkeys(there, 1.0)
    utilization = row.get("process_utilization")
    if not isinstance(utilization, Mapping):
        return {}
    used: dict[int, int] = {}
    for pid, percent in zip(utilization.get("pid", ()), utilization.get("sm_percent", ()), strict=False):
        used[int(pid)] = used.get(int(pid), 0) + max(int(percent or 0), 0)
    whole = sum(used.values())
    return {pid: percent / whole for pid, percent in used.items() if percent} if whole else {}
