"""What was found, added up by columns of 50 ms: what a newer look says of a column replaces the older.

A look at the newest second is cheap, one at ten seconds is not. Both are counted here by the same columns, so
the sums of the last ten seconds are as new as the newest look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from gputop.explain.answer.picture import COLUMN_NS
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, intersect, subtract
from gputop.explain.findings.shortgaps import causes_of_short
from gputop.explain.lanes import Grid

KEPT = 512  # columns: 25 s, more than is ever explained at once
_MOST_KEYS = 600  # those that count nothing are forgotten then


class Row(IntEnum):
    """What is counted of a GPU, ns; of a cause the first three, and how many gaps."""

    PROVED = 0
    ASSUMED = 1  # proved but for an assumption
    ESTIMATED = 2
    PENDING = 3  # work was proved outstanding
    OPEN = 4  # neither, and it was estimated how much of it was idle
    UNTOLD = 5  # neither, and nobody has estimated yet
    SPAN = 6
    GAPS = 7  # how many began there


class OfGpu(NamedTuple):
    """A figure of a GPU, by its name."""

    label: str
    row: Row


class OfCause(NamedTuple):
    """A figure of a cause in a process: the catalogue's row (-1: not explained), the process."""

    cause: int
    pid: int
    row: Row


Key = OfGpu | OfCause


@dataclass(frozen=True, slots=True)
class Counted:
    """Some columns in order, from the first: the figures that are not 0, each with a number a column."""

    first: int
    columns: int
    figures: dict[Key, Ints]

    def sums(self) -> dict[Key, int]:
        """All columns together."""
        return {key: int(column.sum()) for key, column in self.figures.items()}


def count(scene: Scene, cause: Ints, *, light: bool) -> Counted:
    """Counts what was looked at.

    Args:
        scene: What was found.
        cause: The catalogue's row of the cause that took each segment, -1 for none.
        light: Whether nobody estimated.
    """
    low, high = scene.analysis.gpu.stretch
    first = low // COLUMN_NS
    grid = Grid(first, max(-(-high // COLUMN_NS) - first, 0))
    figures: dict[Key, Ints] = {}
    parts = [*_of_gpus(scene, light), *_of_causes(scene, cause)]
    for key, begin, end in parts:
        ns = grid.time(1, np.zeros(len(begin), np.int64), begin, end)[0]
        if ns.any():
            figures[key] = figures[key] + ns if key in figures else ns
    figures.update(_gap_counts(scene, cause, grid))
    return Counted(first, grid.columns, figures)


def _of_gpus(scene: Scene, light: bool) -> Iterator[tuple[Key, Ints, Ints]]:
    gpu, gaps = scene.analysis.gpu, scene.gaps
    for span in gpu.spans:
        label = gpu.devices.labels[span.device]
        mine = gaps.device == span.device
        certain = mine & ~gaps.estimated
        for row, chosen in (
            (Row.PROVED, certain & gaps.proved),
            (Row.ASSUMED, certain & ~gaps.proved),
            (Row.ESTIMATED, mine & gaps.estimated),
        ):
            yield OfGpu(label, row), gaps.begin[chosen], gaps.end[chosen]
        whole = np.array([span.begin]), np.array([span.end])
        gone = gaps.begin[certain], gaps.end[certain]
        yield OfGpu(label, Row.PENDING), *subtract(intersect(gpu.pending(span.device), whole), gone)
        yield OfGpu(label, Row.UNTOLD if light else Row.OPEN), *gpu.unknown[span.device]
        yield OfGpu(label, Row.SPAN), *whole
    for one in scene.analysis.estimates:
        label = gpu.devices.labels[one.device]
        yield OfGpu(label, Row.ESTIMATED), one.small.begin, one.small.end
        yield OfGpu(label, Row.ESTIMATED), *one.ended


def _of_causes(scene: Scene, cause: Ints) -> Iterator[tuple[Key, Ints, Ints]]:
    segments, gaps = scene.segments, scene.gaps
    pids = scene.evidence.threads.pid[gaps.thread[segments.gap]] if len(gaps) else segments.gap
    row = np.where(gaps.proved[segments.gap], int(Row.PROVED), int(Row.ASSUMED))
    row = np.where(scene.estimated, int(Row.ESTIMATED), row)
    yield from _split(cause, pids, row, segments.begin, segments.end)
    for one in scene.analysis.estimates:
        small = one.small
        owner, pid = causes_of_short(scene, cause, small), scene.evidence.threads.pid[small.thread]
        row = np.full(len(owner), int(Row.ESTIMATED))
        yield from _split(owner, pid, row, small.begin, small.end)


def _split(cause: Ints, pid: Ints, row: Ints, begin: Ints, end: Ints) -> Iterator[tuple[Key, Ints, Ints]]:
    mixed = ((np.asarray(cause, np.int64) + 1) << 40) | (np.asarray(pid, np.int64) << 4) | row
    for one in np.unique(mixed).tolist():
        chosen = mixed == one
        key = OfCause((one >> 40) - 1, (one >> 4) & 0xFFFFFFFFF, Row(one & 15))
        yield key, begin[chosen], end[chosen]


def _gap_counts(scene: Scene, cause: Ints, grid: Grid) -> dict[Key, Ints]:
    """How many gaps of each cause began in each column."""
    gaps, found = scene.gaps, dict[Key, Ints]()
    if not len(gaps) or not grid.columns:
        return found
    # each (gap, cause) once: pieces of a gap lie side by side, those of a cause in it mostly do
    mixed = scene.segments.gap.astype(np.int64) << 8 | (cause + 1)
    mixed = np.unique(mixed[cause >= 0])
    gap, number = mixed >> 8, (mixed & 255) - 1
    pids = scene.evidence.threads.pid[gaps.thread[gap]].astype(np.int64)
    column = np.clip(gaps.begin[gap] // COLUMN_NS - grid.first, 0, grid.columns - 1)
    which = pids << 8 | number
    for one in np.unique(which).tolist():
        counts = np.bincount(column[which == one], minlength=grid.columns)
        found[OfCause(one & 255, one >> 8, Row.GAPS)] = counts.astype(np.int64)
    return found


class ColumnSums:
    """The newest ``KEPT`` columns of every figure."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._figures: dict[Key, Ints] = {}
        self._number = np.full(KEPT, -1, np.int64)  # the column that each place holds

    def put(self, counted: Counted) -> None:
        """Takes some columns in; what was said of them before is replaced."""
        skipped = max(counted.columns - KEPT, 0)
        numbers = np.arange(counted.first + skipped, counted.first + counted.columns)
        places = numbers % KEPT
        self._number[places] = numbers
        for column in self._figures.values():
            column[places] = 0
        for key, ns in counted.figures.items():
            self._figures.setdefault(key, np.zeros(KEPT, np.int64))[places] = ns[skipped:]
        if len(self._figures) > _MOST_KEYS:
            self._figures = {key: column for key, column in self._figures.items() if column.any()}

    def sums(self, first: int, end: int) -> dict[Key, int]:
        """Each figure that is not 0, added up over the columns from the first up to the end."""
        within = (self._number >= first) & (self._number < end)
        found = ((key, int(column[within].sum())) for key, column in self._figures.items())
        return {key: total for key, total in found if total}
