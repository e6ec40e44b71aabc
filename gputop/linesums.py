"""Adds up calls by the line of Python that makes them: over a recording, or over the last ticks."""

from __future__ import annotations

from collections import deque

import numpy as np

from gputop.facts import Facts
from gputop.frame import LineRow
from gputop.lines import Line
from probes.frames.layout import NOT_ASKED
from probes.schema import CallFlag, Records, select

Origin = tuple[int, int, int]  # pid, function, stack
Sums = dict[Origin, tuple[int, int]]  # -> count, ns


def sums_of(calls: Records) -> Sums:
    """The outermost calls whose line was looked for."""
    asked = (calls["stack"] != NOT_ASKED) & (calls["flags"] & np.uint16(CallFlag.NESTED) == 0)
    if not asked.any():
        return {}
    calls = select(calls, asked)
    # one number for three: stacks are hashes of 62 bits, and what stands for none is less than four
    numbers = calls["stack"] ^ (calls["pid"].astype(np.uint64) << 12 | calls["op"].astype(np.uint64) << 2)
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    counts = np.bincount(which.reshape(-1)).tolist()
    times = np.bincount(which.reshape(-1), weights=calls["duration"].astype(np.float64)).tolist()
    origins = zip(*(calls[name][first].tolist() for name in ("pid", "op", "stack")), strict=True)
    return {origin: (count, int(ns)) for origin, count, ns in zip(origins, counts, times, strict=True)}


def add(sums: Sums, more: Sums) -> None:
    """Adds to sums."""
    for origin, (count, ns) in more.items():
        before = sums.get(origin, (0, 0))
        sums[origin] = before[0] + count, before[1] + ns


def line_rows(sums: Sums, facts: Facts) -> tuple[dict[int, list[LineRow]], dict[int, int]]:
    """(pid -> a row for each line and function, most time first; pid -> calls of unknown lines)."""
    found: dict[tuple[int, Line, int], tuple[int, int]] = {}
    unknown: dict[int, int] = {}
    for (pid, op, stack), (count, ns) in sums.items():
        line = facts.stacks.line(stack)
        if line is None:
            unknown[pid] = unknown.get(pid, 0) + count
            continue
        before = found.get((pid, line, op), (0, 0))
        found[pid, line, op] = before[0] + count, before[1] + ns
    rows: dict[int, list[LineRow]] = {}
    for (pid, line, op), (count, ns) in sorted(found.items(), key=lambda one: (-one[1][1], one[0])):
        rows.setdefault(pid, []).append(LineRow(line, facts.api(op)[0], count, ns))
    return rows, unknown


class LineWindow:
    """The sums of the last ticks."""

    def __init__(self) -> None:
        self._ticks: deque[Sums] = deque()
        self._now: Sums = {}

    def add(self, calls: Records) -> None:
        """Counts CALL records into the tick that is open."""
        add(self._now, sums_of(calls))

    def close_tick(self, keep: int) -> None:
        """Closes the open tick and drops all but the newest ``keep`` ticks."""
        self._ticks.append(self._now)
        self._now = {}
        while len(self._ticks) > keep:
            self._ticks.popleft()

    def sums(self) -> Sums:
        """Over the ticks that are kept."""
        sums: Sums = {}
        for tick in self._ticks:
            add(sums, tick)
        return sums
