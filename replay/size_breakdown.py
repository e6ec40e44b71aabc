"""The bytes of a session file by use, from the prefix of each chunk."""

from __future__ import annotations

import os
from dataclasses import dataclass

from replay.coding.file_format import HEADER, MARKER, MAX_HEADER_BYTES, MAX_PREFIX_BYTES, RECORDS
from replay.folders import opened
from replay.scan import Scan, ScannedFile, index_of
from replay.segments import segment_names


@dataclass(frozen=True, slots=True)
class KindSize:
    """One kind of chunk."""

    kind: str
    chunks: int
    items: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Census:
    """The file as a sum."""

    kinds: tuple[KindSize, ...]  # most bytes first
    size_bytes: int  # of the file
    other_bytes: int  # outside of intact chunks: the first copy of the header, the trailer, damaged parts
    closed: bool  # the recorder ended in order

    @property
    def bytes_a_record(self) -> float | None:
        """Bytes of a record, with all that belongs to it; None without records."""
        records = sum(kind.items for kind in self.kinds if kind.kind == RECORDS)
        return self.size_bytes / records if records else None


def census(path: str) -> Census:
    """Counts the chunks of a session; only their beginnings are read where a file has its index.

    Raises:
        OSError: It cannot be read.
        SessionError: The folder cannot be listed.
    """
    if os.path.isdir(path):
        parts = [os.path.join(path, name) for name in segment_names(path)]
        return _added([_of_file(part, follow=False) for part in parts if not os.path.islink(part)])
    return _of_file(path)


def _of_file(path: str, *, follow: bool = True) -> Census:
    descriptor = opened(path, follow=follow)
    try:
        return _count(ScannedFile(descriptor))
    finally:
        os.close(descriptor)


def _added(parts: list[Census]) -> Census:
    sums: dict[str, tuple[int, int, int]] = {}
    for kind in (kind for part in parts for kind in part.kinds):
        chunks, items, size = sums.get(kind.kind, (0, 0, 0))
        sums[kind.kind] = chunks + kind.chunks, items + kind.items, size + kind.size_bytes
    return Census(
        _largest_first(sums),
        sum(part.size_bytes for part in parts),
        sum(part.other_bytes for part in parts),
        all(part.closed for part in parts),
    )


def _largest_first(sums: dict[str, tuple[int, int, int]]) -> tuple[KindSize, ...]:
    return tuple(KindSize(kind, *row) for kind, row in sorted(sums.items(), key=lambda one: -one[1][2]))


def _count(file: ScannedFile) -> Census:
    place = max(file.read(0, MAX_HEADER_BYTES + MAX_PREFIX_BYTES).find(MARKER), 0)
    first = file.chunk_at(place)
    start = first.end if first is not None and first.kind == HEADER else place
    index = index_of(file, start)
    closed = index is not None
    if index is None:
        scan = Scan(file, start)
        index, closed = scan.entries, scan.closed
    offsets = [place, *index.offset] if start != place else [*index.offset]
    if closed:
        last = file.chunk_at(index.offset[-1]) if len(index) else first
        offsets.append(last.end if last is not None else file.size)
    sums: dict[str, tuple[int, int, int]] = {}
    for offset in offsets:
        chunk = file.chunk_at(offset)
        if chunk is None:
            continue
        chunks, items, size = sums.get(chunk.kind, (0, 0, 0))
        count = chunk.count if chunk.kind == RECORDS else 1
        sums[chunk.kind] = chunks + 1, items + count, size + chunk.end - chunk.offset
    kinds = _largest_first(sums)
    counted = sum(kind.size_bytes for kind in kinds)
    return Census(kinds, file.size, file.size - counted, closed)
