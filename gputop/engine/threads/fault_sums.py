"""Page faults by process and thread, and time lost by the machine: sums of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gputop.documents.stats_schema import MachineJson
from gputop.format import format_count, format_ns
from probes.samples import FaultsData, MachineData

WHOLE = 0  # in place of a thread: the process
FaultCounts: TypeAlias = dict[tuple[int, int], tuple[int, int]]  # (process, thread) -> minor, major


@dataclass(frozen=True, slots=True)
class Faults:
    """Page faults: minor ones found their page in memory, major ones waited for it to be read."""

    minor: int
    major: int


def add_faults(sums: FaultCounts, data: FaultsData) -> None:
    """Adds what a sample says; columns of different lengths (a damaged file) are cut to the shortest."""
    columns = (data.get("pid", ()), data.get("tid", ()), data.get("minor", ()), data.get("major", ()))
    add_rows(
        sums, ((int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in zip(*columns, strict=False))
    )


def add_rows(sums: FaultCounts, rows: Iterable[tuple[int, int, int, int]]) -> None:
    """Adds rows of process, thread, minor and major."""
    for pid, tid, minor, major in rows:
        before = sums.get((pid, tid), (0, 0))
        sums[pid, tid] = before[0] + minor, before[1] + major


def rows_of(sums: FaultCounts) -> list[tuple[int, int, int, int]]:
    """The rows that ``add_rows`` takes."""
    return [(pid, tid, minor, major) for (pid, tid), (minor, major) in sums.items()]


def faults_of(sums: Mapping[tuple[int, int], tuple[int, int]], pid: int, tid: int = WHOLE) -> Faults | None:
    """Those of a process or one of its threads; None: not known."""
    counts = sums.get((pid, tid))
    return Faults(*counts) if counts is not None else None


# What a machine as a whole lost time by: sums of `machine` samples. What was never told is not known.

NAMES: Final = ("steal_ns", "memory_some_ns", "memory_full_ns", "tcp_retransmits")


def add_machine(sums: dict[str, int], data: MachineData | Mapping[str, object]) -> None:
    """Adds what a sample, or other such sums, say."""
    for name in NAMES:
        value = data.get(name)
        if isinstance(value, int):
            sums[name] = sums.get(name, 0) + value


def machine_json(sums: Mapping[str, int]) -> MachineJson:
    """As JSON (docs/json.md)."""
    return {
        "steal_ns": sums.get("steal_ns"),
        "memory_some_ns": sums.get("memory_some_ns"),
        "memory_full_ns": sums.get("memory_full_ns"),
        "tcp_retransmits": sums.get("tcp_retransmits"),
    }


def machine_text(sums: Mapping[str, int]) -> str:
    """In one line, what is not none; "" where nothing is."""
    said = []
    if sums.get("steal_ns"):
        said.append(f"{format_ns(sums['steal_ns'])} of its CPUs stolen by the hypervisor")
    if sums.get("memory_some_ns"):
        full = format_ns(sums.get("memory_full_ns"))
        said.append(f"short of memory for {format_ns(sums['memory_some_ns'])} (no task could run: {full})")
    if sums.get("tcp_retransmits"):
        said.append(f"{format_count(sums['tcp_retransmits'])} TCP segments sent again")
    return f"machine: {', '.join(said)}" if said else ""
