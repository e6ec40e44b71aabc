"""What several documents have in common. Units are in the names of the keys; None: it could not be known."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict


class OneOf(NamedTuple):
    """The words that a text is one of."""

    words: tuple[str, ...]


def one_of(*words: str) -> OneOf:
    """To be said of a text, as in ``Annotated[str, one_of("idle", "waste")]``."""
    return OneOf(words)


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
