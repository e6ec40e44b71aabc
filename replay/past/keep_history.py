"""Keeps the live history: copies it into a session file, which then goes on as a recording beside it."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from probes.source import MARK, Item
from replay.coding.chunker import Chunker
from replay.coding.file_format import SessionError
from replay.items import item_in
from replay.past.history import History, HistoryFile, cut_header
from replay.writer import SessionWriter

_BLOCK_BYTES: Final = 1 << 20
_LAST_BYTES: Final = 4 << 20  # so much is copied while the history waits

Row = tuple[str, int, int, int]


class Disguised:
    """Passes items to a private writer, which has to read into chunks packed for the history."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer

    def append(
        self, kind: str, first_ns: int, last_ns: int, count: int, chunk: bytes, item: Item | None = None
    ) -> None:
        self._write(chunk)

    def append_block(self, rows: Iterable[Row], block: bytes) -> None:
        for _kind, _first_ns, _last_ns, place in rows:
            self._write(memoryview(block)[place:])

    def _write(self, chunk: bytes | memoryview) -> None:
        try:
            item, _size = item_in(chunk)
        except ValueError as error:
            raise SessionError("the live history is damaged: record again") from error
        self._writer.write(item)


class HistoryCopy:
    """Copies the history into a session file, which then goes on as a recording beside it."""

    def __init__(self, history: History, *, whole: bool) -> None:
        self._history = history
        with history.lock:
            part = history.parts[0] if whole and history.parts else None
            self._from = part.base if part is not None else _after_newest_mark(history)
            self._facts = history.facts(now=part is None)
            self._since_ns = part.since_ns if part is not None else history.end_ns
            lost = part.lost if part is not None else history.lost_now()
        self._begins = part is not None and part.base == 0
        self.header = (
            dict(history.header) if self._begins else cut_header(history.header, self._since_ns, lost)
        )

    def copy_into(self, writer: SessionWriter, *, private: bool = False) -> None:
        """Copy, then let the history hand the same chunks to the writer from now on.

        Raises:
            SessionError: the file could not be written.
        """
        sink = Disguised(writer) if private else writer
        facts = Chunker(sink.append)
        for sample in () if self._begins else self._facts.samples(self._since_ns):
            facts.write(sample)
        history, at = self._history, self._from
        while True:
            with history.lock:
                parts = list(history.parts)
                end = parts[-1].base + parts[-1].size if parts else at
                if end - at <= _LAST_BYTES:
                    _copy(parts, at, end, sink)
                    history.tee(sink)
                    return
            _copy(parts, at, end, sink)
            at = end


def _after_newest_mark(history: History) -> int:
    """Offset of the first chunk after the newest mark; there are few such chunks."""
    for part in reversed(history.parts):
        entries = part.entries
        for row in range(len(entries) - 1, -1, -1):
            if entries.kinds[entries.kind[row]] == MARK:
                return int(entries.offset[row + 1]) if row + 1 < len(entries) else part.base + part.size
    return 0


def _copy(parts: Sequence[HistoryFile], start: int, end: int, sink: SessionWriter | Disguised) -> None:
    """The chunks whose offsets lie from ``start`` to ``end``; those dropped meanwhile are left out."""
    for part in parts:
        entries = part.entries
        row, stop = bisect_left(entries.offset, start), bisect_left(entries.offset, end)
        while row < stop and not part.dropped:
            base = entries.offset[row]
            after = max(bisect_left(entries.offset, base + _BLOCK_BYTES, row, stop), row + 1)
            limit = entries.offset[after] if after < stop else min(end, part.base + part.size)
            block = os.pread(part.file.fileno(), limit - base, base - part.base)
            if len(block) < limit - base:
                break
            rows = [
                (
                    entries.kinds[entries.kind[at]],
                    entries.t_first[at],
                    entries.t_last[at],
                    entries.offset[at] - base,
                )
                for at in range(row, after)
            ]
            sink.append_block(rows, block)
            row = after
