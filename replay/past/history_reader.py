"""Reads the live history while it is written."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from probes.source import Item
from replay.items import ChunkTable, ItemReader, mark_rows_of
from replay.past.history import History, HistoryFile, cut_header
from replay.scan import ScannedFile


class HistoryReader(ItemReader):
    """The history from the moment of opening on; ``refresh`` adds later chunks.

    A mark keeps its number while this reader lives. Dropped parts of the history disappear here too:
    ``first`` is the oldest mark that is left.
    """

    def __init__(self, history: History) -> None:
        self._parts: list[HistoryFile] = []
        super().__init__(_Joined(self._parts))
        self._history = history
        self.header: dict[str, Any] = dict(history.header)
        self.refresh()

    def refresh(self) -> bool:
        """Read chunks written since; True where more may follow."""
        history = self._history
        with history.lock:
            known = self._parts[-1].base if self._parts else -1
            self._parts += [part for part in history.parts if part.base > known]
            entries = [part.entries for part in self._parts]
            kind = np.concatenate([np.zeros(0, np.int64), *(np.array(rows.kind) for rows in entries)])
            last = np.concatenate([np.zeros(0, np.int64), *(np.array(rows.t_last) for rows in entries)])
            offset = np.concatenate([np.zeros(0, np.int64), *(np.array(rows.offset) for rows in entries)])
            kinds = list(entries[-1].kinds) if entries else []
        self._use(ChunkTable(kinds, kind, last, offset, mark_rows_of(kinds, kind)))
        part = self._oldest()
        if part is not None and part.base:
            self.header = cut_header(history.header, part.since_ns, part.lost)
        return True

    @property
    def first(self) -> int:
        """The oldest mark that is left; the number of marks when none is."""
        part = self._oldest()
        if part is None:
            return len(self.marks)
        row = int(np.searchsorted(self._table.offset, part.base))
        return int(np.searchsorted(self._table.mark_rows, row))

    def _oldest(self) -> HistoryFile | None:
        return next((part for part in self._parts if not part.dropped), None)

    def _before(self) -> Iterable[Item]:
        part = self._oldest()
        return self._history.facts(now=False).samples(part.since_ns) if part is not None and part.base else ()

    def _gone(self, row: int) -> bool:
        part = self._oldest()
        return part is None or int(self._table.offset[row]) < part.base

    def rows_of(self, rows: Iterable[int]) -> Iterator[Item]:
        return super().rows_of(row for row in rows if not self._gone(row))

    def close(self) -> None:
        self._closed = True


class _Joined(ScannedFile):
    """The parts of a history as one file of chunks."""

    def __init__(self, parts: list[HistoryFile]) -> None:
        self.parts = parts
        self.size = 1 << 62

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from ``offset`` on; none where the part was dropped."""
        place = bisect_right(self.parts, offset, key=lambda part: part.base) - 1
        if place < 0 or self.parts[place].dropped:
            return b""
        return os.pread(self.parts[place].file.fileno(), count, offset - self.parts[place].base)
