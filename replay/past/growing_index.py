"""The index of a file that grows: the newest part in memory, the rest only in the file's pieces.

A chunk is 32 bytes of an index in memory, and a recorder may write hundreds of chunks a second for days.
"""

from __future__ import annotations

from replay.coding import file_format as fmt
from replay.index import Entries
from replay.scan import ScannedFile, pieces_from
from replay.seek_points import Spacing


class GrowingIndex:
    """Follows the chunks that are written."""

    def __init__(self, spacing: Spacing) -> None:
        self.newest_ns = 0  # the latest time of all chunks, 0 before the first
        self._spacing = spacing
        self._rows = Entries()  # since the newest piece
        self._piece = self._after_piece = 0  # where the newest one begins and ends

    def add(self, kind: str, t_first: int, t_last: int, offset: int) -> None:
        """Remember a chunk; times in nanoseconds, offset in bytes."""
        self.newest_ns = max(self.newest_ns, t_last)
        self._rows.add(kind, t_first, t_last, offset)

    def piece(self, at: int, time_ns: int) -> bytes | None:
        """A chunk for the end of the file, with entries in no piece yet; None while none is due."""
        count = len(self._rows)
        if count < self._spacing.chunks and at - self._after_piece < self._spacing.bytes:
            return None
        body = self._rows.pack(at=at, before=self._piece)
        chunk = fmt.pack_chunk(fmt.INDEX, time_ns, time_ns, count, body)
        self._rows = Entries()
        self._piece, self._after_piece = at, at + len(chunk)
        return chunk

    def whole(self, descriptor: int, start: int) -> Entries | None:
        """All chunks; None when the pieces in the file are no longer as they were written."""
        if not self._piece:
            return self._rows
        earlier = pieces_from(ScannedFile(descriptor), start, self._piece)
        if earlier is not None:
            earlier.extend(self._rows)
        return earlier
