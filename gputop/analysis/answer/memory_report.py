"""Memory in the answer as data: who holds it by line, what grows without end, why an allocation failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from gputop.documents.memory_schema import MemoryJson
from gputop.engine.calls.stack_table import Line, line_json
from gputop.format import format_bytes, format_ns
from probes.api_semantics import Memory

Blame = Literal["request", "others", "own", "fragmentation", "host", "unknown"]


@dataclass(frozen=True, slots=True)
class HeldLine:
    """What the allocations of one kind at one line hold, bytes; ``line`` None: not known."""

    use: Memory
    line: Line | None
    held: int
    pieces: int
    taken: int
    takes: int


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What a process holds.

    Attributes:
        ended: It has ended; then the figures are those of its end.
        held: Of GPUs' memory.
        peak: The most of it at a time.
        pinned: Page-locked memory of the host.
        strangers: Frees of memory that it had before it was watched.
        whole: It was watched from its beginning; else it holds what it took before as well.
        lines: Those that took memory, who hold most first.
    """

    pid: int
    ended: bool
    held: int
    peak: int
    pinned: int
    strangers: int
    lines: tuple[HeldLine, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory that a process holds more and more of.

    Attributes:
        use: Of which kind; None for all of its memory on GPUs, where no line alone grows like that.
        line: The line that takes it, or most of it.
        grown: By so many bytes in ``over_ns``.
        per_step: In each step; None without steps.
        full_in_ns: When the GPU is full at this rate; None where that is not known, and for host memory.
        by_torch: PyTorch's allocator takes it, in segments: which tensors stay in them is not seen.
    """

    pid: int
    use: Memory | None
    line: Line | None
    held: int
    grown: int
    over_ns: int
    per_step: int | None
    full_in_ns: int | None
    by_torch: bool = False

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.grown / max(self.over_ns, 1) * 1e9


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation that failed for lack of memory.

    Attributes:
        time_ns: Of the last attempt, since the start of the recording.
        asked: Bytes.
        attempts: So many, one right after the other; ``gave_back`` bytes were given back between them.
        met: One more attempt succeeded.
        free: Free memory of the GPU then; None where nobody told. ``asked_free``: the process itself asked.
        total: Of the GPU.
        by_torch: PyTorch's allocator asked.
        held: What the process held of it, in so many ``pieces``; ``lines``: (line, bytes, pieces).
        others: (process, name, bytes) of the others on the GPU, by NVML, the largest first.
        blame: What it was for.
        why: The same in a sentence with its figures.
        whole: The process was watched from its beginning; else it held what it took before as well.
    """

    time_ns: int
    pid: int
    tid: int
    api: str
    line: Line | None
    asked: int
    attempts: int
    gave_back: int
    met: bool
    free: int | None
    asked_free: bool
    total: int | None
    held: int
    pieces: int
    lines: tuple[tuple[Line | None, int, int], ...]
    others: tuple[tuple[int, str, int], ...]
    blame: Blame
    why: str
    by_torch: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """All that is known of memory at the end of what was looked at."""

    processes: tuple[HeldBy, ...] = ()
    leaks: tuple[Leak, ...] = ()
    shortages: tuple[OutOfMemory, ...] = ()

    def of(self, pids: frozenset[int] | None) -> MemoryReport:
        """What is about these processes; None: about all."""
        if pids is None:
            return self
        return MemoryReport(
            tuple(one for one in self.processes if one.pid in pids),
            tuple(one for one in self.leaks if one.pid in pids),
            tuple(one for one in self.shortages if one.pid in pids),
        )


# Memory as JSON (docs/json.md) and as lines of text.

KINDS = {
    "device": "GPU",
    "managed": "managed",
    "pool": "GPU, pool",
    "physical": "GPU, mapped",
    "pinned": "pinned",
    "registered": "registered",
}
BEFORE = "what it took before it was watched"
_SHOWN = 5  # lines, or other processes, that a text names


def memory_json(report: MemoryReport) -> MemoryJson:
    """The key ``memory``."""
    return {
        "processes": [
            {
                "pid": one.pid,
                "ended": one.ended,
                "held_bytes": one.held,
                "peak_bytes": one.peak,
                "pinned_bytes": one.pinned,
                "unknown_frees": one.strangers,
                "from_start": one.whole,
                "lines": [
                    {
                        "kind": line.use,
                        "line": line_json(line.line),
                        "held_bytes": line.held,
                        "pieces": line.pieces,
                        "taken_bytes": line.taken,
                        "takes": line.takes,
                    }
                    for line in one.lines
                ],
            }
            for one in report.processes
        ],
        "leaks": [
            {
                "pid": leak.pid,
                "kind": leak.use,
                "line": line_json(leak.line),
                "held_bytes": leak.held,
                "grown_bytes": leak.grown,
                "over_ns": leak.over_ns,
                "bytes_per_second": leak.rate,
                "bytes_per_step": leak.per_step,
                "full_in_ns": leak.full_in_ns,
                "by_torch": leak.by_torch,
            }
            for leak in report.leaks
        ],
        "out_of_memory": [
            {
                "time_ns": one.time_ns,
                "pid": one.pid,
                "tid": one.tid,
                "api": one.api,
                "line": line_json(one.line),
                "asked_bytes": one.asked,
                "attempts": one.attempts,
                "gave_back_bytes": one.gave_back,
                "met": one.met,
                "free_bytes": one.free,
                "total_bytes": one.total,
                "held_bytes": one.held,
                "pieces": one.pieces,
                "from_start": one.whole,
                "lines": [
                    {"line": line_json(line), "held_bytes": size, "pieces": pieces}
                    for line, size, pieces in one.lines
                ],
                "others": [{"pid": pid, "name": name, "bytes": size} for pid, name, size in one.others],
                "by_torch": one.by_torch,
                "blame": one.blame,
                "why": one.why,
            }
            for one in report.shortages
        ],
    }


def shortage_lines(one: OutOfMemory) -> list[str]:
    """An allocation that failed, with who held what; the first line names it."""
    tries = f", tried {one.attempts} times" if one.attempts > 1 else ""
    met = ", then succeeded" if one.met else ""
    lines = [
        f"out of memory at {one.time_ns / 1e9:.3f} s: process {one.pid} asked for {format_bytes(one.asked)} "
        f"by {one.api}{_at(one.line)}{tries}{met} [{one.blame}]",
        f"  {one.why}",
    ]
    if one.free is not None and one.blame in ("own", "others", "request"):
        by = "as the process asked right after" if one.asked_free else "by NVML, shortly before"
        lines.append(f"  at most {format_bytes(one.free)} would have fitted ({by})")
    if one.gave_back:
        lines.append(f"  it gave {format_bytes(one.gave_back)} back between the attempts")
    if one.held:
        more = "" if one.whole else f", and {BEFORE}"
        lines.append(f"  it held {format_bytes(one.held)} in {one.pieces} allocations{more}:")
        lines += [
            f"    {format_bytes(size)} in {pieces}{_at(line) or ' at lines that are not known'}"
            for line, size, pieces in one.lines[:_SHOWN]
        ]
    elif not one.whole:
        lines.append(f"  it held {BEFORE}")
    if one.by_torch and one.held:
        lines.append(
            "  what PyTorch's allocator holds of it unused is not seen: torch.cuda.memory_summary() tells"
        )
    named = [f"{name or 'process'} ({pid}) {format_bytes(size)}" for pid, name, size in one.others[:_SHOWN]]
    if named:
        lines.append(f"  others on the GPU: {', '.join(named)}")
    return lines


_BY_TORCH = "; PyTorch's allocator grows there; which tensors keep it alive is not visible from outside"


def leak_line(leak: Leak) -> str:
    """What grows without end, how fast, and when the GPU is full."""
    what = KINDS[leak.use] if leak.use else "GPU"
    where = _at(leak.line)
    where = where if leak.use else f", no line alone{', most' + where if where else ''}"
    step = f", {format_bytes(leak.per_step)} a step" if leak.per_step else ""
    full = (
        f"; the GPU is full in {format_ns(leak.full_in_ns)} at this rate"
        if leak.full_in_ns is not None
        else ""
    )
    return (
        f"process {leak.pid} holds more and more {what} memory{where}: {format_bytes(leak.held)}, "
        f"{format_bytes(leak.rate)} a second{step}{full}"
        f"{_BY_TORCH if leak.by_torch else ''}"
    )


def _at(line: Line | None) -> str:
    return f" at {line.text()}" if line is not None else ""


# Sums by key, added up.

Key = TypeVar("Key")
Value = TypeVar("Value", int, float)


def counted(one: Mapping[Key, Value], other: Mapping[Key, Value]) -> dict[Key, Value]:
    """Both together, key by key."""
    sums = dict(one)
    for key, value in other.items():
        sums[key] = sums[key] + value if key in sums else value
    return sums


def added(
    one: Mapping[Key, tuple[int, ...]], other: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    """The same of rows of sums, which are equally long."""
    sums = dict(one)
    for key, row in other.items():
        sums[key] = tuple(map(sum, zip(sums[key], row, strict=True))) if key in sums else row
    return sums
