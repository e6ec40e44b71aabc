"""What several documents have in common. Units are in the names of the keys; None: it could not be known."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict


class OneOf(NamedTuple):
    """The words that a text is one of."""

    words: tuple[str, ...]


def one_of(*words: str) -> OneOf:
    """To be said of a text, as in ``Annotated[str, one_of("idle", "waste")]``."""
    return OneOf(words)


CLASSES = (
    "input",
    "sync",
    "launch",
    "host",
    "copy",
    "compute",
    "memory",
    "communication",
    "cpu",
    "shared",
    "no-requests",
    "queue",
    "startup",
)
Class = Annotated[str, one_of(*CLASSES)]
Sureness = Annotated[str, one_of("proved", "strong", "hint")]
FindingKind = Annotated[str, one_of("idle", "waste")]
Layer = Annotated[str, one_of("runtime", "driver", "nccl", "unknown")]


class LineJson(TypedDict):
    """A line of source; of native code the library, 0, and the function with how far in it the place is."""

    file: str
    line: int
    function: str


class RangeJson(TypedDict):
    """A duration between two bounds, ns."""

    lower: int
    upper: int
    estimate: int | None


class LostJson(TypedDict):
    """Records that are missing."""

    events: int


class LostByKindJson(LostJson):
    """Records that are missing, in all and by kind."""

    by_kind: dict[str, int]


class WaitJson(LineJson):
    """The times that a line kept threads blocked between two calls."""

    count: int
    sum_ns: int


class CallLineJson(LineJson):
    """The calls of one function from one line, and the stack of most of that time."""

    api: str
    count: int
    sum_ns: int
    frames: list[LineJson]


class LaunchJson(TypedDict):
    """Work that was given to a GPU, ns since the start; kernel and stream are handles."""

    time_ns: int
    api: str
    tid: int
    kernel: int
    name: str
    stream: int
    line: LineJson | None


class FailureJson(TypedDict):
    """The calls of one function that failed with one error at one line; times since the start, ns."""

    pid: int
    tid: int
    api: str
    layer: Layer
    code: int
    error: str
    text: str
    sticky: bool
    count: int
    first_ns: int
    last_ns: int
    line: LineJson | None
    launches: list[LaunchJson]


class CallJson(TypedDict):
    """The calls of one function in one process."""

    api: str
    layer: Layer
    nested: bool
    at_most: bool
    count: int
    errors: int
    bytes: int
    sum_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int


class FaultsJson(TypedDict):
    """Page faults: minor ones found their page in memory, major ones waited for it to be read."""

    minor: int
    major: int


class OffCpuJson(TypedDict):
    """Stays off the CPU; None: which were throttled is not known, or there is none to make an average of."""

    count: int
    sum_ns: int
    average_ns: int | None
    worst_ns: int
    disk_count: int
    disk_ns: int
    throttled_count: int | None
    throttled_ns: int | None


class DiskWaitJson(TypedDict):
    """Stays off the CPU for the disk; None: no file was told, or for a page of memory, in no call."""

    file: str | None
    call: str | None
    count: int
    sum_ns: int
    worst_ns: int


class ThreadTimesJson(TypedDict):
    """A thread's switches, and its time by state."""

    tid: int
    name: str
    voluntary_switches: int
    involuntary_switches: int
    on_cpu_ns: int
    runnable_ns: int
    blocked_ns: int


class ShapeJson(TypedDict):
    """So many launches of one shape: grid in blocks, block in threads, dynamic shared memory in bytes."""

    grid: list[int]
    block: list[int]
    shared_bytes: int
    launches: int
