"""Missing and damaged parts of a recording, and their wording."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.api.session import NS, Session, reader_of
from gputop.format import format_clock
from probes.known import Known
from probes.samples import text_of
from probes.source import HOLE, PROBLEM, SUMS

_NAMED = 4  # stretches named in a sentence
Stretches = list[tuple[int, int]]


def holes_of(session: Session) -> Stretches:
    """Return when a part of a merged recording is missing, ns of CLOCK_MONOTONIC; by the file's index."""
    return reader_of(session).ticks_with(HOLE)


def unkept_of(session: Session) -> Stretches:
    """Return when only sums were recorded (record --detail), as above."""
    return reader_of(session).ticks_with(SUMS)


def problems_of(session: Session) -> list[str]:
    """Return problems of the file, as far as it was read, and of the observation."""
    known = Known()
    for sample in reader_of(session).samples(PROBLEM):
        known.consume(sample)
    texts = (text_of(sample) for sample in known.problems.values())
    return [*dict.fromkeys((*session.problems, *filter(None, texts)))]


def about_holes(session: Session) -> tuple[str, ...]:
    """Return a sentence about each of these."""
    holes, unkept = holes_of(session), unkept_of(session)
    notes = problems_of(session)
    if unkept:
        notes.append(f"not kept: calls of {stretches(unkept, session)}; figures cover the rest")
    if holes:
        notes.append(
            f"not recorded by all of the recordings that were merged: {stretches(holes, session)}; "
            "nothing is proved there"
        )
    return tuple(notes)


def stretches(parts: Sequence[tuple[int, int]], session: Session) -> str:
    """Return stretches of a recording's time as text, the longest ones by name."""
    longest = sorted(sorted(parts, key=lambda one: one[0] - one[1])[:_NAMED])
    named = ", ".join(_named(low, high, session) for low, high in longest)
    more = len(parts) - len(longest)
    whole = sum(high - low for low, high in parts) / NS
    return named + (f" and {more} shorter ones, {whole:.1f} s in all" if more else "")


def _named(low: int, high: int, session: Session) -> str:
    start, clock = session.start_ns, session.header.get("clock", {})
    text = f"{(low - start) / NS:.3f} to {(high - start) / NS:.3f} s"
    if "realtime_ns" not in clock:
        return text
    later, zone = int(clock["realtime_ns"]) - int(clock["monotonic_ns"]), int(clock.get("utc_offset_s", 0))
    return f"{text} ({format_clock(low + later, zone)}-{format_clock(high + later, zone)})"
