"""Memory in the answer as data: who holds it by line, what grows without end, why an allocation failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gputop.engine.lines import Line
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
