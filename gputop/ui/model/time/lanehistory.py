"""Lanes of the last five minutes: windows of the explanation joined by the numbers of their columns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.picture import (
    CALL_WORDS,
    COLUMN_NS,
    GPU_ROWS,
    MOST_RANGES,
    OTHER_RANGES,
    STATE_ROWS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputop.analysis.answer.picture import Lanes, RangeLane, Shares

KEPT_NS = 330_000_000_000  # a lane of five minutes, and what the width of the terminal rounds it up to
KEPT = KEPT_NS // COLUMN_NS
MOST_LANES = 192  # those that were not reported of for longest are forgotten

Cells = npt.NDArray[np.int64]
MARKS = ("marks",)


class _Ring:
    """The newest columns of one lane; each slot knows which column it holds."""

    def __init__(self, rows: int) -> None:
        self._shares = np.zeros((KEPT, rows), np.uint8)
        self._number = np.zeros(KEPT, np.int64)  # one more than the column's; pages that hold 0 cost nothing
        self.newest = 0

    def put(self, first: int, shares: Shares) -> None:
        numbers = np.arange(first, first + shares.shape[1])
        slots = numbers % KEPT
        self._shares[slots] = shares.T
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
    """All lanes, by GPU, by thread, and the marks.

    What a newer explanation says of a column replaces what an older one had said: it has seen more.
    """

    def __init__(self) -> None:
        self._rings: dict[Hashable, _Ring] = {}
        self.gpus: tuple[tuple[str, int], ...] = ()  # label and NVML's index
        self.errors: tuple[float, ...] = ()  # of their estimates, as shares of the time
        self._range_names: dict[int, list[str]] = {}  # by thread: those of the rows of its ranges

    def append(self, lanes: Lanes) -> None:
        """Join a window on."""
        self._put(MARKS, lanes.first, lanes.marks)
        for gpu in lanes.gpus:
            self._put(("gpu", gpu.label), lanes.first, gpu.shares)
        for thread in lanes.threads:
            self._put(("states", thread.tid), lanes.first, thread.states)
            self._put(("calls", thread.tid), lanes.first, thread.calls)
        for lane in lanes.ranges:
            self._put(("ranges", lane.tid), lanes.first, self._by_row(lane))
        self.gpus = tuple((gpu.label, gpu.index) for gpu in lanes.gpus)
        self.errors = tuple(gpu.error for gpu in lanes.gpus)
        if len(self._rings) > MOST_LANES:
            oldest = sorted(self._rings, key=lambda key: self._rings[key].newest)
            for key in oldest[: len(self._rings) - MOST_LANES]:
                del self._rings[key]

    def range_names(self, tid: int) -> tuple[str, ...]:
        """What the rows of a thread's ranges stand for; none where it was in none."""
        if ("ranges", tid) not in self._rings:
            return ()
        return (*self._range_names[tid], OTHER_RANGES)

    def _by_row(self, lane: RangeLane) -> Shares:
        """A name keeps its row; once all are taken, the last one stands for the names that come."""
        names = self._range_names.setdefault(lane.tid, [])
        names += [name for name in lane.names if name not in (*names, OTHER_RANGES)]
        del names[MOST_RANGES - 1 :]
        made = np.zeros((MOST_RANGES, lane.shares.shape[1]), np.int64)
        for name, shares in zip(lane.names, lane.shares, strict=True):
            made[names.index(name) if name in names else MOST_RANGES - 1] += shares
        return np.minimum(made, WHOLE).astype(np.uint8)

    def _put(self, key: Hashable, first: int, shares: Shares) -> None:
        if key not in self._rings:
            self._rings[key] = _Ring(len(shares))
        self._rings[key].put(first, shares)

    def cells(self, key: tuple[Hashable, ...], first: int, count: int, group: int) -> tuple[Cells, Cells]:
        """Several columns to a cell.

        Args:
            key: ``("gpu", label)``, ``MARKS``, or of a thread ``("states", tid)``, ``("calls", tid)``,
                ``("ranges", tid)``.
            first: Number of the first column.
            group: Columns in each.

        Returns:
            The shares ``[rows, count]``, and how many columns of each cell are there at all.
        """
        ring = self._rings.get(key)
        if ring is None:
            rows = {"gpu": GPU_ROWS, "states": STATE_ROWS, "calls": len(CALL_WORDS)}.get(str(key[0]), 2)
            return np.zeros((rows, count), np.int64), np.zeros(count, np.int64)
        return ring.cells(first, count, group)
