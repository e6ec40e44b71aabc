"""What a profiler says a thread was in: operators, ranges and functions, which lie within each other.

Only what overlaps the moments that are asked for is unfolded, so that a million operators of a busy GPU cost
little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.evidence.activity import OPERATOR, PYTHON, RANGE
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, intersect, union
from probes.activities import Table

Intervals = tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class Innermost:
    """Of one thread what was innermost, as disjoint intervals in order: ``name`` is a place in the texts."""

    begin: Ints
    end: Ints
    name: Ints

    def times(self, begin: Ints, end: Ints) -> dict[int, int]:
        """ns by name, of disjoint intervals in order."""
        if not len(self.begin) or not len(begin):
            return {}
        low, high = intersect((self.begin, self.end), (begin, end))
        which = self.name[np.searchsorted(self.end, low, side="right")]
        sums = np.bincount(which, weights=high - low)
        return {int(one): int(sums[one]) for one in np.flatnonzero(sums)}


class Nesting:
    """The rows of all threads; ``around`` are names that tell nothing, since they are around everything."""

    def __init__(self, evidence: Evidence, around: tuple[str, ...]) -> None:
        activities = evidence.activities
        self._evidence = evidence
        self._around = np.array([text.startswith(around) for text in activities.texts] or [False])
        self._named = _by_thread(activities.of(OPERATOR, RANGE))
        self._python = _by_thread(activities.of(PYTHON))

    def named(self, tid: int, begin: Ints, end: Ints) -> Innermost:
        """The innermost operators and ranges of a thread within some disjoint intervals in order."""
        rows = self._named.get(tid)
        if rows is None:
            return _NOTHING
        return _flat(_near(rows[~self._around[rows["name"]]], begin, end))

    def functions(self, tid: int, begin: Ints, end: Ints, chosen: Ints) -> Innermost:
        """The innermost functions of Python, of those whose names are chosen."""
        rows = self._python.get(tid)
        if rows is None:
            return _NOTHING
        return _flat(_near(rows[np.isin(rows["name"], chosen)], begin, end))

    def within(self, tid: int, names: Ints) -> Intervals:
        """When a thread was in an operator or range of one of these names, however deep."""
        rows = self._named.get(tid)
        if rows is None or not len(names):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows = rows[np.isin(rows["name"], names)]
        return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))


_NOTHING = Innermost(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _by_thread(rows: Table) -> dict[int, Table]:
    """Of each thread its rows, the outer before the inner ones."""
    rows = rows[np.lexsort((-rows["end"], rows["begin"], rows["tid"]))]
    heads = np.flatnonzero(np.diff(rows["tid"], prepend=-2))
    return {int(part["tid"][0]): part for part in np.split(rows, heads[1:])} if len(rows) else {}


def _near(rows: Table, begin: Ints, end: Ints) -> Table:
    """Those that some interval overlaps."""
    if not len(begin):
        return rows[:0]
    place = np.searchsorted(end, rows["begin"], side="right")
    near: Table = rows[(place < len(begin)) & (begin[np.minimum(place, len(begin) - 1)] < rows["end"])]
    return near


def _flat(rows: Table) -> Innermost:
    """What is innermost at each moment."""
    pieces: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = []  # (end, name)
    at = 0
    for first, last, name in zip(
        rows["begin"].tolist(), rows["end"].tolist(), rows["name"].tolist(), strict=True
    ):
        while open_ and open_[-1][0] <= first:
            until, what = open_.pop()
            if until > at:
                pieces.append((at, until, what))
                at = until
        if open_ and first > at:
            pieces.append((at, first, open_[-1][1]))
        at = max(at, first)
        open_.append((min(last, open_[-1][0]) if open_ else last, name))
    while open_:
        until, what = open_.pop()
        if until > at:
            pieces.append((at, until, what))
            at = until
    table = np.array(pieces, np.int64).reshape(-1, 3)
    return Innermost(table[:, 0], table[:, 1], table[:, 2])
