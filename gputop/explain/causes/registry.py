"""The registry of causes: each registers itself where it is written; everything else asks here."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause

_CAUSES: dict[str, Cause] = {}


def register(cause: Cause) -> Cause:
    """Adds a cause.

    Raises:
        ValueError: Its number or its rank is another's: a cause is registered once, with all that it has.
    """
    for known in _CAUSES.values():
        if cause.number == known.number or (cause.rank is not None and cause.rank == known.rank):
            raise ValueError(f"{cause.number} ({cause.title}) has the number or the rank of {known.number}")
    _CAUSES[cause.number] = cause
    return cause


def every() -> tuple[Cause, ...]:
    """All of them, by number."""
    return tuple(_CAUSES[number] for number in sorted(_CAUSES))


def in_order() -> tuple[Cause, ...]:
    """Those that take pieces of gaps, in the order in which they are asked."""
    asked = [(cause.rank, cause) for cause in every() if cause.rank is not None]
    return tuple(cause for _rank, cause in sorted(asked, key=lambda one: one[0]))
