"""What of a recording's time is not in the file, and how that is said."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.library.session import NS, Session, reader_of
from probes.source import HOLE

_NAMED = 4  # stretches that a sentence names


def holes_of(session: Session) -> list[tuple[int, int]]:
    """When records are missing although nothing was lost, ns of CLOCK_MONOTONIC; the file's index tells."""
    return reader_of(session).ticks_with(HOLE)


def about_holes(session: Session) -> tuple[str, ...]:
    """What an answer says of them."""
    holes = holes_of(session)
    if not holes:
        return ()
    return (
        f"not recorded by all of the recordings that were merged: {stretches(holes, session.start_ns)}; "
        "nothing is proved there",
    )


def stretches(parts: Sequence[tuple[int, int]], start_ns: int) -> str:
    """Some stretches of time in words, the longest ones by name."""
    longest = sorted(sorted(parts, key=lambda one: one[0] - one[1])[:_NAMED])
    named = ", ".join(
        f"{(low - start_ns) / NS:.3f} to {(high - start_ns) / NS:.3f} s" for low, high in longest
    )
    more = len(parts) - len(longest)
    whole = sum(high - low for low, high in parts) / NS
    return named + (f" and {more} shorter ones, {whole:.1f} s in all" if more else "")
