"""Finding the chunks of a session file: by its index, or by reading from front to back past any damage."""

from __future__ import annotations

import os
import zlib
from typing import Final

from replay.coding.file_format import (
    INDEX,
    MARKER,
    MAX_PREFIX_BYTES,
    SMALLEST_CHUNK,
    TRAILER_BYTES,
    Chunk,
    parse_prefix,
    parse_trailer,
)
from replay.index import Entries, unpack_entries, unpack_piece

WINDOW_BYTES: Final = 1 << 20
# A hostile file can name the same bytes as the body of very many chunks: no more than this share of the
# file's size is read in vain.
_WASTE: Final = 4
_MOST_TRIES: Final = 1 << 14  # chunks that are read for one
_PIECE_WITHIN: Final = 64 << 20  # of the end: writers add a piece of the index far more often


class ScannedFile:
    """Reads an open file by offset; it may shrink meanwhile, so nothing is mapped."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset`` on, fewer at the end of the file."""
        return os.pread(self.descriptor, count, offset)

    def chunk_at(self, offset: int) -> Chunk | None:
        """The chunk at a place; None when there is none or it goes beyond the end."""
        chunk = parse_prefix(self.read(offset, MAX_PREFIX_BYTES), offset)
        return chunk if chunk is not None and chunk.end <= self.size else None

    def body(self, chunk: Chunk) -> bytes | None:
        """The body of a chunk; None when it is damaged."""
        body = self.read(chunk.offset + chunk.prefix_bytes, chunk.body_bytes)
        return body if zlib.crc32(body) == chunk.crc and len(body) == chunk.body_bytes else None


def index_of(file: ScannedFile, start: int) -> Entries | None:
    """The index that was written on close; None when there is none to rely on."""
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


def pieces_of(file: ScannedFile, start: int) -> tuple[Entries, int]:
    """The chunks of the newest intact piece of the index and those before it, in a file without an end.

    Returns:
        The chunks up to that piece, and the offset of the first byte after it; none and ``start`` where
        there is no piece to rely on.
    """
    newest = _newest_piece(file, start)
    whole = pieces_from(file, start, newest.offset) if newest is not None else None
    return (Entries(), start) if newest is None or whole is None else (whole, newest.end)


def pieces_from(file: ScannedFile, start: int, newest: int) -> Entries | None:
    """The chunks of a piece of the index and those before it; None where one is missing or damaged."""
    found: list[Entries] = []
    piece = _piece_at(file, newest)
    while piece is not None:
        body = file.body(piece)
        try:
            entries, before = unpack_piece(body or b"", piece.count, piece.offset)
        except ValueError:
            return None
        if len(entries) and entries.offset[0] < max(start, before):
            return None
        found.append(entries)
        if before == 0:
            whole = Entries()
            for one in reversed(found):
                whole.extend(one)
            return whole
        piece = _piece_at(file, before)
    return None


def _newest_piece(file: ScannedFile, start: int) -> Chunk | None:
    """The last piece of the index: there is one within the last so many bytes, or there is none."""
    high, least = file.size, max(start, file.size - _PIECE_WITHIN)
    tries = _MOST_TRIES
    while high > least:
        low = max(least, high - WINDOW_BYTES)
        window = file.read(low, high - low + len(MARKER) - 1)
        place = window.rfind(MARKER)
        while place >= 0:
            piece = _piece_at(file, low + place)
            tries -= 1
            if piece is not None or not tries:
                return piece
            place = window.rfind(MARKER, 0, place)
        high = low
    return None


def _piece_at(file: ScannedFile, offset: int) -> Chunk | None:
    chunk = file.chunk_at(offset)
    if chunk is None or chunk.kind != INDEX or chunk.count * SMALLEST_CHUNK > offset:
        return None
    return chunk


class Scan:
    """One pass over a file, or the end of one, without an index."""

    def __init__(self, file: ScannedFile, start: int, known: Entries | None = None) -> None:
        self.entries = known if known is not None else Entries()  # the intact chunks
        self.gaps: list[tuple[int, int]] = []  # offset and length of every stretch that holds none
        self.closed = False  # the file ends with a trailer
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
            window = self._file.read(offset, WINDOW_BYTES)
            place = window.find(MARKER)
            while place >= 0 and self._wasted <= _WASTE * size:
                if self._intact(offset + place) is not None:
                    return offset + place
                place = window.find(MARKER, place + 1)
            if len(window) < WINDOW_BYTES:
                break
            offset += len(window) - len(MARKER) + 1
        return size
