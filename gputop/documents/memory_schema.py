"""The part of gputop.explain/1 that tells of memory: who holds it, what grows, why an allocation failed."""

from __future__ import annotations

from typing import Annotated, TypedDict

from gputop.documents.shared_schema import LineJson, one_of

MemoryKind = Annotated[str, one_of("device", "managed", "pool", "physical", "pinned", "registered")]
BlameKind = Annotated[str, one_of("request", "others", "own", "fragmentation", "host", "unknown")]


class HeldLineJson(TypedDict):
    """What the allocations of one kind at one line hold, and all that they took."""

    kind: MemoryKind
    line: LineJson | None
    held_bytes: int
    pieces: int
    taken_bytes: int
    takes: int


class HeldByJson(TypedDict):
    """What a process holds of GPUs' memory, and page-locked of the host's."""

    pid: int
    ended: bool
    held_bytes: int
    peak_bytes: int
    pinned_bytes: int
    unknown_frees: int
    from_start: bool
    lines: list[HeldLineJson]


class LeakJson(TypedDict):
    """Memory that a process holds more and more of."""

    pid: int
    kind: MemoryKind | None
    line: LineJson | None
    held_bytes: int
    grown_bytes: int
    over_ns: int
    bytes_per_second: float
    bytes_per_step: int | None
    full_in_ns: int | None
    by_torch: bool


class HolderJson(TypedDict):
    """Another process on the GPU, by NVML."""

    pid: int
    name: str
    bytes: int


class HeldAtJson(TypedDict):
    """What a line held when an allocation failed."""

    line: LineJson | None
    held_bytes: int
    pieces: int


class OutOfMemoryJson(TypedDict):
    """An allocation that failed for lack of memory; times since the start of the recording, ns."""

    time_ns: int
    pid: int
    tid: int
    api: str
    line: LineJson | None
    asked_bytes: int
    attempts: int
    gave_back_bytes: int
    met: bool
    free_bytes: int | None
    total_bytes: int | None
    held_bytes: int
    pieces: int
    from_start: bool
    lines: list[HeldAtJson]
    others: list[HolderJson]
    by_torch: bool
    blame: BlameKind
    why: str


class MemoryJson(TypedDict):
    """Memory at the end of what was looked at."""

    processes: list[HeldByJson]
    leaks: list[LeakJson]
    out_of_memory: list[OutOfMemoryJson]
