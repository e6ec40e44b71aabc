"""Joins of intervals in numpy, for the engine and the explanation."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from gputop.engine.calls.histogram import Ints
from probes.schema import ALIASED, Kind, Records, select


def expand(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return (owner, item): every i with each of ``first[i] … last[i] - 1``; none where last <= first."""
    counts = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    start = np.repeat(first - (np.cumsum(counts) - counts), counts)
    return owner, start + np.arange(len(owner), dtype=np.int64)


# Occupants of CPUs while watched threads waited in their run queues.

SEGMENT = np.dtype([("cpu", "<i8"), ("begin", "<i8"), ("end", "<i8"), ("tid", "<i8"), ("pid", "<i8")])
Segments = npt.NDArray[np.void]


def _segments(rows: int) -> Segments:
    return np.zeros(rows, SEGMENT)


class OccupancyWindow:
    """Matches run queue waits with on-CPU slices of the same CPU.

    A wait is matched in the tick in which it ends. On-CPU slices are kept as long as the window, so the
    oldest part of a longer wait is unattributed.
    """

    def __init__(self) -> None:
        self._on_cpu: deque[list[Segments]] = deque()
        self._moves: deque[list[Segments]] = deque()
        self._waits: list[Segments] = []
        self._fresh_on_cpu: list[Segments] = []
        self._fresh_moves: list[Segments] = []

    def add(self, records: Records) -> None:
        """Consume on-CPU slices, waits and moves of a batch."""
        kinds = records["kind"]
        for kind, into, cpu, length in (
            (Kind.OCCUPANT, self._fresh_on_cpu, "cpu", "duration"),
            (Kind.OFFCPU, self._waits, "queue_cpu", "runnable"),
            (Kind.MIGRATE, self._fresh_moves, "queue_cpu", "duration"),
        ):
            mask = kinds == kind
            if mask.any():
                into.append(segments_of(select(records, mask).view(ALIASED), cpu, length))

    def close_tick(self, keep: int) -> dict[tuple[int, int, int], int]:
        """Match the waits that ended in this tick.

        Returns:
            (waiting tid, occupant tid, occupant pid) -> ns.
        """
        for kept, fresh in ((self._on_cpu, self._fresh_on_cpu), (self._moves, self._fresh_moves)):
            kept.append(fresh)
            while len(kept) > keep:
                kept.popleft()
        ended, self._waits, self._fresh_on_cpu, self._fresh_moves = self._waits, [], [], []
        if not ended:
            return {}
        waited = _join(ended)
        waits = split(waited[waited["end"] > waited["begin"]], _join_all(self._moves))
        on_cpu = _join_all(self._on_cpu)
        return match(waits, on_cpu) if len(waits) and len(on_cpu) else {}


def segments_of(rows: npt.NDArray[np.void], cpu: str, length: str = "duration") -> Segments:
    """Return records as intervals on a CPU, up to their end, by the names of two columns."""
    segments = _segments(len(rows))
    segments["cpu"] = rows[cpu]
    segments["end"] = rows["t_end"]
    segments["begin"] = segments["end"] - rows[length].astype(np.int64)
    segments["tid"] = rows["tid"]
    segments["pid"] = rows["pid"]
    return segments


def _join(parts: list[Segments]) -> Segments:
    return np.concatenate([_segments(0), *parts])


def _join_all(ticks: deque[list[Segments]]) -> Segments:
    return _join([segments for tick in ticks for segments in tick])


def split(waits: Segments, moves: Segments) -> Segments:
    """Return waits, cut at moves of the waiting thread to another CPU's queue."""
    if not len(moves) or not len(waits):
        return waits
    both = np.concatenate([waits, moves])
    is_wait = np.arange(len(both)) < len(waits)
    order = np.lexsort((both["begin"], both["tid"]))
    both, is_wait = both[order], is_wait[order]
    owner = np.maximum(np.maximum.accumulate(np.where(is_wait, np.arange(len(both)), -1)), 0)
    ends = both["end"][owner]
    inside = is_wait | ((both["tid"][owner] == both["tid"]) & is_wait[owner] & (both["begin"] < ends))
    pieces, owner, ends = both[inside], owner[inside], ends[inside]
    pieces["end"] = ends
    moved_on = np.flatnonzero(owner[1:] == owner[:-1])
    pieces["end"][moved_on] = pieces["begin"][moved_on + 1]
    result: Segments = pieces
    return result


def match(waits: Segments, on_cpu: Segments) -> dict[tuple[int, int, int], int]:
    """Return the overlap of waits with the on-CPU slices of their CPU; slices of one CPU do not overlap.

    Returns:
        (waiting tid, occupant tid, occupant pid) -> ns.
    """
    totals: dict[tuple[int, int, int], int] = {}
    # numbers instead of (waiting tid, occupant): much faster to sort than rows
    waiting, waiter = _numbered(waits["tid"])
    pairs = on_cpu["tid"] << 32 | on_cpu["pid"] & 0xFFFFFFFF
    occupying, occupant = _numbered(pairs)
    for cpu in _numbered(waits["cpu"])[0].tolist():
        mine, theirs = np.flatnonzero(waits["cpu"] == cpu), np.flatnonzero(on_cpu["cpu"] == cpu)
        here, there = waits[mine], on_cpu[theirs]
        order = np.argsort(there["begin"], kind="stable")
        there, theirs = there[order], theirs[order]
        first = np.searchsorted(there["end"], here["begin"], side="right")
        last = np.searchsorted(there["begin"], here["end"], side="left")
        wait_rows, running_rows = expand(first, last)
        overlap = np.minimum(here["end"][wait_rows], there["end"][running_rows]) - np.maximum(
            here["begin"][wait_rows], there["begin"][running_rows]
        )
        keys = waiter[mine][wait_rows] * len(occupying) + occupant[theirs][running_rows]
        unique, where = _numbered(keys)
        sums = np.bincount(where, weights=overlap).astype(np.int64)
        for key, ns in zip(unique.tolist(), sums.tolist(), strict=True):
            pair = int(occupying[key % len(occupying)])
            place = (int(waiting[key // len(occupying)]), pair >> 32, pair & 0xFFFFFFFF)
            totals[place] = totals.get(place, 0) + ns
    return totals


def _numbered(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The values in order, and the place of each; ``np.unique`` would import masked arrays for it."""
    ordered = np.sort(values)
    found = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]]
    return found, np.searchsorted(found, values)
