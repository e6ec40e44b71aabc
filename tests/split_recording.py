"""Recordings taken apart, as several recorders would have written them: for what puts such files together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probes.schema import Records, select
from probes.source import CLIENT, FILES, FRAMES, MARK, NAMES, OPEN, PLACES, PROCESS, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter

_BY_PID = {NAMES, OPEN, FILES, FRAMES}


def read(path: Path) -> tuple[dict[str, Any], list[Item]]:
    """Header and items of a recording."""
    reader = SessionReader(path)
    try:
        return dict(reader.header), list(reader.items())
    finally:
        reader.close()


def write(path: Path, header: Mapping[str, Any], told: Iterable[Item]) -> Path:
    """A recording of these items."""
    writer = SessionWriter(path, header)
    for item in told:
        writer.write(item)
    writer.close()
    return path


def of_processes(told: Iterable[Item], mine: Callable[[int], bool]) -> Iterator[Item]:
    """What a recorder of some processes would have written: numbered by itself, without a loss."""
    numbers: dict[int, int] = {}
    tids: set[int] = set()
    for item in told:
        if not isinstance(item, Sample):
            pids = np.array([mine(pid) for pid in item["pid"].tolist()], np.bool_)
            chosen = select(item, pids)
            tids |= set(chosen["tid"].tolist())
            if len(chosen):
                yield _numbered(chosen, numbers)
        elif item.kind in _BY_PID:
            kept = [row for row, pid in enumerate(item.data["pid"]) if mine(pid)]
            yield _rows(item, kept)
        elif item.kind == PLACES:
            yield _rows(item, [row for row, tid in enumerate(item.data["tid"]) if tid in tids])
        elif item.kind not in (PROCESS, CLIENT) or mine(item.data["pid"]):
            yield item


def _rows(sample: Sample, kept: list[int]) -> Sample:
    return Sample(
        sample.kind,
        sample.time_ns,
        {key: [values[row] for row in kept] for key, values in sample.data.items()},
    )


def _numbered(records: Records, numbers: dict[int, int]) -> Records:
    for cpu in np.unique(records["cpu"]).tolist():
        mine = np.flatnonzero(records["cpu"] == cpu)
        first = numbers.get(cpu, 0) + 1
        records["seq"][mine] = np.arange(first, first + len(mine))
        numbers[cpu] = first + len(mine) - 1
    return records


def without_marks(told: Iterable[Item], keep: Callable[[int], bool]) -> Iterator[Item]:
    """The same with fewer marks: what belongs to those that are left out belongs to the next one."""
    number = 0
    for item in told:
        if isinstance(item, Sample) and item.kind in (OPEN, MARK):
            number += item.kind == MARK
            if not keep(number if item.kind == MARK else number + 1):
                continue
        yield item
