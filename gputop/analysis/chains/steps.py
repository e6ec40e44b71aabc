"""Steps of a process: named by ranges (``ProfilerStep#7``), else found in its repeated launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Final

import numpy as np

from gputop.analysis.chains import alike_steps
from gputop.analysis.evidence.api_classes import RANGE, SPAN, Group, Role
from gputop.analysis.evidence.columns import Ints, Mask, Tabular, lean, length
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.repetition import (
    FEWEST,
    HOLDS,
    SAME,
    Cut,
    EnqueuedWork,
    WorkSequence,
    choose,
    heads_of,
    likeness,
    rows_of,
    sequence,
)
from probes.activities import Table

STEP: Final = "ProfilerStep#"
_STEP_NAME: Final = re.compile(
    r"((train|eval|val)(ing)?[ _/-])?(step|iter|iteration|batch)[ _#:/-]*\d*", re.IGNORECASE
)
FEWEST_RANGES: Final = 2
_AROUND: Final = 3  # ranges may lie around all others: a whole run, its phases
MOST: Final = 0.5  # of the time from the first to the last call, in ranges of one name


def named_rounds(
    evidence: Evidence, thread: int, stretch: tuple[int, int], *, called_steps: bool = False
) -> tuple[Ints, Ints] | None:
    """Return (begin, end) of the rounds by ranges of a thread; None if no name has most of the time."""
    for rows in _candidates(evidence, thread, called_steps=called_steps):
        rows = rows[(rows["begin"] >= stretch[0]) & (rows["begin"] < stretch[1])]
        while len(rows) >= FEWEST_RANGES:
            outer = _outermost(rows, evidence.activities.texts)
            if (found := _rounds(evidence, thread, rows[outer], called_steps=called_steps)) is not None:
                return found
            if np.count_nonzero(outer) > _AROUND:
                break
            rows = rows[~outer]  # a range around everything marks no rounds
    return None


def _candidates(evidence: Evidence, thread: int, *, called_steps: bool) -> Iterator[Table]:
    """Ranges of the thread, then those of its whole process."""
    texts, threads = evidence.activities.texts, evidence.threads
    own, shared = evidence.activities.of(RANGE), evidence.activities.of(SPAN)
    named = np.array([_STEP_NAME.fullmatch(text) is not None for text in texts] or [False])
    for rows in (
        own[(own["tid"] == threads.tid[thread]) & np.isin(own["pid"], (threads.pid[thread], -1))],
        shared[(shared["tid"] < 0) & (shared["pid"] == threads.pid[thread])],
    ):
        yield rows[named[rows["name"]]] if called_steps else rows


def _rounds(evidence: Evidence, thread: int, rows: Table, *, called_steps: bool) -> tuple[Ints, Ints] | None:
    """Ranges of one name with most of the thread's time; steps by name need less: start-up may be long."""
    calls = evidence.calls
    low, high = np.searchsorted(calls["row"], [thread, thread + 1])
    if low == high:
        return None
    whole = int(calls["end"][low:high].max() - calls["begin"][low])
    words = [re.sub(r"\d+", "#", text) for text in evidence.activities.texts]
    numbers = {word: place for place, word in enumerate(dict.fromkeys(words))}
    sort = np.array([numbers[word] for word in words], np.int64)[rows["name"]]
    best, most = None, 0.0 if called_steps else MOST * whole
    for one in np.unique(sort).tolist():
        mine = rows[sort == one]
        spent = length(mine["begin"].astype(np.int64), mine["end"].astype(np.int64))
        within = int(mine["end"].max() - mine["begin"].min())
        if len(mine) >= FEWEST_RANGES and spent >= max(most, MOST * within):
            best, most = mine, spent
    if best is None:
        return None
    return best["begin"].astype(np.int64), best["end"].astype(np.int64)


def _outermost(rows: Table, texts: tuple[str, ...]) -> Mask:
    """The profiler's own steps, else the ranges that lie in no other one."""
    steps: Mask = np.array([text.startswith(STEP) for text in texts])[rows["name"]]
    if np.count_nonzero(steps) >= FEWEST_RANGES:
        return steps
    order = np.lexsort((-rows["end"], rows["begin"]))
    reach = np.append(-1, np.maximum.accumulate(rows["end"][order])[:-1])
    outer: Mask = np.zeros(len(rows), np.bool_)
    outer[order] = rows["begin"][order] >= reach
    return outer


# Steps without names: the launches that a process repeats, over all its threads.

LONG = 10  # times the median: a longer step contains something else
_PROCESSES = 4  # searched, those with most work first
_THREADS = 64  # submitters of a process that are searched together; more are searched one by one only
_LOOPS = 4  # one after the other
_LOOP = 0.12  # least share of the operations in a further loop
_CELLS = 4_000_000
_OWN = 3  # wakeups of a thread by submitters, from which on it waits for them


@dataclass(frozen=True)  # without slots: what many causes need is computed once
class Steps(Tabular):
    """The steps of one process."""

    # row of the thread to which they belong: the main thread, if it submits or waits for submitters
    thread: int
    begin: Ints  # of each, in order, ns; includes the host's work for its first operation
    until: Ints  # end of each: where the next one begins, if nothing else is between
    whole: Mask  # True if it contains nothing but a step
    loop: Ints  # number of its loop; loops follow each other
    sequence: WorkSequence  # all operations of the process
    # head, tail: the operations of each step, from ``head`` up to ``tail``
    head: Ints
    tail: Ints
    over: int  # end of all GPU work of the process, ns: at the end of the wait behind it
    together: int = 1  # how many of them the program's own step may be, by their times alone

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.begin)

    @property
    def end(self) -> int:
        """End of the last one."""
        return int(self.until[-1])

    @cached_property
    def median_ns(self) -> int:
        """The median time from one step to the next: the host's, which may run ahead of the GPU."""
        return int(np.median(self._lengths()))

    @cached_property
    def usual_ns(self) -> int:
        """The mean time from one step to the next; far longer ones count as ``LONG`` medians.

        The mean, since a host that runs ahead submits many steps at once and then waits for all. The warm-up
        is left out, as in every benchmark.
        """
        length = self._lengths(self.warm)
        few = np.sort(length)[-max(len(length) // 100, 1)]  # one in a hundred may be as long as it likes
        return int(np.minimum(length, max(LONG * np.median(length), few)).mean())

    @cached_property
    def warm(self) -> int:
        """The first step behind the ``LONG`` ones at the start, which load modules and allocate."""
        length = self.until - self.begin
        usual = length <= LONG * self.median_ns
        return int(np.argmax(usual))

    def _lengths(self, first: int = 0) -> Ints:
        """Lengths from one step on, ns, of whole ones if there are any."""
        length, whole = (self.until - self.begin)[first:], self.whole[first:]
        return length[whole] if whole.any() else length

    def main(self) -> Steps:
        """Return the steps of the loop with most of the time."""
        spent = np.bincount(self.loop, weights=self.until - self.begin)
        return self.take(self.loop == int(np.argmax(spent)))

    def times(self) -> Steps:
        """Return them without their operations, which for ten million need 400 MB."""
        none = np.zeros(0, np.int64)
        empty = WorkSequence(none, none, none, none, none, none > 0, np.zeros(0, np.uint8))
        return replace(self, sequence=empty, head=none, tail=none)


def find_steps(evidence: Evidence, stretch: tuple[int, int], pid: int | None = None) -> Steps | None:
    """Return the steps in a stretch, of one process or the one with most GPU work; None without a loop."""
    for givers in islice(givers_of(evidence, pid, stretch[0]), _PROCESSES):
        steps = _of_ranges(evidence, givers, stretch) or _of_process(evidence, givers, stretch[0])
        if steps is not None:
            inside = (steps.begin >= stretch[0]) & (steps.begin < stretch[1])
            if not inside.any():
                return None
            steps = steps if inside.all() else steps.take(inside)
            return replace(steps, whole=lean(steps.whole), loop=lean(steps.loop))
    return None


def givers_of(evidence: Evidence, pid: int | None = None, since_ns: int = 0) -> Iterator[Ints]:
    """Yield the submitters of each process, or of one, from a time on, busiest first."""
    calls, threads = evidence.calls, evidence.threads
    rows = slice(None) if pid is None else rows_of(evidence, np.flatnonzero(threads.pid == pid))
    roles = evidence.role(calls)[rows]
    enqueues = (roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)
    enqueues &= calls["begin"][rows] >= since_ns
    per_thread = np.bincount(calls["row"][rows][enqueues], minlength=len(threads.tid))
    active = np.flatnonzero(per_thread)
    processes, number = np.unique(threads.pid[active], return_inverse=True)
    per_process = np.bincount(number.reshape(-1), weights=per_thread[active])
    for place in np.argsort(-per_process, kind="stable").tolist():
        mine = active[threads.pid[active] == processes[place]]
        yield mine[np.argsort(-per_thread[mine], kind="stable")]


def _of_ranges(evidence: Evidence, givers: Ints, stretch: tuple[int, int]) -> Steps | None:
    """Steps by named ranges; ``givers`` as below."""
    known = None
    for called_steps, thread in product((True, False), givers[:_THREADS].tolist()):
        rounds = named_rounds(evidence, thread, stretch, called_steps=called_steps)
        if rounds is None:
            continue
        known = known or sequence(evidence, givers[:_THREADS], since_ns=stretch[0])
        begin, end = rounds
        head, tail = np.searchsorted(known.begin, begin), np.searchsorted(known.begin, end)
        some = tail > head
        if np.count_nonzero(some) < FEWEST_RANGES:
            continue
        begin, end, head, tail = begin[some], end[some], head[some], tail[some]
        until = np.append(np.minimum(end[:-1], begin[1:]), end[-1:])
        ones = np.ones(len(begin), np.bool_)
        return Steps(thread, begin, until, ones, ones * 0, known, head, tail, _end(evidence, known, givers))
    return None


def _of_process(evidence: Evidence, givers: Ints, since_ns: int) -> Steps | None:
    """Steps by repetition; ``givers``: the submitters, busiest first."""
    ways = [givers] if len(givers) <= _THREADS else []
    if len(givers) > 1:
        ways.append(givers[:1])
    for threads in ways:
        for waits in (False, True):
            known = sequence(evidence, threads, waits=waits, since_ns=since_ns)
            single = len(known.work) == 1 and known.work[0] != EnqueuedWork.GRAPH
            if single and not waits:
                continue  # one kernel again and again: its waits show more
            steps = _steps_of(evidence, known, givers)
            if steps is not None:
                return steps
    return _steps_of(evidence, sequence(evidence, givers[:1], since_ns=since_ns), givers)


def _steps_of(evidence: Evidence, known: WorkSequence, givers: Ints) -> Steps | None:
    loops = _loops(known, 0, len(known), _LOOPS, launches=known.launches()) if len(known) else []
    if not loops:
        return None
    found = [alike_steps.joined(evidence, known, loop, givers[:_THREADS]) for loop in loops]
    loops = [loop for loop, _together in found]
    head = np.concatenate([loop[0] for loop in loops])
    tail = np.concatenate([loop[1] for loop in loops])
    whole = np.concatenate([loop[2] for loop in loops])
    number = np.repeat(np.arange(len(loops)), [len(loop[0]) for loop in loops])
    over = _end(evidence, known, givers)
    after = np.append(known.since[1:], over)
    begin = known.since[head]
    for first in np.flatnonzero(np.diff(number, prepend=-1)).tolist():
        length = (after[tail - 1] - begin)[number == number[first]]
        if length[0] > 2 * length[1:].max(initial=0):
            begin[first] = known.begin[head[first]]  # the host's work before the loop is no part of it
    thread = _in_the_name_of(evidence, givers)
    together = found[int(np.argmax([loop[1][-1] - loop[0][0] for loop in loops]))][1]
    return Steps(thread, begin, after[tail - 1], whole, number, known, head, tail, over, together)


Loop = tuple[Ints, Ints, Mask]


def _loops(known: WorkSequence, low: int, high: int, most: int, *, launches: bool) -> list[Loop]:
    """(head, tail, whole) of the steps of each loop between two places."""
    part = known.part(low, high)
    enough = most and high - low >= max(FEWEST, _LOOP * len(known))
    cut = choose(part, launches=launches) if enough else None
    if cut is None:
        return []
    loop = _typed(part, cut)
    if loop is None:
        return []
    head, tail, whole = loop
    before = _loops(known, low, low + int(head[0]), most - 1, launches=launches)
    behind = _loops(known, low + int(tail[-1]), high, most - 1, launches=launches)
    return [*before, (head + low, tail + low, whole), *behind]


def _typed(part: WorkSequence, cut: Cut) -> Loop | None:
    """The parts of the sequence that are steps."""
    heads = heads_of(part.symbol, cut.symbol, every=cut.every)
    bounds = np.append(heads, len(part))
    kinds = len(part.work)
    alike, holds = np.zeros(len(heads)), np.zeros(len(heads))
    low = 0
    while low < len(heads):
        high = min(low + max(_CELLS // kinds, 1), len(heads))
        does = np.zeros((high - low, kinds), np.float32)
        inside = slice(bounds[low], bounds[high])
        row = np.repeat(np.arange(high - low), np.diff(bounds[low : high + 1]))
        does[row, part.symbol[inside]] = 1
        alike[low:high], holds[low:high] = likeness(does, cut.usual)
        low = high
    same = alike >= SAME
    # much longer than usual with all of it inside: a step, and something else behind it
    step = same | (holds >= HOLDS)
    if np.count_nonzero(step) < FEWEST:
        return None
    return heads[step], bounds[1:][step], same[step]


def _end(evidence: Evidence, known: WorkSequence, givers: Ints) -> int:
    """End of the last operation, or of the wait behind it."""
    calls, last = evidence.calls, int(known.begin[-1])
    ends = [int(known.end[-1])]
    column = calls["row"]
    for thread in givers[:_THREADS].tolist():
        low, high = np.searchsorted(column, [thread, thread + 1])
        rows = low + np.searchsorted(calls["begin"][low:high], last) + np.arange(64)
        rows = rows[rows < high]
        waits = rows[evidence.group_of(rows) == Group.SYNC]
        if len(waits):
            ends.append(int(calls["end"][waits[0]]))
    return max(ends)


def _in_the_name_of(evidence: Evidence, givers: Ints) -> int:
    """The main thread, if it submits or waits for submitters; else the busiest submitter."""
    threads, slices = evidence.threads, evidence.slices
    pid = threads.pid[givers[0]]
    main = int(threads.row(np.array([pid]))[0])
    if main < 0 or main in givers:
        return main if main >= 0 else int(givers[0])
    low, high = np.searchsorted(slices["row"], [main, main + 1])
    woken = np.isin(slices["waker_tid"][low:high], threads.tid[givers])
    return main if np.count_nonzero(woken) >= _OWN else int(givers[0])
