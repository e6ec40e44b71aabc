"""Memory in the answer as data: holders by line, growth without end, failed allocations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from gputop.documents.fields import HIDDEN, Mark, marked
from gputop.engine.calls.stack_table import Line
from gputop.format import format_bytes, format_ns
from probes.api_semantics import Memory

MemoryKind = Literal["device", "managed", "pool", "physical", "pinned", "registered"]
Blame = Literal["request", "others", "own", "fragmentation", "host", "unknown"]


@dataclass(frozen=True, slots=True)
class HeldLine:
    """The allocations of one kind at one line, bytes; ``line`` None: not known."""

    use: Annotated[Memory, Mark("kind", schema=MemoryKind)]
    line: Line | None
    held: Annotated[int, Mark("held_bytes")]
    pieces: int
    allocated: Annotated[int, Mark("taken_bytes")]
    takes: int


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The memory of a process.

    Attributes:
        ended: True if it has ended; then the figures are those of its end.
        held: On GPUs.
        peak: The most on GPUs at a time.
        pinned: Page-locked on the host.
        strangers: Frees of memory from before it was watched.
        whole: True if it was watched from its beginning; else earlier allocations are missing.
        lines: Those that allocate, largest holders first.
    """

    pid: int
    ended: bool
    held: Annotated[int, Mark("held_bytes")]
    peak: Annotated[int, Mark("peak_bytes")]
    pinned: Annotated[int, Mark("pinned_bytes")]
    strangers: Annotated[int, Mark("unknown_frees")]
    lines: tuple[HeldLine, ...]
    whole: Annotated[bool, Mark("from_start")] = True


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory of a process that grows without end.

    Attributes:
        use: Its kind; None for all of its memory on GPUs, where no single line grows like that.
        line: The line that allocates it, or most of it.
        grown: Bytes in ``over_ns``.
        per_step: Bytes in each step; None without steps.
        full_in_ns: The time until the GPU is full at this rate; None: not known, or host memory.
        by_torch: True if PyTorch's allocator requests it, in segments: the tensors in them are not visible.
        name: Of the process, "" where it is not known.
    """

    pid: int
    use: Annotated[Memory | None, Mark("kind", schema=MemoryKind | None)]
    line: Line | None
    held: Annotated[int, Mark("held_bytes")]
    grown: Annotated[int, Mark("grown_bytes")]
    over_ns: int
    per_step: Annotated[int | None, Mark("bytes_per_step")]
    full_in_ns: int | None
    by_torch: bool = False
    name: Annotated[str, HIDDEN] = ""

    @property
    @marked(Mark("bytes_per_second"))
    def rate(self) -> float:
        """Bytes per second."""
        return self.grown / max(self.over_ns, 1) * 1e9


@dataclass(frozen=True, slots=True)
class HeldAt:
    """The memory of a line when an allocation failed."""

    line: Line | None
    held: Annotated[int, Mark("held_bytes")]
    pieces: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Another process on the GPU, by NVML."""

    pid: int
    name: str
    size: Annotated[int, Mark("bytes")]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation that failed for lack of memory.

    Attributes:
        time_ns: Of the last attempt, since the start of the recording.
        requested: Bytes.
        attempts: Their number, one right after the other; ``gave_back`` bytes were freed between them.
        met: True if one more attempt succeeded.
        free: Free memory of the GPU then; None: not known. ``free_by_process``: queried by the process.
        total: Of the GPU.
        by_torch: True if PyTorch's allocator requested it.
        held: Bytes of it that the process held, in so many ``pieces``; ``lines``: by line.
        others: The others on the GPU, by NVML, the largest first.
        blame: The reason.
        why: The same in a sentence with its figures.
        whole: True if the process was watched from its beginning; else earlier allocations are missing.
        name: Of the process, "" where it is not known.
    """

    time_ns: int
    pid: int
    tid: int
    api: str
    line: Line | None
    requested: Annotated[int, Mark("asked_bytes")]
    attempts: int
    gave_back: Annotated[int, Mark("gave_back_bytes")]
    met: bool
    free: Annotated[int | None, Mark("free_bytes")]
    free_by_process: Annotated[bool, HIDDEN]
    total: Annotated[int | None, Mark("total_bytes")]
    held: Annotated[int, Mark("held_bytes")]
    pieces: int
    lines: tuple[HeldAt, ...]
    others: tuple[Holder, ...]
    blame: Blame
    why: str
    by_torch: bool = False
    whole: Annotated[bool, Mark("from_start")] = True
    name: Annotated[str, HIDDEN] = ""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Memory at the end of the explained time."""

    processes: tuple[HeldBy, ...] = ()
    leaks: tuple[Leak, ...] = ()
    shortages: Annotated[tuple[OutOfMemory, ...], Mark("out_of_memory")] = ()


# Memory as JSON (docs/json.md) and as lines of text.

KINDS = {
    "device": "GPU",
    "managed": "managed",
    "pool": "GPU, pool",
    "physical": "GPU, mapped",
    "pinned": "pinned",
    "registered": "registered",
}
BEFORE = "memory from before it was watched"
_SHOWN = 5  # lines, or other processes, that a text names


def shortage_lines(one: OutOfMemory) -> list[str]:
    """Return a failed allocation with the holders of memory; the first line names it."""
    tries = f", tried {one.attempts} times" if one.attempts > 1 else ""
    met = ", then succeeded" if one.met else ""
    lines = [
        f"out of memory at {one.time_ns / 1e9:.3f} s: {_who(one.name, one.pid)} requested "
        f"{format_bytes(one.requested)} by {one.api}{_at(one.line)}{tries}{met} [{one.blame}]",
        f"  {one.why}",
    ]
    if one.free is not None and one.blame in ("own", "others", "request"):
        by = "by the process's query right after" if one.free_by_process else "by NVML, shortly before"
        lines.append(f"  at most {format_bytes(one.free)} would have fitted ({by})")
    if one.gave_back:
        lines.append(f"  it freed {format_bytes(one.gave_back)} between the attempts")
    if one.held:
        more = "" if one.whole else f", and {BEFORE}"
        lines.append(f"  it held {format_bytes(one.held)} in {one.pieces} allocations{more}:")
        lines += [
            f"    {format_bytes(at.held)} in {at.pieces}{_at(at.line) or ' at unknown lines'}"
            for at in one.lines[:_SHOWN]
        ]
    elif not one.whole:
        lines.append(f"  it held {BEFORE}")
    if one.by_torch and one.held:
        lines.append(
            "  the unused part in PyTorch's allocator is not visible: torch.cuda.memory_summary() shows it"
        )
    named = [f"{_who(by.name, by.pid)} {format_bytes(by.size)}" for by in one.others[:_SHOWN]]
    if named:
        lines.append(f"  others on the GPU: {', '.join(named)}")
    return lines


_BY_TORCH = "; PyTorch's allocator grows there; which tensors keep it alive is not visible from outside"


def leak_line(leak: Leak) -> str:
    """Return the growth, its rate, and the time until the GPU is full."""
    what = KINDS[leak.use] if leak.use else "GPU"
    where = _at(leak.line)
    where = where if leak.use else f", no line alone{', most' + where if where else ''}"
    text = (
        f"{_who(leak.name, leak.pid)} holds more and more {what} memory{where}: {format_bytes(leak.held)}, "
        f"{format_bytes(leak.rate)} a second"
    )
    if leak.per_step:
        text += f", {format_bytes(leak.per_step)} a step"
    if leak.full_in_ns is not None:
        text += f"; the GPU is full in {format_ns(leak.full_in_ns)} at this rate"
    return f"{text}{_BY_TORCH if leak.by_torch else ''}"


def _who(name: str, pid: int) -> str:
    return f"{name} ({pid})" if name else f"process {pid}"


def _at(line: Line | None) -> str:
    return f" at {line.text()}" if line is not None else ""
