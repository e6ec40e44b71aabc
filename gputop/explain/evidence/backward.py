"""The line of the calls of autograd's threads: that at which Python waits in ``backward()``."""

from __future__ import annotations

import numpy as np

from gputop.engine.facts import Facts
from gputop.engine.lines import Line, in_backward
from gputop.explain.evidence.evidence import Column, Columns, Evidence, Threads
from gputop.explain.evidence.ranges import Ints
from probes.code.source_files import is_library

MOSTLY = 0.8  # of the waits in ``backward()``: at one line
NAMES = "pt_autograd"  # how PyTorch calls the threads of its engine, with a number behind


def with_lines(calls: Columns, slices: Columns, threads: Threads, facts: Facts) -> Columns:
    """The calls; those of autograd's threads that have no line of their own have the stack of who waits.

    A backward function that is written in Python runs in such a thread, too, and keeps its own line.

    Args:
        calls: By (thread, begin).
        slices: By (thread, begin), no two of a thread at once.
        threads: Whose they are.
        facts: The threads' names, and what the stacks are.
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
    if stacks is None:
        return calls
    columns = {name: calls[name] for name in calls.names()}
    return Columns({**columns, "stack": stacks})


def backward_line(evidence: Evidence, pid: int) -> Line | None:
    """The line of a process that waits in ``backward()``; None where none or several do."""
    slices, facts = evidence.slices, evidence.facts
    mine = slices["stack"][slices["pid"] == np.uint32(pid)]
    counts: dict[Line | None, int] = {}
    for stack, count in zip(
        *(column.tolist() for column in np.unique(mine, return_counts=True)), strict=True
    ):
        if in_backward(facts.stacks.frames(stack)):
            line = facts.stacks.line(stack)
            counts[line] = counts.get(line, 0) + count
    most = max(counts, key=lambda line: counts[line], default=None)
    return most if most is not None and counts[most] >= MOSTLY * sum(counts.values()) else None


def _waits(slices: Columns, threads: Ints, facts: Facts) -> Ints:
    """The stays off the CPU of a process's threads within ``backward()``, by their begin."""
    rows = np.concatenate(
        [np.arange(*np.searchsorted(slices["row"], [row, row + 1])) for row in threads.tolist()]
    )
    stacks = slices["stack"][rows]
    chosen = [stack for stack in np.unique(stacks).tolist() if in_backward(facts.stacks.frames(stack))]
    rows = rows[np.isin(stacks, np.array(chosen, np.uint64))]
    return rows[np.argsort(slices["begin"][rows], kind="stable")]


def _without_line(stacks: Column, facts: Facts) -> Column:
    """Which of these stacks name no line of the program."""
    numbers, which = np.unique(stacks, return_inverse=True)
    lines = [facts.stacks.line(stack) for stack in numbers.tolist()]
    return np.array([line is None or is_library(line.file) for line in lines], np.bool_)[which.reshape(-1)]


def _covering(times: Ints, slices: Columns, waits: Ints, otherwise: Column) -> Column:
    """The stack of the wait that is under way at each of these times, or of the last that began before.

    Who waits is woken now and then (a hook in Python wants the lock) and goes on waiting in the same call.
    """
    place = np.searchsorted(slices["begin"][waits], times, side="right") - 1
    item = waits[np.maximum(place, 0)]
    following = waits[np.minimum(place + 1, len(waits) - 1)]
    within = (place >= 0) & (slices["end"][item] > times)
    # between two waits of the same call
    between = (place >= 0) & (place + 1 < len(waits))
    between &= slices["stack"][item] == slices["stack"][following]
    return np.where(within | between, slices["stack"][item], otherwise)
