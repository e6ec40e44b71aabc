"""Failed calls by error and line, and the launches before a sticky error.

Only outermost calls count: a driver call may fail inside a runtime call that handles it; else the runtime
call fails as well and is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from gputop.documents.fields import FLAT
from gputop.documents.shared_schema import Layer
from gputop.engine.accumulator import Part
from gputop.engine.calls.calltable import TOTALS
from gputop.engine.calls.cuda_errors import CudaErrorCode, cuda_error, failed, sticky_codes
from gputop.engine.calls.launch_counts import folded
from gputop.engine.calls.stack_table import Line
from gputop.engine.facts import Facts
from gputop.engine.fork_state import apart, unpacked
from gputop.format import format_count
from probes import api
from probes.api_semantics import Role, Trait
from probes.arrays import distinct
from probes.schema import RECORD, CallFlag, Records, join, select
from probes.stacks.stack_samples import kernel_number

MOST_ORIGINS = 1024  # different failures; further ones are counted without their line
BEFORE = 64  # calls kept from before a sticky error
LAUNCHES = 8  # reported launches of these, the newest ones
_RECENT = 2048  # calls searched for them, of all processes

Key = tuple[int, int, int, int]  # pid, function, code, stack
Sum = tuple[int, int, int, int]  # count, time of the first and of the last, thread of the first


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch; ``time_ns``: since the start, ``kernel``: handle or host address, ``name``: "" if unknown."""

    time_ns: int
    api: str
    tid: int
    kernel: int
    stream: int
    line: Line | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The calls of one function that failed with one error at one line.

    Attributes:
        first_ns: When the first of them returned, since the start of the recording.
        last_ns: When the last of them returned.
        tid: The thread of the first.
        line: Where they were made; None if unknown or not recorded.
        launches: Possible causes of the process's first sticky error: launches before it, newest first,
            without those that a successful wait has proved to have ended.
    """

    pid: int
    tid: int
    api: str
    layer: Layer
    error: Annotated[CudaErrorCode, FLAT]
    count: int
    first_ns: int
    last_ns: int
    line: Line | None
    launches: tuple[Launch, ...] = ()

    def text(self) -> str:
        """``cudaMalloc: cudaErrorMemoryAllocation (2), out of memory``."""
        meaning = f", {self.error.text}" if self.error.text else ""
        return f"{self.api}: {self.error.name} ({self.error.code}){meaning}"


class FailedCalls(Part):
    """Failed calls by process, function, error and stack."""

    def __init__(self) -> None:
        self._sums: dict[Key, Sum] = {}
        self._before: dict[int, bytes] = {}  # pid -> calls before its first sticky error
        self._recent: tuple[Records, ...] = ()

    def copy(self) -> FailedCalls:
        """Return an independent copy."""
        return apart(self)

    @property
    def any(self) -> bool:
        return bool(self._sums)

    def add_calls(self, calls: Records) -> None:
        """Add CALL records, in the order of their ends."""
        codes = calls["ret"]
        if np.count_nonzero(codes):
            outer = (calls["flags"] & np.uint16(CallFlag.NESTED)) == 0
            rows = np.flatnonzero(failed(codes) & outer)
            for row in rows.tolist():
                self._failed(calls, row)
        self._remember(calls)

    def _failed(self, calls: Records, row: int) -> None:
        one = calls[row]
        pid, code, end = int(one["pid"]), int(one["ret"]), int(one["t_end"])
        key = pid, int(one["op"]), code, int(one["stack"])
        if key not in self._sums and len(self._sums) >= MOST_ORIGINS:
            key = (*key[:3], 0)
        count, first, last, tid = self._sums.get(key, (0, end, end, int(one["tid"])))
        self._sums[key] = count + 1, min(first, end), max(last, end), tid
        if code in sticky_codes() and pid not in self._before:
            self._before[pid] = _newest((*self._recent, calls[:row]), pid).tobytes()

    def _remember(self, calls: Records) -> None:
        calls = calls[-_RECENT:].copy()  # no view of a larger array
        kept, rows = [calls], len(calls)
        for batch in reversed(self._recent):
            if rows >= _RECENT:
                break
            kept.append(batch)
            rows += len(batch)
        self._recent = tuple(reversed(kept))

    def shorten(self) -> None:
        """Keep only each process's newest calls of those that are looked back at: 5 KB a process for 180."""
        self._recent = tuple(calls.copy() for calls in self._newest_of_each())  # no parts of something larger

    def _newest_of_each(self) -> list[Records]:
        pids = {int(pid) for batch in self._recent for pid in distinct(batch["pid"])}
        return [_newest(self._recent, pid) for pid in sorted(pids)[:64]]

    # -- as plain data ------------------------------------------------------------------------

    def payload(self) -> dict[str, Any]:
        recent = self._newest_of_each()
        sums = {
            "sums": [[*key, *one] for key, one in self._sums.items()],
            "before": [[pid, calls] for pid, calls in self._before.items()],
            "recent": join(recent).tobytes() if recent else b"",
        }
        return {"failed": sums}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data are invalid, or lack the failed calls although there were some.
        """
        if "failed" not in data:
            if any(row[3 + TOTALS.index("errors")] for row in unpacked(data, "calls", 3 + len(TOTALS))):
                raise ValueError("these sums lack the failed calls")
            return
        later = data["failed"]
        for pid, raw in later["before"]:
            calls = _records(raw)
            if pid not in self._before:
                self._before[int(pid)] = _newest((*self._recent, calls), int(pid)).tobytes()
        for pid, op, code, stack, count, first, last, tid in later["sums"]:
            key = int(pid), int(op), int(code), int(stack)
            before = self._sums.get(key, (0, int(first), int(last), int(tid)))
            self._sums[key] = (
                before[0] + int(count),
                min(before[1], int(first)),
                max(before[2], int(last)),
                before[3],
            )
        if len(recent := _records(later["recent"])):
            self._remember(recent)

    # -- as rows ------------------------------------------------------------------------------

    def failures(self, facts: Facts, start_ns: int) -> tuple[Failure, ...]:
        """Return all failures, earliest first."""
        found: dict[tuple[int, int, int, Line | None], Sum] = {}
        for (pid, op, code, stack), one in self._sums.items():
            key = pid, op, code, facts.stacks.line(stack)
            found[key] = _sum(found[key], one) if key in found else one
        reported: set[int] = set()
        rows = []
        for (pid, op, code, line), one in sorted(found.items(), key=lambda row: (row[1][1], row[0][:3])):
            count, first, last, tid = one
            name, layer = facts.api(op)
            error = cuda_error(layer, code)
            launches = self._launches(pid, facts, start_ns) if error.sticky and pid not in reported else ()
            reported |= {pid} if error.sticky else set()
            rows.append(
                Failure(
                    pid, tid, name, layer, error, count, first - start_ns, last - start_ns, line, launches
                )
            )
        return tuple(rows)

    def _launches(self, pid: int, facts: Facts, start_ns: int) -> tuple[Launch, ...]:
        """The newest launches that no wait has proved to have ended."""
        found: list[Launch] = []
        done: set[int] = set()
        for call in _records(self._before.get(pid, b""))[::-1]:
            name, _layer = facts.api(int(call["op"]))
            row = api.BY_OP[api.OP_OF[name]] if name in api.OP_OF else None
            if row is None or int(call["ret"]):
                continue
            if row.role is Role.PROVE_DEVICE or len(found) == LAUNCHES:
                break
            stream = int(call["stream"])
            if row.role is Role.PROVE_STREAM:
                done.add(stream)
            elif row.traits & Trait.RUNS and stream not in done:
                line = facts.stacks.line(int(call["stack"]))
                end, tid, handle = int(call["t_end"]) - start_ns, int(call["tid"]), int(call["aux"])
                frames = facts.stacks.frames(kernel_number(pid, handle))
                kernel = frames[0].function if frames else ""
                found.append(Launch(end, name, tid, handle, stream, line, kernel))
        return tuple(found)


def between(failures: Iterable[Failure], start_ns: int, stretch: tuple[int, int]) -> tuple[Failure, ...]:
    """Return the failures within a stretch, CLOCK_MONOTONIC; counts stay those of the recording."""
    low, high = (moment - start_ns for moment in stretch)
    return tuple(one for one in failures if one.last_ns >= low and one.first_ns <= high)


def _sum(one: Sum, other: Sum) -> Sum:
    earlier = one if one[1] <= other[1] else other
    return one[0] + other[0], earlier[1], max(one[2], other[2]), earlier[3]


def _newest(batches: Iterable[Records], pid: int) -> Records:
    """The newest outermost calls of a process."""
    kept = [
        select(batch, (batch["pid"] == np.uint32(pid)) & ((batch["flags"] & np.uint16(CallFlag.NESTED)) == 0))
        for batch in batches
    ]
    return join(kept)[-BEFORE:] if kept else np.zeros(0, RECORD)


def _records(raw: Any) -> Records:
    """Records from bytes.

    Raises:
        ValueError: The bytes are invalid.
    """
    if not isinstance(raw, bytes) or len(raw) % RECORD.itemsize:
        raise ValueError("these are no records")
    return np.frombuffer(raw, RECORD)


# Failed calls as text.


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Return a line for each failure, and below a sticky error the launches before it; not escaped."""
    lines = []
    for failure in failures:
        lines.append(failure_line(failure))
        if failure.error.sticky and failure.launches:
            lines.append("  every later call of the process fails; not known to have ended before it:")
            lines += [f"    {launch_line(launch, failure.first_ns)}" for launch in failure.launches]
    return lines


def failure_line(failure: Failure) -> str:
    """``cudaMalloc: cudaErrorMemoryAllocation (2), out of memory: once, at 1.234 s at a.py:7 in f()``"""
    place = f" at {failure.line.text()}" if failure.line is not None else ""
    times = f"{format_count(failure.count)} times, first" if failure.count > 1 else "once,"
    return f"{failure.text()}: {times} at {failure.first_ns / 1e9:.3f} s{place}"


def launch_line(launch: Launch, error_ns: int) -> str:
    """Return ``cudaLaunchKernel of 0x4f0, 1.200 ms before, stream 0x7, at a.py:7 in f()``."""
    place = f", at {launch.line.text()}" if launch.line is not None else ""
    ago = (error_ns - launch.time_ns) / 1e6
    what = folded(launch.name) if launch.name else f"{launch.kernel:#x}"
    return f"{launch.api} of {what}, {ago:.3f} ms before, stream {launch.stream:#x}{place}"
