"""The index of a session file: which chunk lies where; written on close, or rebuilt by scanning."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from replay.coding.file_format import SMALLEST_CHUNK, inflate, pack, unpack

_ROW_BYTES: Final = 2 + 8 + 8 + 8
_NAMES_BYTES: Final = 1 << 16  # of a piece: beside its rows


class Entries:
    """Grows by one row per chunk; in columns, since a long session has many."""

    def __init__(self, names_of: Entries | None = None) -> None:
        """Start empty.

        Args:
            names_of: numbers kinds as this one does, so that columns of both can be joined.
        """
        self.kinds: list[str] = [] if names_of is None else names_of.kinds
        self.kind: array[int] = array("q")
        self.t_first: array[int] = array("q")
        self.t_last: array[int] = array("q")
        self.offset: array[int] = array("q")
        self._number: dict[str, int] = {} if names_of is None else names_of._number

    def __len__(self) -> int:
        return len(self.offset)

    def add(self, kind: str, t_first: int, t_last: int, offset: int) -> None:
        """Remember a chunk; times in nanoseconds, offset in bytes."""
        if kind not in self._number:
            self._number[kind] = len(self.kinds)
            self.kinds.append(kind)
        self.kind.append(self._number[kind])
        self.t_first.append(t_first)
        self.t_last.append(t_last)
        self.offset.append(offset)

    def span(self) -> tuple[int, int]:
        """Earliest and latest time of all chunks; zeros when there is none."""
        return min(self.t_first, default=0), max(self.t_last, default=0)

    def extend(self, later: Entries) -> None:
        """Append the rows of another index, whose chunks come later."""
        for name in later.kinds:
            if name not in self._number:
                self._number[name] = len(self.kinds)
                self.kinds.append(name)
        numbers = np.array([self._number[name] for name in later.kinds], np.int64)
        self.kind.frombytes(numbers[np.array(later.kind, np.int64)].tobytes())
        self.t_first += later.t_first
        self.t_last += later.t_last
        self.offset += later.offset

    def pack(self, **more: int) -> bytes:
        """Body of an index chunk: offsets and times as differences, which compress well."""
        columns = {
            **more,
            "kinds": self.kinds,
            "kind": np.array(self.kind, "<u2").tobytes(),
            "t_first": _steps(self.t_first),
            "t_last": _steps(self.t_last),
            "offset": _steps(self.offset),
        }
        return zlib.compress(pack(columns), 1)


def unpack_piece(body: bytes, count: int, index_offset: int) -> tuple[Entries, int]:
    """A piece of the index, as ``unpack_entries``, and where the piece before it lies; 0 for the first one.

    Raises:
        ValueError: it is damaged, no piece, or lies elsewhere than where it was written.
    """
    columns = _columns(body, count, _NAMES_BYTES)
    at, before = columns.get("at"), columns.get("before")
    if type(before) is not int or at != index_offset or not 0 <= before < index_offset:
        raise ValueError("no piece of the index, or one that was moved")
    if count * SMALLEST_CHUNK > index_offset - before:
        raise ValueError("more chunks than there is room for")
    return _entries(columns, count, index_offset), before


def unpack_entries(body: bytes, count: int, index_offset: int) -> Entries:
    """The index of a closed file, not to be trusted: offsets are checked here, chunks when they are read.

    Raises:
        ValueError: it is damaged, or a piece of it only.
    """
    columns = _columns(body, count)
    if "before" in columns:
        raise ValueError("a piece of the index")
    return _entries(columns, count, index_offset)


def _columns(body: bytes, count: int, more: int = 1 << 20) -> dict[str, Any]:
    columns = unpack(inflate(body, count * _ROW_BYTES + more))
    if not isinstance(columns, dict):
        raise ValueError("the index is no map")
    return columns


def _entries(columns: dict[str, Any], count: int, index_offset: int) -> Entries:
    kinds, kind = columns.get("kinds"), columns.get("kind")
    if not isinstance(kinds, list) or not all(isinstance(name, str) for name in kinds):
        raise ValueError("the index has no kinds")
    if not isinstance(kind, bytes) or len(kind) != 2 * count:
        raise ValueError("the index has another length")
    entries = Entries()
    entries.kinds = kinds
    entries._number = {name: number for number, name in enumerate(kinds)}
    entries.kind = array("q", np.frombuffer(kind, "<u2").astype(np.int64).tobytes())
    entries.t_first = _sums(columns.get("t_first"), count)
    entries.t_last = _sums(columns.get("t_last"), count)
    entries.offset = _sums(columns.get("offset"), count)
    if count:
        offsets = np.array(entries.offset)
        if max(entries.kind) >= len(kinds) or offsets[0] <= 0 or offsets[-1] >= index_offset:
            raise ValueError("the index points outside of the file")
        if not (offsets[1:] > offsets[:-1]).all():
            raise ValueError("the index is out of order")
    return entries


def _steps(values: Sequence[int]) -> bytes:
    column: npt.NDArray[np.int64] = np.array(values, "<i8")
    return np.diff(column, prepend=np.zeros(1, np.int64)).astype("<i8").tobytes()


def _sums(data: object, count: int) -> array[int]:
    if not isinstance(data, bytes) or len(data) != 8 * count:
        raise ValueError("the index has another length")
    return array("q", np.cumsum(np.frombuffer(data, "<i8")).tobytes())
