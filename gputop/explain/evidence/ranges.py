"""Intervals as numpy columns: finding, joining and intersecting them without loops."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gputop.engine.intervals import expand

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FOREVER = 1 << 62  # ns: later than any moment of a session
T = TypeVar("T", bound=np.generic)
Mask = npt.NDArray[np.bool_]


def overlap(begin: Ints, end: Ints, low: Ints, high: Ints) -> Ints:
    """Nanoseconds that [begin, end) and [low, high) share, row by row."""
    shared: Ints = np.maximum(np.minimum(end, high) - np.maximum(begin, low), 0)
    return shared


def union(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Disjoint intervals in order that cover the same instants; empty ones are dropped."""
    keep = end > begin
    begin, end = begin[keep], end[keep]
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order]) if len(order) else end
    fresh = np.ones(len(begin), np.bool_)
    fresh[1:] = begin[1:] > reach[:-1]
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(begin)) - 1
    return begin[heads], reach[tails] if len(heads) else reach[:0]


def length(begin: Ints, end: Ints) -> int:
    """The instants covered by intervals that may overlap, in nanoseconds."""
    begin, end = union(begin, end)
    return int((end - begin).sum())


def intersect(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """What two lists of disjoint, ordered intervals share."""
    first = np.searchsorted(b[1], a[0], side="right")
    last = np.searchsorted(b[0], a[1], side="left")
    left, right = expand(first, last)
    mine, theirs = left, right
    begin = np.maximum(a[0][mine], b[0][theirs])
    end = np.minimum(a[1][mine], b[1][theirs])
    return begin, end


def subtract(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """What of ``a`` lies outside ``b``; both disjoint and ordered."""
    if not len(a[0]):
        return a
    low, high = int(a[0][0]), int(a[1][-1])
    inside = (b[1] > low) & (b[0] < high)
    begin = np.append(low, np.maximum(b[1][inside], low))
    end = np.append(np.minimum(b[0][inside], high), high)
    return intersect(a, (begin[end > begin], end[end > begin]))


def shared(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> int:
    """Nanoseconds that two lists of disjoint, ordered intervals share, fast for a short ``b``."""
    if not len(a[0]):
        return 0
    total = np.append(0, np.cumsum(a[1] - a[0]))

    def before(moments: Ints) -> int:
        place = np.searchsorted(a[0], moments, side="right")
        beyond = np.maximum(a[1][np.maximum(place - 1, 0)] - moments, 0)
        return int((total[place] - np.where(place > 0, beyond, 0)).sum())

    return before(b[1]) - before(b[0])


def covered(cover: tuple[Ints, Ints], begin: Ints, end: Ints) -> Ints:
    """Nanoseconds of each [begin, end) that disjoint, ordered intervals cover."""
    first = np.searchsorted(cover[1], begin, side="right")
    last = np.searchsorted(cover[0], end, side="left")
    row, item = expand(first, last)
    shared = overlap(begin[row], end[row], cover[0][item], cover[1][item])
    return np.bincount(row, weights=shared, minlength=len(begin)).astype(np.int64)


def distinct(rows: Ints) -> Ints:
    """The different numbers among rows of a table, ascending; -1 stands for no row and is left out."""
    chosen = np.zeros(int(rows.max(initial=-1)) + 1, np.bool_)
    chosen[rows[rows >= 0]] = True
    return np.flatnonzero(chosen)


def unique_runs(ids: npt.NDArray[T]) -> tuple[npt.NDArray[T], Ints, Ints]:
    """As np.unique with index and inverse, for columns that mostly stay the same from row to row."""
    heads = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
    unique, first, number = np.unique(ids[heads], return_index=True, return_inverse=True)
    lengths = np.diff(np.append(heads, len(ids)))
    return unique, heads[first], np.repeat(number.reshape(-1).astype(np.int64), lengths)
