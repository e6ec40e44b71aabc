"""Sums and latency histograms of calls for a whole recording: a few hundred bytes a row.

A ``CallTable`` has 10 KB a row, however short its process lived. On a machine where programs come and go the
rows of a recording grow for as long as it lasts, so they are kept here with the buckets that hold something.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gputop.engine.calls.calltable import ADDED, MOST_ROWS, TOTALS, CallTable, RowSums
from gputop.engine.calls.histogram import BUCKETS, Ints
from gputop.engine.fork_state import packed

_MOST_COUNTED: Final = (1 << 32) - 1  # as a file holds them
_ROW_BYTES, _BUCKET_BYTES = 8 * (3 + len(TOTALS)), 8  # in a file, before they are compressed

Key = tuple[int, int, bool]


class CallSums:
    """Rows by (pid, op, nested); row 0 counts the calls without a key of their own."""

    def __init__(self) -> None:
        self._row_of: dict[Key | None, int] = {None: 0}
        self._totals = {name: np.zeros(1, np.int64) for name in TOTALS}
        self._places = np.zeros(0, np.int64)  # row * BUCKETS + bucket, ascending
        self._counts = np.zeros(0, np.int64)  # at these places

    @property
    def size_bytes(self) -> int:
        """Size of ``told``, before it is compressed."""
        return _ROW_BYTES * len(self._row_of) + _BUCKET_BYTES * len(self._places)

    def absorb(self, table: CallTable, totals: RowSums) -> None:
        """Adds what a table has counted."""
        totals.grow(table.rows)
        theirs = np.flatnonzero(totals.count)
        mine = np.array([self._row(table.keys[row]) for row in theirs.tolist()], np.int64)
        for name, into in self._totals.items():
            grown = np.concatenate([into, np.zeros(len(self._row_of) - len(into), np.int64)])
            (np.add if name in ADDED else np.maximum).at(grown, mine, getattr(totals, name)[theirs])
            self._totals[name] = grown
        counts = table.counts[theirs].reshape(-1)
        filled = np.flatnonzero(counts)
        places = np.concatenate([self._places, mine[filled // BUCKETS] * BUCKETS + filled % BUCKETS])
        order = np.argsort(places, kind="stable")
        places = places[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        self._places = places[first]
        both = np.concatenate([self._counts, counts[filled].astype(np.int64)])[order]
        self._counts = np.add.reduceat(both, first) if len(first) else both

    def _row(self, key: Key | None) -> int:
        if key not in self._row_of and len(self._row_of) >= MOST_ROWS:
            return 0
        return self._row_of.setdefault(key, len(self._row_of))

    def told(self) -> dict[str, Any]:
        """The keys ``calls``, ``buckets`` and ``counts`` of ``Tally.told``."""
        columns = [self._totals[name].tolist() for name in TOTALS]
        keys = [key or (0, 0, False) for key in self._row_of]
        return {
            "calls": packed([(*key, *sums) for key, *sums in zip(keys, *columns, strict=True)]),
            "buckets": _steps(self._places),
            "counts": np.minimum(self._counts, _MOST_COUNTED).astype("<u4").tobytes(),
        }


def _steps(places: Ints) -> bytes:
    return np.diff(places, prepend=0).astype("<u4").tobytes()
