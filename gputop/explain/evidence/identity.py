"""Equal values get equal numbers, unequal ones never: exact identity of handles, and of what columns name.

What is said to be proved rests on it: no two streams, events or kernels are ever taken for one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.explain.evidence.ranges import Ints

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SLOTS_BITS = 16
_TABLE = 1 << 20  # so many numbers are looked up in a table; more are sorted


def numbered(values: npt.NDArray[np.uint64]) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """The number of each value, and the value of each number; in no order, and without sorting ten million.

    A table of slots finds one that may be equal, and equality decides; what met another value in its slot
    goes to the next table, and what is left after all of them is sorted.
    """
    ids = np.full(len(values), -1, np.int64)
    distinct: list[npt.NDArray[np.uint64]] = []
    known = 0
    rest: Ints | None = None  # rows without a number yet; None: all
    for multiplier in _MULTIPLIERS:
        left = values if rest is None else values[rest]
        if not len(left):
            break
        slot = (left * np.uint64(multiplier)) >> np.uint64(64 - _SLOTS_BITS)
        table = np.full(1 << _SLOTS_BITS, -1, np.int64)
        table[slot] = np.arange(len(left))
        used = np.flatnonzero(table >= 0)
        owner = left[table[used]]
        number = np.zeros(1 << _SLOTS_BITS, np.int64)
        number[used] = np.arange(len(used))
        mine = number[slot]
        same = owner[mine] == left
        if rest is None:
            ids = np.where(same, mine, -1)
            rest = np.flatnonzero(~same)
        else:
            ids[rest[same]] = known + mine[same]
            rest = rest[~same]
        distinct.append(owner)
        known += len(owner)
    if rest is not None and len(rest):
        unique, number = np.unique(values[rest], return_inverse=True)
        ids[rest] = known + number.reshape(-1)
        distinct.append(unique)
    return ids, np.concatenate([np.zeros(0, np.uint64), *distinct])


def group_ids(*columns: npt.NDArray[Any]) -> Ints:
    """One number for each row: rows that are equal in all columns have the same, others never.

    Args:
        columns: Of integers that are not negative, all of one length.

    Returns:
        Numbers from 0 on without a gap, in the order of the first column's values, then the second's, …
    """
    return Identities(*columns).number


def first_seen(*columns: npt.NDArray[Any]) -> Ints:
    """Rows that may be the first of their kind, ascending: of all others an earlier one is equal.

    Args:
        columns: Of integers that are not negative, all of one length.
    """
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed += column.astype(np.uint64, copy=False)
        mixed *= np.uint64(_MULTIPLIERS[0])
    slot = mixed >> np.uint64(64 - _SLOTS_BITS)
    table = np.zeros(1 << _SLOTS_BITS, np.int64)
    table[slot[::-1]] = np.arange(len(slot))[::-1]
    first = table[slot]
    fresh = first == np.arange(len(slot))
    for column in columns:
        fresh |= column[first] != column
    return np.flatnonzero(fresh)


class Identities:
    """What rows of some columns name, numbered; other rows are looked up among them.

    Attributes:
        number: Of each row, as ``group_ids`` has it.
    """

    def __init__(self, *columns: npt.NDArray[Any]) -> None:
        self._values: list[npt.NDArray[np.uint64]] = []  # of each column, ascending
        self._pairs: list[_Pairs | None] = []  # of the numbers up to each column; None: all that can be
        number = np.zeros(len(columns[0]), np.int64)
        size = 1
        for column in columns:
            place, values = _ranked(column)
            self._values.append(values)
            if size == 1 or len(values) <= 1:
                number, size = (place, len(values)) if size == 1 else (number, size)
                self._pairs.append(None)
                continue
            pairs = _Pairs(number * len(values) + place, size * len(values))
            number, size = pairs.number, len(pairs)
            self._pairs.append(pairs.without_rows())
        self.number: Ints = number
        self._size = size if len(number) else 0

    def __len__(self) -> int:
        return self._size

    def find(self, *columns: npt.NDArray[Any]) -> Ints:
        """The number of what each row names; -1 where none of the known rows does."""
        number = np.zeros(len(columns[0]), np.int64)
        if not len(self):
            return number - 1
        missing = np.zeros(len(number), np.bool_)
        size = 1
        for column, values, pairs in zip(columns, self._values, self._pairs, strict=True):
            place = _places(values, column, missing)
            if pairs is None:
                number, size = (place, len(values)) if size == 1 else (number, size)
            else:
                number, size = pairs.find(number * len(values) + place, missing), len(pairs)
        return np.where(missing, -1, number)


def _places(values: npt.NDArray[Any], wanted: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> Ints:
    """Where in ascending values each wanted one is; marks those that are not there."""
    wanted = wanted.astype(values.dtype, copy=False)
    if len(values) == 1:
        missing |= wanted != values[0]
        return np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    missing |= values[place] != wanted
    return place


def _ranked(column: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """(the rank of each value, the values in order)."""
    exact = column.astype(np.uint64, copy=False)
    if len(exact) and (exact == exact[0]).all():
        return np.zeros(len(exact), np.int64), exact[:1].copy()
    ids, values = numbered(exact)
    order = np.argsort(values)
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return rank[ids], values[order]


class _Pairs:
    """The numbers below ``size`` that occur, ranked: by a table where it is small, else sorted."""

    def __init__(self, pairs: Ints, size: int) -> None:
        self._table: Ints | None = None
        if size > _TABLE:
            self._known, rank = np.unique(pairs, return_inverse=True)
            self.number: Ints = rank.reshape(-1).astype(np.int64)
            return
        used = np.zeros(size, np.bool_)
        used[pairs] = True
        self._known = np.flatnonzero(used)
        self._table = np.where(used, np.cumsum(used) - 1, -1)
        self.number = self._table[pairs]

    def __len__(self) -> int:
        return len(self._known)

    def without_rows(self) -> _Pairs:
        """The same without the numbers of the rows it was made of."""
        self.number = self.number[:0]
        return self

    def find(self, pairs: Ints, missing: npt.NDArray[np.bool_]) -> Ints:
        """The rank of each; marks those that do not occur."""
        if self._table is None:
            return _places(self._known, pairs, missing)
        rank = self._table[pairs]
        missing |= rank < 0
        return np.maximum(rank, 0)
