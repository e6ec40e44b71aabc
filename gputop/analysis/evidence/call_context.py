"""The context of calls: source lines, a profiler's operators and ranges, their thread's states."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.analysis.evidence.api_classes import GRAPH, KERNEL, ON_GPU, OPERATOR, PYTHON, RANGE
from gputop.analysis.evidence.columns import FOREVER, Ints, Mask, intersect, overlap, union
from gputop.analysis.evidence.evidence import Column, Columns, Evidence, Threads
from gputop.engine.calls.source_text import read_source
from gputop.engine.calls.stack_table import Line, in_backward
from gputop.engine.facts import Facts
from gputop.engine.threads.occupancy import expand
from gputop.engine.wallclock import WallClock
from probes.activities import Table
from probes.code.source_files import is_library

MOST_READ: Final = 32  # lines whose files are read for one question
Files = frozenset[str]


def stacks_where(stacks: Column, chosen: Callable[[int], bool]) -> Column:
    """Return the numbers of the chosen stacks among these, each once."""
    numbers = np.unique(stacks) if stacks.any() else stacks[:1]  # ten million of none need no sort
    return np.array([number for number in numbers.tolist() if chosen(number)], stacks.dtype)


def stacks_within(evidence: Evidence, stacks: Column, within: Callable[[Files], bool]) -> Column:
    """Return the numbers of the stacks that go through such files."""
    frames = evidence.facts.stacks.frames
    return stacks_where(stacks, lambda one: one > 0 and within(frozenset(row.file for row in frames(one))))


def sums_by_line(evidence: Evidence, stacks: Column, weights: Column | None = None) -> dict[Line, int]:
    """Return how often each line is innermost in these stacks, or the sum of their weights."""
    found: dict[Line, int] = {}
    if not stacks.any():
        return found
    numbers, which = np.unique(stacks, return_inverse=True)
    sums = np.bincount(which.reshape(-1), weights=weights)
    for number, own in zip(numbers.tolist(), sums.tolist(), strict=True):
        if (line := evidence.facts.stacks.line(number)) is not None:
            found[line] = found.get(line, 0) + int(own)
    return found


def text_of(evidence: Evidence, line: Line) -> str:
    """Return the line's source; "" where this machine lacks the program's file."""
    if not line.file.startswith("/") or line.is_native or line.line < 1:
        return ""
    source = read_source(line, None)
    clock = WallClock.of_header(evidence.header)
    if clock is not None and (
        clock.joined(evidence.facts.clock).is_after(source.changed_ns, evidence.end_ns) is not False
    ):
        return ""  # or it is not known, since the clock was set
    return source.lines[line.line - 1] if line.line <= len(source.lines) else ""


def by_text(evidence: Evidence, stacks: Column, pattern: re.Pattern[str]) -> Mask:
    """Return the stacks whose innermost line is the program's and matches a pattern.

    A recording may name any number of files, and each costs time: those of the most frequent lines are read.
    """
    numbers, which, counts = np.unique(stacks, return_inverse=True, return_counts=True)
    found, known = np.zeros(len(numbers), np.bool_), dict[Line, bool]()
    for place in np.argsort(-counts, kind="stable").tolist():
        line = next(iter(evidence.facts.stacks.frames(int(numbers[place]))), None)
        if line is None or is_library(line.file):
            continue
        if line not in known and len(known) < MOST_READ:
            known[line] = pattern.search(text_of(evidence, line)) is not None
        found[place] = known.get(line, False)
    return found[which.reshape(-1)]


def line_numbers(evidence: Evidence, stacks: Column) -> Ints:
    """Return a number for the line of each stack, the same for the same line; -1: not known."""
    numbers = np.unique(stacks)
    known: dict[Line, int] = {}
    of_stack = np.full(len(numbers), -1, np.int64)
    for place, stack in enumerate(numbers.tolist()):
        line = evidence.facts.stacks.line(stack)
        if line is not None:
            of_stack[place] = known.setdefault(line, len(known))
    return of_stack[np.searchsorted(numbers, stacks)]  # of few different ones faster than an inverse


# The line of the calls of autograd's threads: that at which Python waits in `backward()`.

MOSTLY = 0.8  # of the waits in ``backward()``: at one line
NAMES = "pt_autograd"  # of the threads of PyTorch's engine, with a number behind


def with_lines(calls: Columns, slices: Columns, threads: Threads, facts: Facts) -> Columns:
    """Return the calls; those of autograd's threads without a line have the stack of the waiting thread.

    A backward function in Python runs in such a thread, too, and keeps its own line.

    Args:
        calls: By (thread, begin).
        slices: By (thread, begin), no two of a thread at once.
        threads: Their threads.
        facts: The threads' names, and the stacks.
    """
    named = [row for row, tid in enumerate(threads.tid.tolist()) if facts.thread_name(tid).startswith(NAMES)]
    if not named or not len(calls) or not len(slices):
        return calls
    stacks = None
    for pid in np.unique(threads.pid[named]).tolist():
        mine = [row for row in named if threads.pid[row] == pid]
        waits = _waits(slices, np.flatnonzero(threads.pid == pid), facts)
        if not len(waits):
            continue
        for row in mine:
            rows = np.arange(*np.searchsorted(calls["row"], [row, row + 1]))
            rows = rows[_without_line(calls["stack"][rows], facts)]
            if not len(rows):
                continue
            stacks = calls["stack"].copy() if stacks is None else stacks
            stacks[rows] = _covering(calls["begin"][rows], slices, waits, calls["stack"][rows])
    return calls if stacks is None else calls.with_columns(stack=stacks)


def backward_line(evidence: Evidence, pid: int) -> Line | None:
    """Return the line of a process that waits in ``backward()``; None for none or several."""
    slices = evidence.slices
    mine = slices["stack"][slices["pid"] == np.uint32(pid)]
    mine = mine[_in_backward(mine, evidence.facts)]
    counts = sums_by_line(evidence, mine)
    most = max(counts, key=lambda line: counts[line], default=None)
    return most if most is not None and counts[most] >= MOSTLY * len(mine) else None


def _in_backward(stacks: Column, facts: Facts) -> Mask:
    frames = facts.stacks.frames
    return np.isin(stacks, stacks_where(stacks, lambda one: in_backward(frames(one))))


def _waits(slices: Columns, threads: Ints, facts: Facts) -> Ints:
    """Return the intervals off the CPU of a process's threads within ``backward()``, by their begin."""
    rows = np.concatenate(
        [np.arange(*np.searchsorted(slices["row"], [row, row + 1])) for row in threads.tolist()]
    )
    rows = rows[_in_backward(slices["stack"][rows], facts)]
    return rows[np.argsort(slices["begin"][rows], kind="stable")]


def _without_line(stacks: Column, facts: Facts) -> Mask:
    """Return the stacks without a line of the program."""
    line = facts.stacks.line
    return np.isin(
        stacks, stacks_where(stacks, lambda one: (own := line(one)) is None or is_library(own.file))
    )


def _covering(times: Ints, slices: Columns, waits: Ints, otherwise: Column) -> Column:
    """Return the stack of the wait that is under way at each of these times, or of the last before.

    The waiting thread is woken now and then (a hook in Python wants the lock), and waits on in the same call.
    """
    place = np.searchsorted(slices["begin"][waits], times, side="right") - 1
    item = waits[np.maximum(place, 0)]
    following = waits[np.minimum(place + 1, len(waits) - 1)]
    within = (place >= 0) & (slices["end"][item] > times)
    # between two waits of the same call
    between = (place >= 0) & (place + 1 < len(waits))
    between &= slices["stack"][item] == slices["stack"][following]
    return np.where(within | between, slices["stack"][item], otherwise)


# The state of a thread during its calls: on a CPU, in a run queue, blocked; to the nanosecond.


@dataclass(frozen=True, slots=True)
class CallTime:
    """The parts of each call; they sum up to its duration."""

    on_cpu: Ints
    queued: Ints
    blocked: Ints


def call_time(evidence: Evidence, rows: Ints) -> CallTime:
    """Return the parts of these calls."""
    calls = evidence.calls
    return time_within(evidence, calls["row"][rows], calls["begin"][rows], calls["end"][rows])


def time_within(evidence: Evidence, thread: Ints, begin: Ints, end: Ints) -> CallTime:
    """Return the parts of intervals of threads."""
    slices = evidence.slices
    first = np.searchsorted(evidence.slice_ends, evidence.key(thread, begin), side="right")
    last = np.searchsorted(evidence.slice_begins, evidence.key(thread, end), side="left")
    owner, item = expand(first, last)
    low, high = begin[owner], end[owner]
    asleep = overlap(slices["begin"][item], slices["queued"][item], low, high)
    waiting = overlap(slices["queued"][item], slices["end"][item], low, high)
    blocked = np.bincount(owner, weights=asleep, minlength=len(begin)).astype(np.int64)
    queued = np.bincount(owner, weights=waiting, minlength=len(begin)).astype(np.int64)
    return CallTime(end - begin - queued - blocked, queued, blocked)


# A profiler's operators, ranges and functions around a thread's calls, which lie within each other.

Intervals = tuple[Ints, Ints]
AROUND: Final = ("ProfilerStep#", "PyTorch Profiler", "profiler::_record_function")
_DEEPEST: Final = 16  # names that are kept of those around, the innermost


@dataclass(frozen=True, slots=True)
class Innermost:
    """The innermost names of one thread, as disjoint intervals in order: ``name`` is a place in the texts."""

    begin: Ints
    end: Ints
    name: Ints

    def times(self, begin: Ints, end: Ints) -> dict[int, int]:
        """Return ns by name, of disjoint intervals in order."""
        if not len(self.begin) or not len(begin):
            return {}
        low, high = intersect((self.begin, self.end), (begin, end))
        which = self.name[np.searchsorted(self.end, low, side="right")]
        sums = np.bincount(which, weights=high - low)
        return {int(one): int(sums[one]) for one in np.flatnonzero(sums)}


class Nesting:
    """The rows of all threads; ``around`` are names that mean nothing: everything lies in them."""

    def __init__(self, evidence: Evidence, around: tuple[str, ...]) -> None:
        activities = evidence.activities
        self._evidence = evidence
        self._around = np.array([text.startswith(around) for text in activities.texts] or [False])
        self._named = _by_thread(activities.of(OPERATOR, RANGE))
        self._python = _by_thread(activities.of(PYTHON))

    def named(self, tid: int, begin: Ints, end: Ints) -> Innermost:
        """Return the innermost operators and ranges of a thread within some disjoint intervals in order."""
        rows = self._named.get(tid)
        if rows is None:
            return _NOTHING
        return flat(_near(rows[~self._around[rows["name"]]], begin, end))[0]

    def functions(self, tid: int, begin: Ints, end: Ints, chosen: Ints) -> Innermost:
        """Return the innermost functions of Python, of those whose names are chosen."""
        rows = self._python.get(tid)
        if rows is None:
            return _NOTHING
        return flat(_near(rows[np.isin(rows["name"], chosen)], begin, end))[0]

    def within(self, tid: int, names: Ints) -> Intervals:
        """Return when a thread was in an operator or range of one of these names, however deep."""
        rows = self._named.get(tid)
        if rows is None or not len(names):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows = rows[np.isin(rows["name"], names)]
        return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))


_NOTHING = Innermost(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _by_thread(rows: Table) -> dict[int, Table]:
    """Return the rows of each thread, the outer before the inner ones."""
    rows = rows[np.lexsort((-rows["end"], rows["begin"], rows["tid"]))]
    heads = np.flatnonzero(np.diff(rows["tid"], prepend=-2))
    return {int(part["tid"][0]): part for part in np.split(rows, heads[1:])} if len(rows) else {}


def _near(rows: Table, begin: Ints, end: Ints) -> Table:
    """Return the rows that some interval overlaps."""
    if not len(begin):
        return rows[:0]
    place = np.searchsorted(end, rows["begin"], side="right")
    return rows[(place < len(begin)) & (begin[np.minimum(place, len(begin) - 1)] < rows["end"])]


def flat(rows: Table) -> tuple[Innermost, list[tuple[int, ...]]]:
    """Return (the innermost of nested rows at each moment; its name after those around it)."""
    pieces: list[tuple[int, int, int]] = []
    around: list[tuple[int, ...]] = []
    open_: list[tuple[int, tuple[int, ...]]] = []  # (end, names)
    at = 0

    def add(until: int, names: tuple[int, ...]) -> None:
        nonlocal at
        if until > at:
            pieces.append((at, until, names[-1]))
            around.append(names)
            at = until

    for first, last, name in zip(
        rows["begin"].tolist(), rows["end"].tolist(), rows["name"].tolist(), strict=True
    ):
        while open_ and open_[-1][0] <= first:
            add(*open_.pop())
        if open_:
            add(first, open_[-1][1])
        at = max(at, first)
        names = (*open_[-1][1][-_DEEPEST:], name) if open_ else (name,)
        open_.append((min(last, open_[-1][0]) if open_ else last, names))
    while open_:
        add(*open_.pop())
    table = np.array(pieces, np.int64).reshape(-1, 3)
    return Innermost(table[:, 0], table[:, 1], table[:, 2]), around


# The work that each call enqueued, in a file that holds kernels: its calls have no handles.


def kernel_names_of_calls(evidence: Evidence) -> Ints:
    """Return for each row of ``evidence.calls`` the place of its kernel's name in the texts + 1; 0: none."""
    found = np.zeros(len(evidence.calls), np.int64)
    rows, call = _linked(evidence, KERNEL, GRAPH)
    found[call] = rows["name"] + 1
    return found


def kernel_times(evidence: Evidence) -> Ints:
    """Return for each row of ``evidence.calls`` the time of its kernel, ns; -1: not known."""
    found = np.full(len(evidence.calls), -1, np.int64)
    rows, call = _linked(evidence, KERNEL)
    found[call] = 0
    np.add.at(found, call, rows["end"] - rows["begin"])
    return found


def work_ended(evidence: Evidence, calls: Ints) -> Ints:
    """Return the end of the work of each of these calls by the GPU's own clock; FOREVER: not known."""
    ends = np.full(len(evidence.calls), -1, np.int64)
    rows, call = _linked(evidence, *ON_GPU)
    np.maximum.at(ends, call, rows["end"])
    return np.where(ends[calls] >= 0, ends[calls], FOREVER)


def _linked(evidence: Evidence, *what: str) -> tuple[Table, Ints]:
    """Return (the GPU's work, the row of its call), where the call is in the file."""
    rows, call = enqueued_work(evidence, *what)
    known = call >= 0
    return rows[known], call[known]


def enqueued_work(evidence: Evidence, *what: str) -> tuple[Table, Ints]:
    """Return (the GPU's work, the row of its call; -1: not in the file)."""
    calls = evidence.calls
    rows = evidence.activities.of(*what)
    if not len(rows) or not len(calls):
        return rows, np.full(len(rows), -1, np.int64)
    thread = evidence.threads.row(rows["call_tid"])
    keys = evidence.key(calls["row"], calls["begin"])
    wanted = evidence.key(np.maximum(thread, 0), rows["call_begin"])
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (rows["call_tid"] >= 0) & (thread >= 0) & (keys[place] == wanted)
    return rows, np.where(known, place, -1)
