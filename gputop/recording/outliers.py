"""Calls far longer than usual for their function."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gputop.engine.calls.calltable import CallTable, RowSums
from gputop.engine.calls.histogram import percentiles
from probes.schema import CallFlag, Kind, Records, select

FEWEST = 200  # calls of a function, before any is unusual
TIMES = 8.0  # the 99th percentile of the function
LEAST_NS = 1_000_000
MOST_ROWS = 2048  # 25 MB; then learning starts again, to drop ended processes
_EVERY = 8  # batches, of which one is counted: percentiles change slowly
_RENEW = 32  # counted batches between two updates of the limits; at first more often


class Outliers:
    """Learns the durations of each function of each process, and finds far longer calls."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.table, self._totals = CallTable(), RowSums.zeros(0)
        self._limit: npt.NDArray[np.float64] = np.zeros(0)
        self._batches = self._counted = 0

    def among(self, records: Records) -> bool:
        """Return True if there is one among some records."""
        calls = records["kind"] == np.uint8(Kind.CALL)
        outer = calls & ((records["flags"] & np.uint16(CallFlag.NESTED)) == 0)
        if not outer.any():
            return False
        made = select(records, outer)
        if self.table.rows > MOST_ROWS:
            self._begin()
        rows = self.table.rows_of(made)
        known = rows < len(self._limit)
        found = bool((made["duration"][known] > self._limit[rows[known]]).any())
        self._batches += 1
        if self._batches % _EVERY == 1:
            self.table.add(made, self._totals)
            self._counted += 1
            if self._counted % _RENEW == 0 or self._counted & (self._counted - 1) == 0:
                self._learn()
        return found

    def _learn(self) -> None:
        self._totals.grow(self.table.rows)
        enough = np.flatnonzero(self._totals.count >= FEWEST)
        self._limit = np.full(self.table.rows, np.inf)
        usual = percentiles(self.table.counts[enough], (0.99,))[:, 0]
        self._limit[enough] = np.maximum(TIMES * usual, LEAST_NS)
