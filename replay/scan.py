"""Finding the chunks of a session file: by its index, or by reading from front to back past any damage."""

from __future__ import annotations

import os
import zlib
from typing import Final

from replay.format import (
    INDEX,
    MARKER,
    MAX_PREFIX_BYTES,
    SMALLEST_CHUNK,
    TRAILER_BYTES,
    Chunk,
    parse_prefix,
    parse_trailer,
)
from replay.index import Entries, unpack_entries

_WINDOW_BYTES: Final = 1 << 20
# A hostile file can name the same bytes as the body of very many chunks: no more than this share of the
# file's size is read in vain.
_WASTE: Final = 4


class File:
    """Reads an open file by offset; it may shrink meanwhile, so nothing is mapped."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset`` on, fewer at the end of the file."""
        return os.pread(self.descriptor, count, offset)

    def chunk_at(self, offset: int) -> Chunk | None:
        """What a chunk says of itself; None when there is none or it goes beyond the end."""
        chunk = parse_prefix(self.read(offset, MAX_PREFIX_BYTES), offset)
        return chunk if chunk is not None and chunk.end <= self.size else None

    def body(self, chunk: Chunk) -> bytes | None:
        """The body of a chunk; None when it is damaged."""
        body = self.read(chunk.offset + chunk.prefix_bytes, chunk.body_bytes)
        return body if zlib.crc32(body) == chunk.crc and len(body) == chunk.body_bytes else None


def index_of(file: File, start: int) -> Entries | None:
    """The index that was written on close; None when there is none to rely on.

    Args:
        file: the session file.
        start: offset of the first byte after the header.
    """
    offset = parse_trailer(file.read(max(0, file.size - TRAILER_BYTES), TRAILER_BYTES))
    if offset is None or not start <= offset < file.size:
        return None
    chunk = file.chunk_at(offset)
    if chunk is None or chunk.kind != INDEX or chunk.end + TRAILER_BYTES != file.size:
        return None
    if chunk.count * SMALLEST_CHUNK > offset - start or (chunk.count == 0 and offset != start):
        return None
    body = file.body(chunk)
    try:
        entries = None if body is None else unpack_entries(body, chunk.count, offset)
    except ValueError:
        return None
    if entries is not None and chunk.count and entries.offset[0] < start:
        return None
    return entries


class Scan:
    """One pass over a file without an index.

    Attributes:
        entries: the intact chunks.
        gaps: offset and length of every stretch that holds none.
        closed: the file ends with a trailer.
    """

    def __init__(self, file: File, start: int) -> None:
        self.entries = Entries()
        self.gaps: list[tuple[int, int]] = []
        self.closed = False
        self._file = file
        self._wasted = 0
        self._run(start)

    def _run(self, start: int) -> None:
        offset, size = start, self._file.size
        while offset < size:
            chunk = self._intact(offset)
            if chunk is not None:
                if chunk.kind != INDEX:
                    self.entries.add(chunk.kind, chunk.t_first, chunk.t_last, chunk.offset)
                offset = chunk.end
                continue
            if parse_trailer(self._file.read(offset, TRAILER_BYTES)) is not None:
                self.closed = offset + TRAILER_BYTES == size
                offset += TRAILER_BYTES
                continue
            found = self._next(offset + 1)
            self.gaps.append((offset, found - offset))
            offset = found

    def _intact(self, offset: int) -> Chunk | None:
        chunk = self._file.chunk_at(offset)
        if chunk is None:
            return None
        if self._file.body(chunk) is not None:
            return chunk
        self._wasted += chunk.body_bytes
        return None

    def _next(self, offset: int) -> int:
        """Where the next intact chunk starts; the end of the file when there is none."""
        size = self._file.size
        while offset < size and self._wasted <= _WASTE * size:
            window = self._file.read(offset, _WINDOW_BYTES)
            place = window.find(MARKER)
            while place >= 0 and self._wasted <= _WASTE * size:
                if self._intact(offset + place) is not None:
                    return offset + place
                place = window.find(MARKER, place + 1)
            if len(window) < _WINDOW_BYTES:
                break
            offset += len(window) - len(MARKER) + 1
        return size
