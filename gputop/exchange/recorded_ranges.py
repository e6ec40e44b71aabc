"""The program's ranges over a whole recording: a range is recorded at its end, after the calls in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.analysis.chains.named_ranges import NamedRanges, alike
from gputop.analysis.evidence.api_classes import RANGE, SPAN, ActivityGatherer
from probes.activities import Table
from probes.source import ACTIVITY
from replay.reader import SessionReader

Column = npt.NDArray[Any]


class RecordedRanges:
    """The ranges of a recording."""

    def __init__(self, reader: SessionReader) -> None:
        """Read them.

        Raises:
            ValueError: They are damaged.
        """
        gathered = ActivityGatherer()
        for sample in reader.samples(ACTIVITY):
            gathered.consume(sample.data, RANGE, SPAN)
        known = gathered.table()
        # rows, texts: all of them by begin, those of threads and of whole processes
        self.rows: Table = known.rows
        self.texts = known.texts
        self._ranges = NamedRanges(known)
        self._alike: dict[tuple[int, int], list[str]] = {}

    @property
    def any(self) -> bool:
        return self._ranges.any

    def paths(self, pids: Column, tids: Column, moments: Column) -> list[str | None]:
        """Return the path of each thread's ranges at a moment, outer to inner; None without any."""
        found: list[str | None] = [None] * len(pids)
        for (pid, tid), rows in self._threads(pids, tids):
            known = self._ranges.of(pid, tid)
            for row, place in zip(rows.tolist(), known.at(moments[rows]).tolist(), strict=True):
                if place >= 0:
                    found[row] = known.paths[place]
        return found

    def groups(self, pids: Column, tids: Column, moments: Column) -> Iterator[tuple[str, Column]]:
        """Yield (path, its rows), with ``step 1`` and ``step 2`` as one; "" for rows without range."""
        together: dict[str, list[Column]] = {}
        for (pid, tid), rows in self._threads(pids, tids):
            known = self._ranges.of(pid, tid)
            names = self._alike.setdefault((pid, tid), alike(known.paths))
            places = known.at(moments[rows])
            for place in np.unique(places).tolist():
                together.setdefault(names[place] if place >= 0 else "", []).append(rows[places == place])
        for path, parts in together.items():
            yield path, np.sort(np.concatenate(parts))

    def _threads(self, pids: Column, tids: Column) -> Iterator[tuple[tuple[int, int], Column]]:
        """Each thread and its rows; without any ranges, one for all rows."""
        if not self.any:
            if len(pids):
                yield (-1, -1), np.arange(len(pids))
            return
        both = pids.astype(np.int64) << 32 | tids.astype(np.int64)
        different, which = np.unique(both, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        edges = np.append(0, np.cumsum(np.bincount(which.reshape(-1), minlength=len(different))))
        for place, one in enumerate(different.tolist()):
            yield (one >> 32, one & 0xFFFFFFFF), order[edges[place] : edges[place + 1]]
