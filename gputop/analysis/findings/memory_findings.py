"""Memory that grows without end: held bytes that rise in every part of the explained time.

A model, its optimizer and an allocator's caches rise in the first parts only. A line leaks where in each of
six parts, one after another, the least that it holds is more than in the part before, and where it does not
rise more and more slowly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.memory_report import (
    Blame,
    HeldAt,
    HeldBy,
    HeldLine,
    Holder,
    Leak,
    MemoryReport,
    OutOfMemory,
)
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.call_context import NAMES as AUTOGRAD
from gputop.analysis.evidence.call_context import backward_line
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.memory_ledger import OF_GPU, OF_HOST, History, Origin, Shortage, Sum, gpu_of
from gputop.engine.calls.stack_table import Line
from gputop.engine.facts import began_ns
from gputop.format import format_bytes
from probes.api_semantics import Memory
from probes.code.source_files import is_library

PARTS = 6
POINTS = 3  # of the history in each part
LEAST_BYTES = 1 << 20
LEAST_NS = 4_000_000_000  # a shorter history means nothing
STEADY = 0.4  # of the growth of the first half: the second grows by at least so much

Ints = npt.NDArray[np.int64]


class MemoryGrowth(NamedTuple):
    """Growth by so many bytes, over so many ns, up to ``held``."""

    grown: int
    over_ns: int
    held: int


def growth_of(history: History, origins: Iterable[Origin]) -> MemoryGrowth | None:
    """Return how some origins together grow without end; None where they do not, or it is not known yet."""
    wanted = tuple(origins)
    times = np.array([time for time, _ in history], np.int64)
    held = np.array([sum(at.get(origin, 0) for origin in wanted) for _, at in history], np.int64)
    for share in (1, 2, 4):  # all of it, or only the newest half or quarter
        count = len(times) // share
        if count >= PARTS * POINTS and times[-1] - times[-count] >= LEAST_NS:
            found = _growing(times[-count:], held[-count:])
            if found is not None:
                return found
    return None


def _growing(times: Ints, held: Ints) -> MemoryGrowth | None:
    edges = np.linspace(times[0], times[-1], PARTS + 1)
    part = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, PARTS - 1)
    if len(np.unique(part)) < PARTS:
        return None
    least = np.array([held[part == number].min() for number in range(PARTS)])
    steps = np.diff(least)
    grown = int(least[-1] - least[0])
    if (steps <= 0).any() or grown < LEAST_BYTES:
        return None
    half = PARTS // 2
    early, late = int(least[half - 1] - least[0]), int(least[-1] - least[half])
    if late < STEADY * early:
        return None
    first, last = (int(times[part == number][0]) for number in (0, PARTS - 1))
    return MemoryGrowth(grown, last - first, int(held[-1]))


# Holders of memory, growth without end, and the reason of failed allocations, by the calls of each process.

MOST_LINES = 200  # of a process
_TORCH = re.compile(r"/torch/|libc10_cuda|libtorch")
Lines = dict[tuple[Memory, Line | None], Sum]


def memory_of(scene: AttributionContext, start_ns: int, pids: frozenset[int] | None) -> MemoryReport | None:
    """Return the memory at the end; None for a recording without addresses."""
    evidence = scene.evidence
    if not evidence.header.get("addresses"):
        return None
    held, places = evidence.held, _Places(evidence)
    of_process: dict[int, list[Origin]] = {}
    for origin in held.sums:
        of_process.setdefault(origin[0], []).append(origin)
    wanted = [pid for pid in sorted(of_process) if pids is None or pid in pids]
    return MemoryReport(
        tuple(_held_by(evidence, places, pid) for pid in wanted),
        tuple(leak for pid in wanted for leak in _leaks(scene, places, pid, of_process[pid])),
        tuple(
            _explained(evidence, places, one, start_ns)
            for one in held.shortages
            if pids is None or one.pid in pids
        ),
    )


class _Places:
    """The lines of origins; those of autograd's threads belong to the line that waits in ``backward()``."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._backward: dict[int, Line | None] = {}

    def line(self, origin: Origin) -> Line | None:
        """Return the line of an origin; None: not known."""
        pid, _use, stack = origin
        facts = self._evidence.facts
        found = facts.stacks.line(stack)
        taker = self._evidence.held.taker(origin)
        own = found is not None and not is_library(found.file)
        if own or not facts.thread_name(taker).startswith(AUTOGRAD):
            return found
        if pid not in self._backward:
            self._backward[pid] = backward_line(self._evidence, pid)
        return self._backward[pid] or found

    def sums(self, origins: Mapping[Origin, Sum]) -> Lines:
        """Return the sums by kind and line."""
        found: Lines = {}
        for origin, one in origins.items():
            key = origin[1], self.line(origin)
            found[key] = Sum(*map(sum, zip(found.get(key, Sum()), one, strict=True)))
        return found


def _held_by(evidence: Evidence, places: _Places, pid: int) -> HeldBy:
    held, lines = evidence.held, places.sums(evidence.held.last(pid))
    order = sorted(lines.items(), key=lambda row: (-row[1].held, -row[1].allocated))
    return HeldBy(
        pid,
        pid in evidence.ended,
        sum(one.held for (use, _), one in lines.items() if use in OF_GPU),
        held.peaks.get(pid, 0),
        sum(one.held for (use, _), one in lines.items() if use in OF_HOST),
        held.strangers.get(pid, 0),
        tuple(HeldLine(use, line, *one) for (use, line), one in order[:MOST_LINES]),
        _whole(evidence, pid),
    )


def _whole(evidence: Evidence, pid: int) -> bool:
    """Return True if a process was watched from its beginning."""
    began = began_ns(evidence.facts.processes.get(pid, {}), evidence.header)
    since = int(evidence.header.get("start_ns", 0))
    return evidence.held.begun(pid) or (began is not None and began >= since)


# -- what grows -------------------------------------------------------------------------------


def _leaks(scene: AttributionContext, places: _Places, pid: int, origins: list[Origin]) -> list[Leak]:
    """Return lines that grow without end, the fastest first; else the process's memory on GPUs if it does."""
    evidence = scene.evidence
    end = _last_call(evidence, pid)
    history = tuple(point for point in evidence.held.history if point[0] <= end)
    by_line: dict[tuple[Memory, Line | None], list[Origin]] = {}
    for origin in origins:
        by_line.setdefault((origin[1], places.line(origin)), []).append(origin)
    found = []
    for (use, line), own in by_line.items():
        if (growth := growth_of(history, own)) is not None:
            found.append(_leak(scene, own, use, line, growth))
    if not found:
        on_gpu = [origin for origin in origins if origin[1] in OF_GPU]
        if (growth := growth_of(history, on_gpu)) is not None:
            last = evidence.held.last(pid)
            lines = places.sums({origin: last[origin] for origin in on_gpu if origin in last})
            most = max(lines.items(), key=lambda row: row[1].held)
            found.append(_leak(scene, on_gpu, None, most[0][1], growth))
    return sorted(found, key=lambda leak: -leak.rate)


def _last_call(evidence: Evidence, pid: int) -> int:
    """Return when a process that has ended made its last call: nothing was freed after it; else now."""
    if pid not in evidence.ended:
        return evidence.end_ns
    calls = evidence.calls
    mine = calls["end"][calls["pid"] == np.uint32(pid)]
    return int(mine.max()) if len(mine) else evidence.ended[pid]


def _leak(
    scene: AttributionContext,
    own: Sequence[Origin],
    use: Memory | None,
    line: Line | None,
    growth: MemoryGrowth,
) -> Leak:
    steps, threads, pid = scene.steps, scene.evidence.threads, own[0][0]
    by_torch = any(_by_torch(scene.evidence, stack) for _pid, _use, stack in own)
    per_step = None
    if steps is not None and int(threads.pid[steps.thread]) == pid:
        per_step = int(growth.grown * steps.usual_ns / max(growth.over_ns, 1))
    ended = pid in scene.evidence.ended
    free = None if use in OF_HOST or ended else _free_now(scene.evidence, pid)
    full = None if free is None else int(free * growth.over_ns / max(growth.grown, 1))
    name = _name(scene.evidence, pid)
    return Leak(pid, use, line, growth.held, growth.grown, growth.over_ns, per_step, full, by_torch, name)


def _free_now(evidence: Evidence, pid: int) -> int | None:
    """Return the free memory of a process's GPU by NVML's last sample; None: not known."""
    gpu = gpu_of(evidence.gpus[-1] if evidence.gpus else None, pid)
    return gpu.total - gpu.used if gpu is not None else None


# -- what failed ------------------------------------------------------------------------------


def _explained(evidence: Evidence, places: _Places, one: Shortage, start_ns: int) -> OutOfMemory:
    gpu, facts = one.gpu, evidence.facts
    free = one.room if one.room is not None else gpu.total - gpu.used if gpu else None
    others = sorted(
        (row for row in (gpu.holders if gpu else ()) if row[0] != one.pid), key=lambda row: -row[1]
    )
    blame, why = _blame(one, free, sum(size for _, size in others))
    lines: dict[Line | None, tuple[int, int]] = {}
    for origin, size, pieces in one.held:
        line = places.line(origin)
        before = lines.get(line, (0, 0))
        lines[line] = before[0] + size, before[1] + pieces
    return OutOfMemory(
        one.time_ns - start_ns,
        one.pid,
        one.tid,
        evidence.apis.name(one.op),
        facts.stacks.line(one.stack),
        one.requested,
        one.attempts,
        one.gave_back,
        one.met,
        free,
        one.room is not None,
        gpu.total if gpu else None,
        one.total,
        one.pieces,
        tuple(HeldAt(line, *row) for line, row in sorted(lines.items(), key=lambda row: -row[1][0])),
        tuple(Holder(pid, _name(evidence, pid), size) for pid, size in others),
        blame,
        why,
        _by_torch(evidence, one.stack),
        _whole(evidence, one.pid),
        _name(evidence, one.pid),
    )


def _by_torch(evidence: Evidence, stack: int) -> bool:
    return any(_TORCH.search(frame.file) for frame in evidence.facts.stacks.frames(stack))


def _name(evidence: Evidence, pid: int) -> str:
    known = evidence.facts.of(pid)
    return str(known.get("name", "")) if known else ""


def _blame(one: Shortage, free: int | None, others: int) -> tuple[Blame, str]:
    """Return (the reason, the same in a sentence)."""
    size = format_bytes(one.requested)
    if one.use in OF_HOST:
        return "host", f"the host has no {size} of page-locked memory left, or a limit is reached"
    if one.gpu is not None and one.requested > one.gpu.total:
        return "request", f"{size} is more than all of the GPU's memory, {format_bytes(one.gpu.total)}"
    if free is None:
        return (
            "unknown",
            "how much memory was free is not known, neither by NVML nor by a query of the process",
        )
    if one.requested <= free:
        return "fragmentation", (
            f"{format_bytes(free)} was free, more than requested: no block of that size was left "
            "(fragmentation), or the process has a limit of its own"
        )
    short = f"{format_bytes(one.requested - free)} was missing"
    if others >= one.requested - free:
        return "others", f"{short}, and other processes hold {format_bytes(others)}: without them it fits"
    alone = "" if not others else f" (other processes: {format_bytes(others)})"
    return "own", f"{short}, and this process holds {format_bytes(one.total)} by itself{alone}"
