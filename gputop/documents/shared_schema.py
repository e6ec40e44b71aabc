"""Common parts of documents, and words of frames. Units are in the names of the keys; None: not known."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict


class OneOf(NamedTuple):
    """The words that a text is one of."""

    words: tuple[str, ...]


def one_of(*words: str) -> OneOf:
    """Mark a text, as in ``Annotated[str, one_of("idle", "waste")]``."""
    return OneOf(words)


Layer = Annotated[str, one_of("runtime", "driver", "nccl", "unknown")]
GpusSource = Annotated[str, one_of("nvml", "calls", "")]
LinesLookedFor = Annotated[str, one_of("all", "slow", "off")]
GpuUse = Annotated[str, one_of("C", "G", "C+G")]
State = Annotated[str, one_of("running", "runnable", "blocked", "exited")]


class LineJson(TypedDict):
    """A line of source; of native code the library, 0, and the function with the offset in it."""

    file: str
    line: int
    function: str


class BelongsJson(TypedDict, total=False):
    """The owner of a process beyond its user; each key is there where it is known."""

    pod: str
    namespace: str
    pod_container: str
    job_kind: str
    job_id: str
    job_step: str
    rank: int
    local_rank: int
    world_size: int


class MachineJson(TypedDict):
    """Lost time of the machine as a whole; None: its kernel does not report it."""

    steal_ns: int | None
    memory_some_ns: int | None
    memory_full_ns: int | None
    tcp_retransmits: int | None


class LostEventsJson(TypedDict):
    """Records that are missing."""

    events: int


class LostByKindJson(LostEventsJson):
    """Records that are missing, in all and by kind."""

    by_kind: dict[str, int]


class ShapeJson(TypedDict):
    """So many launches of one shape: grid in blocks, block in threads, dynamic shared memory in bytes."""

    grid: list[int]
    block: list[int]
    shared_bytes: int
    launches: int
