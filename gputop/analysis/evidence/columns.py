"""Numpy tools: intervals, exact identity of values, and bounds of the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from gputop.engine.threads.occupancy import expand

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FOREVER = 1 << 62  # ns: later than any moment of a session
T = TypeVar("T", bound=np.generic)
Mask = npt.NDArray[np.bool_]
Own = TypeVar("Own", bound="Tabular")


_FEW = 64  # rows: a column of fewer takes less memory than what it would be instead


def shared_value(parts: Sequence[npt.NDArray[T]]) -> npt.NDArray[T] | None:
    """Return the column that joins parts of one value, in the memory of that value; None of others."""
    parts = [part for part in parts if len(part)]
    rows = sum(map(len, parts))
    if rows < _FEW:
        return None
    value = parts[0][:1].copy()
    for part in parts:
        if ((part[:1] if part.strides == (0,) else part) != value).any():
            return None
    value.setflags(write=False)
    made: npt.NDArray[T] = np.ndarray(rows, value.dtype, value, strides=(0,))
    return made  # in half the time of ``np.broadcast_to``


def lean(column: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return a column; equal values are one in memory, and may not be changed."""
    one = shared_value([column])
    return column if one is None else one


class Tabular:
    """A base of data classes whose arrays are the columns of a table."""

    __slots__ = ()
    WHOLE: ClassVar[frozenset[str]] = frozenset()  # arrays that are no columns, as are all other fields

    def take(self: Own, rows: npt.NDArray[Any] | slice) -> Own:
        """Return some rows, by number or mask."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        for name, value in values.items():
            if isinstance(value, np.ndarray) and name not in self.WHOLE:
                values[name] = value[rows]
        return type(self)(**values)

    @classmethod
    def join(cls: type[Own], parts: Iterable[Own]) -> Own:
        """Join at least one table, of columns only."""
        tables = list(parts)
        names = [one.name for one in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(one, name) for one in tables]) for name in names})


def overlap(begin: Ints, end: Ints, low: Ints, high: Ints) -> Ints:
    """Return the nanoseconds that [begin, end) and [low, high) share, row by row."""
    shared: Ints = np.maximum(np.minimum(end, high) - np.maximum(begin, low), 0)
    return shared


def union(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return disjoint intervals in order that cover the same instants; empty ones are dropped."""
    keep = end > begin
    if not keep.all():
        begin, end = begin[keep], end[keep]
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin = begin[order]
        end = end[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    fresh = np.ones(len(begin), np.bool_)
    fresh[1:] = begin[1:] > reach[:-1]
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(begin)) - 1
    return begin[heads], reach[tails] if len(heads) else reach[:0]


def among(values: npt.NDArray[Any], codes: Iterable[int]) -> Mask:
    """Return ``np.isin`` for values and codes of an enum.

    A live explanation looks up few rows a hundred times, for which ``np.isin`` takes five times as long.
    """
    return _codes(tuple(map(int, codes))).take(values, mode="wrap")


@lru_cache(maxsize=256)
def _codes(codes: tuple[int, ...]) -> Mask:
    table = np.zeros(256, np.bool_)
    table[list(codes)] = True
    return table


def length(begin: Ints, end: Ints) -> int:
    """Return the nanoseconds covered by intervals that may overlap."""
    begin, end = union(begin, end)
    return int((end - begin).sum())


def intersect(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the intersection of two lists of disjoint, ordered intervals."""
    first = np.searchsorted(b[1], a[0], side="right")
    last = np.searchsorted(b[0], a[1], side="left")
    mine, theirs = expand(first, last)
    return np.maximum(a[0][mine], b[0][theirs]), np.minimum(a[1][mine], b[1][theirs])


def subtract(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the parts of ``a`` outside ``b``; both disjoint and ordered."""
    if not len(a[0]):
        return a
    low, high = int(a[0][0]), int(a[1][-1])
    inside = (b[1] > low) & (b[0] < high)
    begin = np.append(low, np.maximum(b[1][inside], low))
    end = np.append(np.minimum(b[0][inside], high), high)
    return intersect(a, (begin[end > begin], end[end > begin]))


def shared(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> int:
    """Return the nanoseconds that two lists of disjoint, ordered intervals share, fast for a short ``b``."""
    return int(covered(a, *b).sum())


AT_ONCE = 1 << 14  # intervals: what more of them need for a moment is megabytes


def covered(cover: tuple[Ints, Ints], begin: Ints, end: Ints) -> Ints:
    """Return the nanoseconds of each [begin, end) that disjoint, ordered intervals cover."""
    total = np.append(0, np.cumsum(cover[1] - cover[0]))

    def before(moments: Ints) -> Ints:
        place = np.searchsorted(cover[0], moments, side="right")
        ns: Ints = total[place]
        inside = place > 0
        ns[inside] -= np.maximum(cover[1][place[inside] - 1] - moments[inside], 0)
        return ns

    within = np.empty(len(begin), np.int64)
    for low in range(0, len(begin), AT_ONCE):
        part = slice(low, low + AT_ONCE)
        within[part] = np.maximum(before(end[part]) - before(begin[part]), 0)
    return within


def distinct(rows: Ints) -> Ints:
    """Return the distinct row numbers, ascending; -1 stands for no row and is left out."""
    chosen = np.zeros(int(rows.max(initial=-1)) + 1, np.bool_)
    chosen[rows[rows >= 0]] = True
    return np.flatnonzero(chosen)


def unique_runs(ids: npt.NDArray[T]) -> tuple[npt.NDArray[T], Ints, Ints]:
    """Return ``np.unique`` with index and inverse, for columns that seldom change from row to row."""
    heads = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
    unique, first, number = np.unique(ids[heads], return_index=True, return_inverse=True)
    lengths = np.diff(np.append(heads, len(ids)))
    return unique, heads[first], np.repeat(number.reshape(-1).astype(np.int64), lengths)


# How much of a long stretch is analysed in full, of a file and live.


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of estimates and replays; beyond them samples stand for the whole."""

    operations: int  # operations of a queue by which durations are found, and learned
    gaps: int  # estimated gaps that are followed one by one, the longest
    waits: int  # waits of a program that are run again, from the middle: a loop repeats itself


WHOLE = Effort(operations=300_000, gaps=20_000, waits=1_500)
LIVE = Effort(operations=120_000, gaps=5_000, waits=1_500)

# Exact identity: equal values get equal numbers, unequal ones never.

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SLOTS_BITS = 16
TABLE_SLOTS = 1 << 20  # so many numbers are looked up in a table; more are sorted


def numbered(values: npt.NDArray[np.uint64]) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Return the number of each value, and the value of each number; in no order, without sorting millions.

    A table of slots finds a value that may be equal, and equality decides. Values that meet another one in
    their slot go to the next table; the rest after all tables is sorted.
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
    """Return one number for each row: rows that are equal in all columns have the same, others never.

    Numbers run from 0 without a gap, in the order of the first column's values, then the second's, …

    Args:
        columns: Of integers that are not negative, all of one length.
    """
    return Identities(*columns).number


def first_seen(*columns: npt.NDArray[Any]) -> Ints:
    """Return rows that may be the first of their kind, ascending: all others have an equal earlier row.

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
    """Numbers of the rows of some columns, among which other rows are looked up."""

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
            pairs.number = number[:0]  # only the table is used from here on
            self._pairs.append(pairs)
        self.number: Ints = number  # of each row, as ``group_ids`` has it
        self._size = size if len(number) else 0

    def __len__(self) -> int:
        return self._size

    def find(self, *columns: npt.NDArray[Any]) -> Ints:
        """Return the number of the known row that equals each row; -1 for none."""
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
    """Return the place of each wanted value in ascending values; mark those that are missing."""
    wanted = wanted.astype(values.dtype, copy=False)
    if len(values) == 1:
        missing |= wanted != values[0]
        return np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    missing |= values[place] != wanted
    return place


def _ranked(column: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Return (the rank of each value, the values in order)."""
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
        if size > TABLE_SLOTS:
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

    def find(self, pairs: Ints, missing: npt.NDArray[np.bool_]) -> Ints:
        """Return the rank of each; mark those that do not occur."""
        if self._table is None:
            return _places(self._known, pairs, missing)
        rank = self._table[pairs]
        missing |= rank < 0
        return np.maximum(rank, 0)
