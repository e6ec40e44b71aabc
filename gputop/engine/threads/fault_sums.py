"""Page faults by process and thread, and time lost by the machine: sums of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from gputop.documents.shared_schema import MachineJson
from gputop.engine.accumulator import Part, add_pairs
from gputop.engine.fork_state import packed, unpacked
from gputop.format import format_count, format_ns
from probes.samples import sample_data
from probes.source import FAULTS, MACHINE, Sample

WHOLE = 0  # in place of a thread: the process
FaultCounts: TypeAlias = dict[tuple[int, int], tuple[int, int]]  # (process, thread) -> minor, major


@dataclass(frozen=True, slots=True)
class Faults:
    """Page faults: minor ones found their page in memory, major ones waited for it to be read."""

    minor: int
    major: int


class FaultSums(Part):
    """Page faults by process and thread."""

    def __init__(self) -> None:
        self.sums: FaultCounts = {}

    def add_sample(self, sample: Sample) -> None:
        """Add a sample; columns of different lengths (a damaged file) are cut to the shortest."""
        if (data := sample_data(sample, FAULTS)) is not None:
            columns = (data.get("pid", ()), data.get("tid", ()), data.get("minor", ()), data.get("major", ()))
            self._add(map(int, row) for row in zip(*columns, strict=False))

    def payload(self) -> dict[str, Any]:
        return {"faults": packed([(*key, *counts) for key, counts in self.sums.items()])}

    def merge(self, data: Mapping[str, Any]) -> None:
        if "faults" in data:
            self._add(unpacked(data, "faults", 4))

    def _add(self, rows: Iterable[Iterable[int]]) -> None:
        for pid, tid, minor, major in rows:
            add_pairs(self.sums, {(pid, tid): (minor, major)})


def faults_of(sums: Mapping[tuple[int, int], tuple[int, int]], pid: int, tid: int = WHOLE) -> Faults | None:
    """Return the faults of a process or one of its threads; None: unknown."""
    counts = sums.get((pid, tid))
    return Faults(*counts) if counts is not None else None


# Time lost by the whole machine: sums of `machine` samples. A figure that was never reported is unknown.

NAMES: Final = ("steal_ns", "memory_some_ns", "memory_full_ns", "tcp_retransmits")


class MachineSums(Part):
    """The machine's figures by name."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def add_sample(self, sample: Sample) -> None:
        if (data := sample_data(sample, MACHINE)) is not None:
            self._add(data)

    def payload(self) -> dict[str, Any]:
        return {"machine": dict(self.sums)}

    def merge(self, data: Mapping[str, Any]) -> None:
        if isinstance(machine := data.get("machine"), Mapping):
            self._add(machine)

    def _add(self, data: Mapping[str, object]) -> None:
        for name in NAMES:
            if isinstance(value := data.get(name), int):
                self.sums[name] = self.sums.get(name, 0) + value


def machine_json(sums: Mapping[str, int]) -> MachineJson:
    return cast("MachineJson", {name: sums.get(name) for name in NAMES})


def machine_text(sums: Mapping[str, int]) -> str:
    """Return the figures that are not 0 in one line; "" without any."""
    parts = []
    if sums.get("steal_ns"):
        parts.append(f"{format_ns(sums['steal_ns'])} of its CPUs stolen by the hypervisor")
    if sums.get("memory_some_ns"):
        full = format_ns(sums.get("memory_full_ns"))
        parts.append(f"short of memory for {format_ns(sums['memory_some_ns'])} (no task could run: {full})")
    if sums.get("tcp_retransmits"):
        parts.append(f"{format_count(sums['tcp_retransmits'])} TCP segments sent again")
    return f"machine: {', '.join(parts)}" if parts else ""
