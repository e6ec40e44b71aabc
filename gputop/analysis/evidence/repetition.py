"""The work that a process enqueues as a sequence of numbers, and the period at which it repeats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.api_classes import D2H, H2D, Group, Role
from gputop.analysis.evidence.call_context import kernel_names_of_calls
from gputop.analysis.evidence.columns import Floats, Ints, Mask, Tabular, lean, numbered
from gputop.analysis.evidence.evidence import Column, Evidence

SMALL_READ = 64 << 10  # bytes; up to here a copy to the host reads a result, at any time
_BINS = 2  # of copies' sizes, in each power of two
_FEW = 0.005  # part of the copies; a size that so few have joins no two groups of sizes
_LAUNCHED = 0.01  # part of the operations
_CODE_BITS, _CLASS_BITS = 20, 8


class EnqueuedWork(IntEnum):
    """The sort of a symbol."""

    KERNEL = 0
    SEND = 1  # a copy to the device
    READ = 2  # a large copy to the host
    COPY = 3  # any other copy
    SET = 4
    GRAPH = 5
    COLLECTIVE = 6
    WAIT = 7  # a wait or a small read


@dataclass(frozen=True, slots=True)
class WorkSequence(Tabular):
    """One row per operation, by begin."""

    rows: Ints  # its row in the calls
    # begin, end: of its call, ns
    begin: Ints
    end: Ints
    symbol: Ints  # its identity, as a number from 0
    since: Ints  # the end of the process's calls before it, waits included, ns
    waited: Mask  # True if the process then waits or reads a result
    work: npt.NDArray[np.uint8]  # ``EnqueuedWork`` of each symbol
    WHOLE: ClassVar = frozenset({"work"})

    def __len__(self) -> int:
        return len(self.rows)

    def launches(self) -> bool:
        """Return True if the process enqueues more than copies."""
        kinds = (EnqueuedWork.KERNEL, EnqueuedWork.GRAPH, EnqueuedWork.COLLECTIVE)
        counts = np.bincount(self.work[self.symbol], minlength=len(EnqueuedWork))
        return bool(counts[list(kinds)].sum() > _LAUNCHED * counts.sum())

    def part(self, low: int, high: int) -> WorkSequence:
        """Return the operations from ``low`` up to ``high``."""
        return self.take(slice(low, high))


def sequence(evidence: Evidence, threads: Ints, *, waits: bool = False, since_ns: int = 0) -> WorkSequence:
    """Return the work that these threads of one process enqueue; with ``waits``, their waits as well.

    A window counts from ``since_ns`` on: of older times not all is kept.
    """
    rows = rows_of(evidence, threads)
    rows = rows[evidence.calls["begin"][rows] >= since_ns]
    work = _work(evidence, rows)
    chosen = np.flatnonzero(work <= EnqueuedWork.WAIT)
    rows, work = rows[chosen], work[chosen]
    calls = evidence.calls
    begin = calls["begin"][rows]
    if len(threads) > 1:
        order = np.argsort(begin, kind="stable")
        rows, work, begin = rows[order], work[order], begin[order]
    waited = np.append(work[1:] == EnqueuedWork.WAIT, False)
    over = np.maximum.accumulate(calls["end"][rows])
    since = np.minimum(np.append(begin[:1], over[:-1]), begin)
    if not waits:
        chosen = np.flatnonzero(work < EnqueuedWork.WAIT)
        rows, work, begin = rows[chosen], work[chosen], begin[chosen]
        since, waited = since[chosen], waited[chosen]
    symbol, kinds = _symbols(evidence, rows, work)
    return WorkSequence(rows, begin, calls["end"][rows], lean(symbol), since, lean(waited), kinds)


def rows_of(evidence: Evidence, threads: Ints) -> Ints:
    """Return the rows of some threads' calls."""
    column = evidence.calls["row"]
    low, high = np.searchsorted(column, threads), np.searchsorted(column, threads, side="right")
    parts = [np.arange(first, last) for first, last in zip(low.tolist(), high.tolist(), strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


_NOTHING = 255
_OF_GROUP = np.full(256, _NOTHING, np.uint8)
_OF_GROUP[Group.LAUNCH] = EnqueuedWork.KERNEL
_OF_GROUP[Group.COPY] = EnqueuedWork.COPY
_OF_GROUP[Group.SET] = EnqueuedWork.SET
_OF_GROUP[Group.GRAPH] = EnqueuedWork.GRAPH
_OF_GROUP[Group.COLLECTIVE] = EnqueuedWork.COLLECTIVE


def _work(evidence: Evidence, rows: Ints) -> npt.NDArray[np.uint8]:
    """Return the ``EnqueuedWork`` of each call, ``_NOTHING`` of those that are neither work nor wait."""
    calls = evidence.calls
    groups, roles = evidence.group(calls).take(rows), evidence.role(calls).take(rows)
    work = _OF_GROUP.take(groups)
    enqueues = (roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)
    work[~enqueues] = _NOTHING
    copies = np.flatnonzero(work == EnqueuedWork.COPY)
    direction = calls["direction"][rows[copies]]
    small = calls["bytes"][rows[copies]] <= SMALL_READ
    read = np.where(small, np.uint8(EnqueuedWork.WAIT), np.uint8(EnqueuedWork.READ))
    sort = np.where(direction == D2H, read, np.uint8(EnqueuedWork.COPY))
    work[copies] = np.where(direction == H2D, np.uint8(EnqueuedWork.SEND), sort)
    work[groups == Group.SYNC] = EnqueuedWork.WAIT
    return work


def _symbols(evidence: Evidence, rows: Ints, work: Column) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return (symbol of each row, ``EnqueuedWork`` of each symbol)."""
    calls = evidence.calls
    handled = (work == EnqueuedWork.KERNEL) | (work == EnqueuedWork.GRAPH)
    handle, _values = numbered(np.where(handled, _handles(evidence)[rows], np.uint64(0)))
    code = np.zeros(len(rows), np.int64)
    for kind in (EnqueuedWork.SEND, EnqueuedWork.READ, EnqueuedWork.COPY):
        mine = np.flatnonzero(work == kind)
        code[mine] = _sizes(calls["bytes"][rows[mine]])
    named = np.flatnonzero((work == EnqueuedWork.SET) | (work == EnqueuedWork.COLLECTIVE))
    code[named] = calls["op"][rows[named]]
    # exact: a handle's number, a code and a class lie side by side
    key = (handle << (_CODE_BITS + _CLASS_BITS)) | (code << _CLASS_BITS) | work
    symbol, values = numbered(key.astype(np.uint64))
    return symbol, (values & np.uint64((1 << _CLASS_BITS) - 1)).astype(np.uint8)


def _handles(evidence: Evidence) -> Column:
    """Return the kernel or graph of each call; in an imported file, whose calls lack handles, by name."""
    kernels, handles = kernel_names_of_calls(evidence).astype(np.uint64), evidence.calls["aux"]
    return np.where(handles == 0, kernels, handles) if kernels.any() else handles


def _sizes(size: Ints) -> Ints:
    """Return groups of sizes: batches of varying length are one, unless a factor of two lies between them."""
    if not len(size):
        return size
    place = np.floor(np.log2(np.maximum(size, 1)) * _BINS).astype(np.int64)
    used = np.flatnonzero(np.bincount(place, minlength=64 * _BINS) > _FEW * len(size))
    first = used[np.append(True, np.diff(used) > _BINS)]
    numbers: Ints = np.searchsorted(first, place, side="right")
    return numbers


# The period of a sequence: the shortest that explains it as well as the best one.

SAME = 0.6  # parts are alike when they share this part of their work (Jaccard index)
HOLDS = 0.8  # a part that holds this much of the usual work is a step with other work behind it
# so much of the operations and of the time must be explained between the first and the last part
FILLS = 0.6
LEAST = 0.2  # so much of all: another loop may come before or behind
CLOSE = 0.03  # candidates this close to the best are as good as it
FEWEST = 4  # repetitions
# work between steps, an evaluation now and then, is at most this part of everything; steps without input and
# wait may be layers of a model, and the work between them the rest of it
BETWEEN, SELDOM = 1 / 3, 0.05
WHOLE = 0.4  # and a step holds at least this part of the kinds of work that recur
DEVIATES = 0.85  # a part with an input that shares less than this with the others is where a step begins
_INPUT = 2  # an input is preferred for where a step begins
_LOOKED_AT = ((4, 12_000), (3, 48_000), (1, 300_000))  # pieces, and operations in each, until steps fit in
_PAUSE = 0.05  # no single pause weighs more than this part of the time
_CANDIDATES, _PER_COUNT, _SPREAD = 20, 3, 1.05
# long parts share much by chance: of few parts more must be explained, by this over their number
_DOUBT = 1.2
_INNER = 1.5  # an inner loop comes so many times as often
_LAUNCHES = (EnqueuedWork.KERNEL, EnqueuedWork.GRAPH, EnqueuedWork.COLLECTIVE)
_TABLE = 8_000_000  # cells
_RARE = 1024  # kinds that are distinguished


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut a sequence."""

    symbol: int  # begins a part
    every: bool  # True if each occurrence begins a part (a graph is a step), not only the first of a run
    usual: Ints  # the symbols that most parts hold
    score: float  # the part of everything that is explained
    length: float  # operations in a part


@dataclass(frozen=True, slots=True)
class _Sample:
    """Pieces of a sequence; ``symbol`` has one number for all rare ones, ``spent`` is in ns."""

    symbol: Ints
    name: Ints  # of each number, the symbol of the sequence; -1 for the rare ones
    work: npt.NDArray[np.uint8]
    spent: Floats
    pause: Floats
    waited: Mask
    piece: Ints
    launches: bool  # the process launches kernels

    def __len__(self) -> int:
        return len(self.symbol)


@dataclass(frozen=True, slots=True)
class _Tried:
    """One candidate, tried on the sample."""

    number: int
    every: bool
    score: float  # of everything
    own: float  # between the first and the last part
    alone: bool  # nothing else lies behind most parts
    parts: int
    length: float
    usual: Ints
    pause: float
    heads: Ints
    alike: Floats  # of each part, how much it shares with what is usual


def choose(sequence: WorkSequence, *, launches: bool) -> Cut | None:
    """Return the cut that fits; None where nothing repeats. With ``launches``, copies alone are no step."""
    size = len(sequence)
    if size < FEWEST:
        return None
    for pieces, each in _LOOKED_AT:
        sample = _sample(sequence, pieces, each, launches=launches)
        best = _best(sample)
        if best is not None and (len(sample) == size or best.length * 2 * FEWEST <= each):
            break
        if len(sample) == size:
            break
    if best is None:
        return None
    usual = sample.name[best.usual]
    return Cut(int(sample.name[best.number]), best.every, usual[usual >= 0], best.score, best.length)


def heads_of(symbol: Ints, wanted: int, *, every: bool) -> Ints:
    """Return the rows at which parts begin."""
    here = symbol == wanted
    if not every:
        here[1:] &= ~here[:-1].copy()
    return np.flatnonzero(here)


def _sample(sequence: WorkSequence, pieces: int, each: int, *, launches: bool) -> _Sample:
    size = len(sequence)
    if size <= pieces * each:
        rows, piece = np.arange(size), np.zeros(size, np.int64)
    else:
        first = np.linspace(0, size - each, pieces).astype(np.int64) if pieces > 1 else [(size - each) // 2]
        rows = np.concatenate([np.arange(low, low + each) for low in first])
        piece = np.repeat(np.arange(pieces), each)
    symbol = sequence.symbol[rows]
    counts = np.bincount(symbol, minlength=len(sequence.work))
    order = np.argsort(counts, kind="stable")[::-1][:_RARE]
    name = order[counts[order] >= FEWEST]
    number = np.full(len(counts), len(name))
    number[name] = np.arange(len(name))
    begin, end = sequence.begin[rows], sequence.end[rows]
    spent = np.diff(begin, append=end[-1]).astype(np.float64)
    spent[np.flatnonzero(np.diff(piece))] = 0
    spent = np.clip(spent, 0, None)
    spent = np.minimum(spent, _PAUSE * spent.sum())
    pause = (begin - sequence.since[rows]).astype(np.float64)
    work = np.append(sequence.work[name], np.uint8(EnqueuedWork.SET))
    return _Sample(
        number[symbol], np.append(name, -1), work, spent, pause, sequence.waited[rows], piece, launches
    )


def _best(sample: _Sample) -> _Tried | None:
    tried = [one for one in (_try(sample, *row) for row in _candidates(sample)) if one is not None]
    tried = [one for one in tried if one.own >= FILLS + _DOUBT / one.parts and one.score >= LEAST]
    if not tried:
        return None
    most = max(one.score for one in tried)
    good = [one for one in tried if one.score >= most - CLOSE]
    good = [one for one in good if not _inside(sample, one, good)]
    shortest = max(good, key=lambda one: one.parts)

    # of all that begin as often, the step begins where nothing else lies between them, where most of them are
    # whole, after the longest pause, and first
    def order(one: _Tried) -> tuple[bool, int, float, float, int]:
        pause = one.pause * (_INPUT if _sends(sample, one) else 1)
        return one.alone, one.parts, pause, one.score, -int(one.heads[0])

    return max((one for one in good if one.parts * _SPREAD >= shortest.parts), key=order)


def _sends(sample: _Sample, one: _Tried) -> bool:
    return bool(sample.work[one.number] == EnqueuedWork.SEND)


def _inside(sample: _Sample, one: _Tried, good: list[_Tried]) -> bool:
    """Return True for a loop inside a step, as over layers: its parts differ only where a step begins.

    These are the parts with an input; in a program without inputs those that wait, where the others do not.
    """
    outer = [other for other in good if other.parts * _INNER < one.parts]
    inputs = [other for other in outer if _sends(sample, other)]
    if inputs:
        marks = max(inputs, key=lambda other: other.parts).heads
    elif outer and not np.isin(sample.work[one.usual], EnqueuedWork.SEND).any():
        marks = np.flatnonzero(sample.waited)
    else:
        return False
    part = np.unique(np.searchsorted(one.heads, marks, side="right") - 1)
    part = part[(part >= 0) & (one.alike[part] > 0)]
    return 0 < len(part) * _INNER < one.parts and float(one.alike[part].mean()) < DEVIATES


def _candidates(sample: _Sample) -> list[tuple[int, bool, Ints]]:
    """Return (number, every, heads) of symbols that recur, a few for each number of times."""
    size = len(sample.name) - 1
    order = np.argsort(sample.symbol, kind="stable")
    bounds = np.searchsorted(sample.symbol[order], np.arange(size + 1))
    rows: list[tuple[int, float, float, int, bool, Ints]] = []
    for number in range(size):
        places = order[bounds[number] : bounds[number + 1]]
        every = bool(sample.work[number] == EnqueuedWork.GRAPH) or len(places) == len(sample)
        heads = places if every else places[np.append(True, np.diff(places) > 1)]
        if len(heads) < FEWEST:
            continue
        length = np.diff(heads)
        usual = np.median(length)
        even = float(length[(length <= 1.5 * usual) & (length * 1.5 >= usual)].sum() / len(sample))
        bonus = _INPUT if sample.work[number] == EnqueuedWork.SEND else 1
        rows.append((len(heads), even, float(np.median(sample.pause[heads])) * bonus, number, every, heads))
    rows.sort(key=lambda row: row[0])
    groups: list[list[tuple[int, float, float, int, bool, Ints]]] = []
    for row in rows:
        if groups and row[0] <= groups[-1][0][0] * _SPREAD:
            groups[-1].append(row)
        else:
            groups.append([row])
    groups.sort(key=lambda group: -max(row[1] for row in group))
    found: list[tuple[int, bool, Ints]] = []
    for group in groups:
        by_pause = max(group, key=lambda row: (row[2], -int(row[5][0])))
        others = sorted((row for row in group if row is not by_pause), key=lambda row: -row[1])
        found += [(row[3], row[4], row[5]) for row in [by_pause, *others[: _PER_COUNT - 1]]]
        if len(found) >= _CANDIDATES:
            break
    return found


def _try(sample: _Sample, number: int, every: bool, heads: Ints) -> _Tried | None:
    kinds = len(sample.name)
    size = np.diff(heads, append=len(sample))
    whole = np.append(sample.piece[heads[1:]] == sample.piece[heads[:-1]], False)
    if np.count_nonzero(whole) < FEWEST - 1 or len(heads) * kinds > _TABLE:
        return None
    part = np.repeat(np.arange(len(heads)), size)
    inside = slice(int(heads[0]), None)
    spent = np.bincount(part, weights=sample.spent[inside], minlength=len(heads))
    does = np.zeros((len(heads), kinds), np.float32)
    does[part, sample.symbol[inside]] = 1
    rare = np.bincount(part[sample.symbol[inside] == kinds - 1], minlength=len(heads))
    does = does[:, :-1]
    weight = (size / size.sum() + spent / max(spent.sum(), 1)) * whole
    usual = np.flatnonzero(weight @ does > 0.5 * weight.sum())
    if not len(usual) or not _enqueues(sample, usual):
        return None
    alike, holds = likeness(does, usual, rare)
    step = (alike >= SAME) | (holds >= HOLDS)
    found = step & whole
    if np.count_nonzero(found) < FEWEST - 1:
        return None
    # work behind every step is part of it, work now and then is not
    seldom = bool(np.count_nonzero(found[:-1] & ~step[1:]) <= 0.5 * np.count_nonzero(found))
    main = seldom and len(usual) >= WHOLE * (kinds - 1)
    by_size = _Weighed.of(alike[whole], holds[whole], size[whole].astype(np.float64), float(len(sample)))
    by_time = _Weighed.of(alike[whole], holds[whole], spent[whole], float(sample.spent.sum()))
    waits = np.bincount(part, weights=sample.waited[inside], minlength=len(heads))[found] > 0
    complete = waits.mean() > 0.5 or bool(np.isin(sample.work[usual], EnqueuedWork.SEND).any())
    little = main and by_size.between <= (BETWEEN if complete else SELDOM) * by_size.everything
    (score, own), (_timed, timed) = by_size.explained(little=little), by_time.explained(little=little)
    pause, length = float(np.median(sample.pause[heads[found]])), float(np.median(size[found]))
    steps = int(np.count_nonzero(found)) + bool(alike[-1] >= SAME)
    shares = np.where(whole, alike, 0)
    score, own = min(score, timed), min(own, timed)
    return _Tried(number, every, score, own, seldom, steps, length, usual, pause, heads, shares)


def _enqueues(sample: _Sample, usual: Ints) -> bool:
    """Return False for a loop of copies in a program that launches: it moves parameters before a step."""
    return not sample.launches or bool(np.isin(sample.work[usual], _LAUNCHES).any())


def likeness(does: npt.NDArray[np.float32], usual: Ints, rare: Ints | int = 0) -> tuple[Floats, Floats]:
    """Return for each part the Jaccard index with the usual symbols, and how many of these it holds.

    ``rare`` is the number of symbols in each part that occur nowhere else.
    """
    shared = does[:, usual].sum(axis=1).astype(np.float64)
    every = does.sum(axis=1) + rare + len(usual) - shared
    return shared / np.maximum(every, 1), shared / max(len(usual), 1)


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A weight of everything: operations, or time."""

    alike: float  # in parts that are alike, each by its likeness
    more: float  # in parts with other work behind a step, as much as that step
    between: float  # the rest between the first and the last part
    own: float  # all from the first to the last part
    everything: float  # all, but for an incomplete part at either end

    @classmethod
    def of(cls, alike: Floats, holds: Floats, weight: Floats, total: float) -> _Weighed:
        same = alike >= SAME
        own = float(weight.sum())
        usual = float(np.median(weight[same])) if same.any() else 0.0
        more = float(np.minimum(weight[~same & (holds >= HOLDS)], usual).sum())
        between = float(weight[~same].sum()) - more
        everything = own + max(total - own - 2 * usual, 0.0)
        return cls(float((weight * alike)[same].sum()), more, between, own, everything)

    def explained(self, *, little: bool) -> tuple[float, float]:
        """Return the explained share (of everything, of its own); ``little`` ignores work between steps."""
        matched, without = (self.alike + self.more, self.between) if little else (self.alike, 0.0)
        return matched / max(self.everything - without, 1e-9), matched / max(self.own - without, 1e-9)
