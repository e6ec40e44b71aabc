"""Finds the steps of a program by itself: the unit of launches and waits that its main thread repeats.

The calls of a thread are cut into *units* at its waits (or, in a program that never waits, at its rarest
regular call). Each unit is known by the set of things it does: which kernels, which copies and how large,
which waits. Units that do nearly the same are of one *type*. A type that fills most of a stretch of the
program is its step; an evaluation now and then is another type and no step, a varying number of the same
kernels changes no set, and two loops one after the other are two stretches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gputop.explain.apiclass import Group, Role
from gputop.explain.evidence import Column, Evidence
from gputop.explain.ranges import Ints

SAME = 0.6  # units are of one type when they share this part of what they do (Jaccard index)
FILLS = 0.6  # a type is the step of a stretch when its units take this part of its time
FEWEST = 4  # repetitions
_TYPES = 64  # a program with more types of units than this has no steps
_BITS = np.uint64(64)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one thread: ``begin`` of each, in order, and the end of the last; ns."""

    thread: int
    begin: Ints
    end: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.begin)

    @property
    def median_ns(self) -> int:
        """The usual time from one step to the next."""
        return int(np.median(np.diff(np.append(self.begin, self.end))))


def find_steps(evidence: Evidence, stretch: tuple[int, int], pid: int | None = None) -> Steps | None:
    """The steps that begin in a stretch of time, of the thread that gives the GPU the most work.

    Of one process, if it is named. None when it repeats nothing.
    """
    calls = evidence.calls
    roles = evidence.role(calls)
    gives = roles == Role.ENQUEUE
    gives |= roles == Role.COPY_SYNC
    if pid is not None:
        gives &= calls["pid"] == pid
    if not gives.any():
        return None
    per_thread = np.bincount(calls["row"][gives])
    for thread in np.argsort(per_thread)[::-1][:4].tolist():
        if per_thread[thread] >= FEWEST:
            steps = _of_thread(evidence, thread)
            if steps is not None:
                return _within(steps, stretch)
    return None


def _within(steps: Steps, stretch: tuple[int, int]) -> Steps | None:
    begin = steps.begin[(steps.begin >= stretch[0]) & (steps.begin < stretch[1])]
    return Steps(steps.thread, begin, min(steps.end, stretch[1])) if len(begin) else None


def _of_thread(evidence: Evidence, thread: int) -> Steps | None:
    calls = evidence.calls
    rows = np.arange(*np.searchsorted(calls["row"], [thread, thread + 1]))
    groups = evidence.group(calls).take(rows)
    matters = np.isin(
        groups,
        [Group.LAUNCH, Group.COPY, Group.SET, Group.SYNC, Group.GRAPH, Group.COLLECTIVE],
    )
    rows, groups = rows[matters], groups[matters]
    if len(rows) < FEWEST:
        return None
    what = _symbols(evidence, rows, groups)
    waits = groups == Group.SYNC
    waits |= (groups == Group.COPY) & (evidence.role(calls).take(rows) == Role.COPY_SYNC)
    waits &= _after_work(waits, groups)
    cut = waits if np.count_nonzero(waits) > FEWEST else _regular(what)
    units = _Units.of(evidence, rows, what, cut)
    chosen = _chosen(units) if len(units) >= FEWEST else None
    if chosen is None or np.count_nonzero(chosen) < FEWEST:
        return None
    begins = units.begin[chosen]
    first = int(np.flatnonzero(chosen)[0])
    more = _ahead(what, units.head, first)
    if len(more):
        begins = np.concatenate([begins[:1], calls["begin"][rows[more]], begins[1:]])
    return Steps(thread, begins, int(units.end[chosen][-1]))


def _after_work(waits: Column, groups: Column) -> Column:
    """Waits before which something was launched: a loop of copies is no step, however often it waits."""
    launched = np.cumsum(np.isin(groups, [Group.LAUNCH, Group.GRAPH, Group.COLLECTIVE]))
    if not launched[-1]:
        return waits
    ends = np.zeros(len(waits), np.bool_)
    ends[waits] = np.diff(launched[waits], prepend=0) > 0
    return ends


def _ahead(what: npt.NDArray[np.uint64], head: Ints, first: int) -> Ints:
    """A program that runs ahead does several steps before its first wait: where the further ones begin.

    Judged by what each of the next units does exactly once.
    """
    if first + 4 >= len(head):
        return np.zeros(0, np.int64)
    parts = [what[head[first + row] : head[first + row + 1]] for row in range(4)]
    once = [set(np.unique(part)[np.unique(part, return_counts=True)[1] == 1].tolist()) for part in parts[1:]]
    places = [np.flatnonzero(parts[0] == symbol) for symbol in once[0] & once[1] & once[2]]
    times = [len(place) for place in places if len(place)]
    if not times or max(times) < 2 or times.count(max(times)) < len(times) / 2:
        return np.zeros(0, np.int64)
    leader = min((place for place in places if len(place) == max(times)), key=lambda place: int(place[0]))
    begins: Ints = head[first] + leader[1:]
    return begins


def _symbols(evidence: Evidence, rows: Ints, groups: Column) -> npt.NDArray[np.uint64]:
    """What each call does, as a number: the function and its kernel, or the size class of its copy."""
    calls = evidence.calls
    aux = np.where(groups == Group.LAUNCH, calls["aux"][rows], np.uint64(0))
    size = np.where(
        groups == Group.COPY, np.log2(np.maximum(calls["bytes"][rows], 1)).astype(np.uint64), np.uint64(0)
    )
    what = calls["op"][rows].astype(np.uint64) | (calls["direction"][rows].astype(np.uint64) << np.uint64(16))
    symbols: npt.NDArray[np.uint64] = (what | (size << np.uint64(20))) ^ (aux * np.uint64(0x9E3779B97F4A7C15))
    return symbols


def _regular(what: npt.NDArray[np.uint64]) -> Column:
    """In a program without waits: the most frequent of the calls that come at even distances."""
    unique, number, counts = np.unique(what, return_inverse=True, return_counts=True)
    best, most = -1, 0
    for symbol in np.flatnonzero(counts >= FEWEST)[:_TYPES].tolist():
        distance = np.diff(np.flatnonzero(number.reshape(-1) == symbol))
        even = np.abs(distance - np.median(distance)) <= 0.2 * np.median(distance)
        alone = np.median(distance) > 1 or len(unique) == 1
        if alone and np.mean(even) > 0.8 and counts[symbol] > most:
            best, most = symbol, int(counts[symbol])
    chosen: Column = number.reshape(-1) == best
    return chosen


def _bits(what: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bit for each thing that is done: the 64 most frequent have one of their own."""
    _unique, number, counts = np.unique(what, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.uint64)
    rank[np.argsort(counts)[::-1]] = np.arange(len(counts), dtype=np.uint64) % _BITS
    return rank[number.reshape(-1)]


@dataclass(frozen=True, slots=True)
class _Units:
    """Stretches that end with a wait: times, and what was done in each as a set of 64 bits."""

    head: Ints  # place of the first call
    begin: Ints
    end: Ints
    does: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def of(cls, evidence: Evidence, rows: Ints, what: npt.NDArray[np.uint64], cut: Column) -> _Units:
        calls = evidence.calls
        # waits that follow each other without work in between end one unit
        last = cut & ~np.append(cut[1:], False)
        heads = np.flatnonzero(np.append(True, last[:-1]))
        tails = np.append(heads[1:], len(rows)) - 1
        whole = last[tails]
        bit = np.uint64(1) << _bits(what)
        does = np.bitwise_or.reduceat(bit, heads)
        ends = calls["end"][rows[tails]]
        # a step lasts from the wait before it: the host's work belongs to it
        begins = np.append(calls["begin"][rows[0]], ends[:-1])
        return cls(heads[whole], begins[whole], ends[whole], does[whole])


def _chosen(units: _Units) -> Column | None:
    """Which units are steps."""
    types = _types(units.does)
    if types is None:
        return None
    chosen = np.zeros(len(units), np.bool_)
    for low, high in _stretches(types):
        here = types[low:high]
        spent = np.bincount(here, weights=(units.end - units.begin)[low:high])
        main = int(np.argmax(spent))
        count = int(np.count_nonzero(here == main))
        if count >= FEWEST and spent[main] >= FILLS * spent.sum():
            chosen[low:high] = here == main
        else:
            _mark_anchor(chosen[low:high], here, units.end[low:high] - units.begin[low:high])
    return chosen


def _types(does: npt.NDArray[np.uint64]) -> Ints | None:
    """The type of each unit; None when there are too many."""
    sets, number, counts = np.unique(does, return_inverse=True, return_counts=True)
    order = np.argsort(counts)[::-1]
    leaders: list[int] = []
    of_set = np.zeros(len(sets), np.int64)
    for row in order.tolist():
        for place, leader in enumerate(leaders):
            shared = int(sets[row] & sets[leader]).bit_count()
            if shared >= SAME * int(sets[row] | sets[leader]).bit_count():
                of_set[row] = place
                break
        else:
            if len(leaders) == _TYPES:
                return None
            of_set[row] = len(leaders)
            leaders.append(row)
    return of_set[number.reshape(-1)]


def _stretches(types: Ints) -> list[tuple[int, int]]:
    """Cuts between loops: where all frequent types so far have ended and others begin."""
    size = len(types)
    last, first = {}, {}
    for kind in np.unique(types).tolist():
        places = np.flatnonzero(types == kind)
        if len(places) >= FEWEST:
            first[kind], last[kind] = int(places[0]), int(places[-1])
    cuts, reach = [0], -1
    for kind in sorted(first, key=lambda kind: first[kind]):
        if reach >= 0 and first[kind] > reach:
            cuts.append(first[kind])
        reach = max(reach, last[kind])
    return list(zip(cuts, [*cuts[1:], size], strict=True))


def _mark_anchor(chosen: Column, types: Ints, length: Ints) -> None:
    """Steps of several waits: each begins with the same type, at the most even distances."""
    best, score = -1, FILLS
    for kind in np.unique(types).tolist():
        places = np.flatnonzero(types == kind)
        if len(places) < FEWEST:
            continue
        heads = places[np.append(True, np.diff(places) > 1)]
        if len(heads) < FEWEST:
            continue
        sets = [frozenset(types[low:high].tolist()) for low, high in pairwise(heads.tolist())]
        usual = max(set(sets), key=sets.count)
        spent = np.add.reduceat(length, heads)[:-1]
        alike = np.array([one == usual for one in sets])
        share = float(spent[alike].sum() / max(int(length.sum()), 1))
        if share > score:
            best, score = kind, share
    if best >= 0:
        places = np.flatnonzero(types == best)
        chosen[places[np.append(True, np.diff(places) > 1)]] = True
