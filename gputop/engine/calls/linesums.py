"""Sums of calls, and waits between them, by line of Python: over a recording, or the last ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.engine.accumulator import Part, add_pairs
from gputop.engine.calls.stack_table import Line, in_backward
from gputop.engine.facts import Facts
from gputop.engine.fork_state import packed, signed, unpacked
from gputop.engine.frame import OFF_CPU, UNPLACED, LineRow, SampleRow, StackRow, WaitRow
from probes.schema import ALIASED, NOT_REQUESTED, CallFlag, Records, select

Origin = tuple[int, int, int]  # pid, function (of waits: thread), stack
Sums = dict[Origin, tuple[int, int]]  # -> count, ns
Samples = Counter[tuple[int, int]]  # (thread, stack) -> number of samples
MOST_STACKS = 128  # of a process; the time of the others is summed per function


def sums_of(calls: Records) -> Sums:
    """Return the sums of outermost calls with stacks."""
    wanted = (calls["stack"] != NOT_REQUESTED) & (calls["flags"] & np.uint16(CallFlag.NESTED) == 0)
    if not wanted.any():
        return {}
    calls = select(calls, wanted)
    numbers = calls["pid"].astype(np.uint64) << 12 | calls["op"].astype(np.uint64) << 2
    return _by_origin(calls, "op", numbers, calls["duration"].astype(np.float64))


def waits_of(stays: Records) -> Sums:
    """Return the sums of waits of Python threads between two calls, without the run queue after."""
    wanted = stays["stack"] != NOT_REQUESTED
    if not wanted.any():
        return {}
    slices = select(stays, wanted).view(ALIASED)
    blocked = slices["duration"].astype(np.float64) - slices["runnable"]
    return _by_origin(slices, "tid", slices["tid"].astype(np.uint64) << 2, np.maximum(blocked, 0))


def _by_origin(rows: Records, second: str, numbers: npt.NDArray[Any], ns: npt.NDArray[Any]) -> Sums:
    """Sums by process, a second column and stack; ``numbers`` identify those two, from the third bit on."""
    # one number for three: stacks are hashes of 62 bits, and codes for no stack are less than four
    _, first, which = np.unique(rows["stack"] ^ numbers, return_index=True, return_inverse=True)
    counts = np.bincount(which.reshape(-1)).tolist()
    times = np.bincount(which.reshape(-1), weights=ns).tolist()
    origins = zip(*(rows[name][first].tolist() for name in ("pid", second, "stack")), strict=True)
    return {origin: (count, int(ns)) for origin, count, ns in zip(origins, counts, times, strict=True)}


def line_rows(
    sums: Sums, facts: Facts, waits: Sums | None = None
) -> tuple[dict[int, list[LineRow]], dict[int, int]]:
    """Return (pid -> a row for each line and function, most time first; pid -> calls of unknown lines).

    Args:
        sums: Of calls.
        facts: With the stacks.
        waits: Sums of waits: calls of autograd's threads get the line of the wait in ``backward()``.
    """
    backward = _backward_stacks(waits or {}, facts)
    found: dict[tuple[int, Line, int], tuple[int, int]] = {}
    longest: dict[tuple[int, Line, int], tuple[int, int]] = {}  # the stack with most time, after that time
    unknown: dict[int, int] = {}
    for (pid, op, own), (count, ns) in sums.items():
        stack = backward.get(pid, own) if _of_autograd(own, facts) else own
        line = facts.stacks.line(stack)
        if line is None:
            unknown[pid] = unknown.get(pid, 0) + count
            continue
        before = found.get((pid, line, op), (0, 0))
        found[pid, line, op] = before[0] + count, before[1] + ns
        longest[pid, line, op] = max(longest.get((pid, line, op), (0, 0)), (ns, stack))
    rows: dict[int, list[LineRow]] = {}
    for (pid, line, op), (count, ns) in sorted(found.items(), key=lambda one: (-one[1][1], one[0])):
        frames = facts.stacks.frames(longest[pid, line, op][1])
        rows.setdefault(pid, []).append(LineRow(line, facts.api(op)[0], count, ns, frames))
    return rows, unknown


def _of_autograd(stack: int, facts: Facts) -> bool:
    """True if a stack is of autograd's threads, which have no Python frames."""
    frames = facts.stacks.frames(stack)
    native = all(frame.is_native for frame in frames if frame.file)
    return native and any("torch::autograd::Engine" in frame.function for frame in frames)


def _backward_stacks(waits: Sums, facts: Facts) -> dict[int, int]:
    """pid -> the stack that waits in ``backward()``; none if a process does so at several lines."""
    found: dict[int, dict[Line, int]] = {}
    for pid, _tid, stack in waits:
        line = facts.stacks.line(stack)
        if line is not None and in_backward(facts.stacks.frames(stack)):
            found.setdefault(pid, {})[line] = stack
    return {pid: next(iter(lines.values())) for pid, lines in found.items() if len(lines) == 1}


def wait_rows(
    sums: Sums, feeding: Collection[int], callers: Collection[int], facts: Facts
) -> tuple[dict[int, list[WaitRow]], dict[int, int]]:
    """Return (pid -> a row for each line, most time first; pid -> waits at unknown lines).

    Args:
        sums: Of all threads.
        feeding: Processes that made calls: of these only calling threads count, others wait for work.
        callers: The calling threads.
        facts: With the stacks.
    """
    found: dict[tuple[int, Line], tuple[int, int]] = {}
    unknown: dict[int, int] = {}
    for (pid, tid, stack), (count, ns) in sums.items():
        if pid in feeding and tid not in callers:
            continue
        line = facts.stacks.line(stack)
        if line is None:
            unknown[pid] = unknown.get(pid, 0) + count
            continue
        before = found.get((pid, line), (0, 0))
        found[pid, line] = before[0] + count, before[1] + ns
    rows: dict[int, list[WaitRow]] = {}
    for (pid, line), (count, ns) in sorted(found.items(), key=lambda one: (-one[1][1], one[0])):
        rows.setdefault(pid, []).append(WaitRow(line, count, ns))
    return rows, unknown


def stack_rows(
    calls: Sums, waits: Sums, feeding: Collection[int], callers: Collection[int], facts: Facts
) -> dict[int, tuple[StackRow, ...]]:
    """Return pid -> the calls and waits of each stack, most time first; they add up to all of them."""
    found: dict[int, dict[tuple[str, tuple[Line, ...]], tuple[int, int]]] = {}
    rows = [((pid, facts.api(op)[0], stack), one) for (pid, op, stack), one in calls.items()]
    rows += [
        ((pid, OFF_CPU, stack), one)
        for (pid, tid, stack), one in waits.items()
        if pid not in feeding or tid in callers
    ]
    for (pid, api, stack), (count, ns) in rows:
        of_process = found.setdefault(pid, {})
        key = api, facts.stacks.frames(stack) or (UNPLACED,)
        before = of_process.get(key, (0, 0))
        of_process[key] = before[0] + count, before[1] + ns
    return {pid: _most(stacks) for pid, stacks in found.items()}


def _most(stacks: dict[tuple[str, tuple[Line, ...]], tuple[int, int]]) -> tuple[StackRow, ...]:
    """The stacks with most time, and the sum of the others by function."""
    order = sorted(stacks.items(), key=lambda one: (-one[1][1], one[0]))
    rows = [StackRow(frames, api, count, ns) for (api, frames), (count, ns) in order[:MOST_STACKS]]
    rest: dict[str, tuple[int, int]] = {}
    for (api, _frames), (count, ns) in order[MOST_STACKS:]:
        before = rest.get(api, (0, 0))
        rest[api] = before[0] + count, before[1] + ns
    return (*rows, *(StackRow((), api, count, ns) for api, (count, ns) in sorted(rest.items())))


def sample_rows(
    samples: Samples, pids: Mapping[int, int], facts: Facts
) -> tuple[dict[int, list[SampleRow]], dict[int, int]]:
    """Return (pid -> a row for each line, most samples first; pid -> all samples, with unknown lines)."""
    found: dict[tuple[int, Line], int] = {}
    every: dict[int, int] = {}
    for (tid, stack), count in samples.items():
        if (pid := pids.get(tid)) is None:
            continue
        every[pid] = every.get(pid, 0) + count
        line = facts.stacks.line(stack)
        if line is not None:
            found[pid, line] = found.get((pid, line), 0) + count
    rows: dict[int, list[SampleRow]] = {}
    for (pid, line), count in sorted(found.items(), key=lambda one: (-one[1], one[0])):
        rows.setdefault(pid, []).append(SampleRow(line, count))
    return rows, every


class LineSums(Part):
    """The sums of calls, ``lines``, and of ``waits`` between them."""

    def __init__(self) -> None:
        self.lines: Sums = {}
        self.waits: Sums = {}

    def add_calls(self, calls: Records) -> None:
        add_pairs(self.lines, sums_of(calls))

    def add_offcpu(self, stays: Records) -> None:
        add_pairs(self.waits, waits_of(stays))

    def payload(self) -> dict[str, Any]:
        return {
            name: packed([(pid, second, signed(stack), *one) for (pid, second, stack), one in sums.items()])
            for name, sums in (("lines", self.lines), ("waits", self.waits))
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        for name, sums in (("lines", self.lines), ("waits", self.waits)):
            rows = unpacked(data, name, 5)
            add_pairs(
                sums, {(pid, second, stack % 2**64): (count, ns) for pid, second, stack, count, ns in rows}
            )


def add_samples(samples: Samples, data: Mapping[str, Any]) -> None:
    """Count the samples of running threads between two calls in the data of a ``places`` sample."""
    for tid, stack in zip(data.get("tid", ()), data.get("stack", ()), strict=False):
        if isinstance(tid, int) and isinstance(stack, int):
            samples[tid, stack] += 1
