"""Lanes of the last five minutes: the explanations' windows joined by column numbers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.picture import (
    CALL_WORDS,
    COLUMN_NS,
    GPU_ROWS,
    MARK_ROWS,
    MOST_RANGES,
    OTHER_RANGES,
    SKIPPED,
    STATE_ROWS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputop.analysis.answer.picture import Lanes, RangeLane, Shares

KEPT_NS = 330_000_000_000  # five minutes, rounded up for the width of the terminal
KEPT = KEPT_NS // COLUMN_NS
MOST_LANES = 192  # of more, those without news for longest are dropped

Cells = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MARKS = ("marks",)


class _Ring:
    """The newest columns of one lane; each slot has the number of its column."""

    def __init__(self, rows: int) -> None:
        self._shares = np.zeros((KEPT, rows), np.uint8)
        self._number = np.zeros(KEPT, np.int64)  # the column's number + 1; untouched pages cost no memory
        self.newest = 0

    def put(self, first: int, shares: Shares, known: Mask) -> None:
        numbers = first + np.flatnonzero(known)
        slots = numbers % KEPT
        self._shares[slots] = shares.T[known]
        self._number[slots] = numbers + 1
        self.newest = int(numbers[-1]) if len(numbers) else self.newest

    def cells(self, first: int, count: int, group: int) -> tuple[Cells, Cells]:
        numbers = np.arange(first, first + count * group)
        slots = numbers % KEPT
        known = (self._number[slots] == numbers + 1) & (numbers >= 0)
        shares = np.where(known[:, None], self._shares[slots], 0).astype(np.int64)
        summed = shares.reshape(count, group, -1).sum(axis=1)
        return summed.T, known.reshape(count, group).sum(axis=1)


class LaneHistory:
    """All lanes, by GPU and by thread, and the marks. A newer explanation replaces an older one's columns."""

    def __init__(self) -> None:
        self._rings: dict[Hashable, _Ring] = {}
        self.gpus: tuple[tuple[str, int], ...] = ()  # label and NVML's index
        self.errors: tuple[float, ...] = ()  # of the GPUs' estimates, as shares of the time
        self._range_names: dict[int, list[str]] = {}  # by thread: names of the rows of its ranges

    def append(self, lanes: Lanes) -> None:
        """Add a window."""
        known = lanes.marks[SKIPPED] == 0
        self._put(MARKS, lanes.first, lanes.marks, np.ones_like(known))
        for gpu in lanes.gpus:
            self._put(("gpu", gpu.label), lanes.first, gpu.shares, known)
        for thread in lanes.threads:
            self._put(("states", thread.tid), lanes.first, thread.states, known)
            self._put(("calls", thread.tid), lanes.first, thread.calls, known)
        for lane in lanes.ranges:
            self._put(("ranges", lane.tid), lanes.first, self._by_row(lane), known)
        self.gpus = tuple((gpu.label, gpu.index) for gpu in lanes.gpus)
        self.errors = tuple(gpu.error for gpu in lanes.gpus)
        if len(self._rings) > MOST_LANES:
            oldest = sorted(self._rings, key=lambda key: self._rings[key].newest)
            for key in oldest[: len(self._rings) - MOST_LANES]:
                del self._rings[key]

    def range_names(self, tid: int) -> tuple[str, ...]:
        """Return the names of the rows of a thread's ranges."""
        if ("ranges", tid) not in self._rings:
            return ()
        return (*self._range_names[tid], OTHER_RANGES)

    def _by_row(self, lane: RangeLane) -> Shares:
        """Return shares by row: a name keeps its row; the last row is for names without one."""
        names = self._range_names.setdefault(lane.tid, [])
        names += [name for name in lane.names if name not in (*names, OTHER_RANGES)]
        del names[MOST_RANGES - 1 :]
        made = np.zeros((MOST_RANGES, lane.shares.shape[1]), np.int64)
        for name, shares in zip(lane.names, lane.shares, strict=True):
            made[names.index(name) if name in names else MOST_RANGES - 1] += shares
        return np.minimum(made, WHOLE).astype(np.uint8)

    def _put(self, key: Hashable, first: int, shares: Shares, known: Mask) -> None:
        if key not in self._rings:
            self._rings[key] = _Ring(len(shares))
        self._rings[key].put(first, shares, known)

    def cells(self, key: tuple[Hashable, ...], first: int, count: int, group: int) -> tuple[Cells, Cells]:
        """Return the shares ``[rows, count]`` of cells, and the number of known columns of each.

        Args:
            key: ``("gpu", label)``, ``MARKS``, or of a thread ``("states", tid)``, ``("calls", tid)``,
                ``("ranges", tid)``.
            first: The number of the first column.
            count: The number of cells.
            group: The columns in each cell.
        """
        ring = self._rings.get(key)
        if ring is None:
            rows = {"gpu": GPU_ROWS, "states": STATE_ROWS, "calls": len(CALL_WORDS)}.get(
                str(key[0]), MARK_ROWS
            )
            return np.zeros((rows, count), np.int64), np.zeros(count, np.int64)
        return ring.cells(first, count, group)
