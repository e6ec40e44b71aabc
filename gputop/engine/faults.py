"""Page faults by process and thread: sums of what ``faults`` samples tell; else they are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gputop.documents.shared_schema import FaultsJson
from probes.samples import FaultsData

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


def faults_json(faults: Faults) -> FaultsJson:
    """As JSON (docs/json.md)."""
    return {"minor": faults.minor, "major": faults.major}
