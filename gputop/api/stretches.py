"""Explains a recording that does not fit into memory: part by part, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from gputop.analysis.answer.report import Report
from gputop.analysis.ledger import TOO_LONG, Ledger, merge, report_of
from gputop.analysis.window import Stretch
from gputop.api.holes import unkept_of
from gputop.api.reading import Progress, interrupted, open_file, understood
from gputop.api.session import Session, reader_of
from gputop.engine.malloc_tuning import keep_freed
from gputop.errors import OutsideSessionError
from gputop.parts.mapreduce import (
    ChainedWork,
    EndedEarlyError,
    Segment,
    processors,
    reduced,
    segments_by_size,
)
from replay.reader import SessionReader

MEMORY = 1 << 30  # bytes for an explanation by default
NEED = 96  # bytes at most for each byte of a file: 48 for launches, twice as much if each makes a gap
BASE = 96 << 20  # bytes of a process before it reads anything
LEAST_PART = 1 << 18
FOREVER = 1 << 62  # ns
NOT_ALL = "not all calls were kept; figures leave the rest out"
Found = TypeVar("Found")
Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class PartByPart(Generic[Found]):
    """Processes a recording part by part (``gputop.parts.mapreduce.ChainedWork``).

    Attributes:
        header: Of the recording.
        look: Returns the result of a part, read a little ahead, up to a moment; None if nothing of it is
            wanted. A function of a module, for other processes.
        join: Joins the results of two consecutive parts.
    """

    header: Mapping[str, Any]
    look: Callable[[Stretch, int], Found | None]
    join: Callable[[Found, Found], Found]

    def begin(self) -> Stretch:
        """Return the state before the recording: nothing."""
        return Stretch(self.header)

    def follow(self, segment: Segment, before: Stretch) -> tuple[Stretch | None, Callable[[], Found | None]]:
        """Return the state for the next part, and the function that makes the result of this one."""
        return filled(segment, before, self.look)

    def merge(self, earlier: Found | None, later: Found | None) -> Found | None:
        if earlier is None or later is None:
            return later if earlier is None else earlier
        return self.join(earlier, later)

    def finish(self, whole: Found | None) -> Found | None:
        return whole


@dataclass(frozen=True, slots=True)
class Explaining:
    """The explanation of a recording part by part.

    Attributes:
        header: Of the recording.
        wanted: Only the time between these moments, CLOCK_MONOTONIC; None: all.
        pids: Only findings of these processes; None: of all.
        unkept: When only sums were recorded: that time is not explained.
    """

    header: Mapping[str, Any]
    wanted: tuple[int, int] | None = None
    pids: frozenset[int] | None = None
    unkept: tuple[tuple[int, int], ...] = ()

    def report(self, whole: Ledger | None) -> Report:
        if whole is None:
            raise OutsideSessionError(
                "no call of this time was kept (record --detail), so there is nothing to explain: gputop "
                "stats has its sums"
                if self.unkept
                else "there is nothing between these moments in the recording"
            )
        between = sum(max(min(high, whole.end_ns) - max(low, whole.begin_ns), 0) for low, high in self.unkept)
        return report_of(whole, self.pids, NOT_ALL if self.unkept else TOO_LONG, between)


def _ledger_of(window: Stretch, until_ns: int, wanted: tuple[int, int] | None) -> Ledger | None:
    found = window.part(until_ns, wanted)
    return found and found[0]


def filled(
    segment: Segment, window: Stretch, look: Callable[[Stretch, int], Found]
) -> tuple[Stretch | None, Callable[[], Found]]:
    """Consume a part; return (state for the next part, function that makes the result of this one).

    Args:
        window: The state for this part.
        look: Returns the result of the part, read a little ahead, up to a moment.
    """
    reader = _opened(segment.path)
    last = segment.until_mark == len(reader.marks)
    with understood(segment.path):
        window.fill(reader.items_between(segment.after_mark, segment.until_mark))
        end = window.last_ns if last else window.end_ns
        after = None if last else window.compact()

    def rest() -> Found:
        with understood(segment.path):
            if not last:
                window.look_ahead(reader.items_between(segment.until_mark, len(reader.marks)))
            return look(window, end)

    return after, rest


def segments_that_fit(session: Session, memory: int, until_ns: int | None = None) -> list[Segment]:
    """Divide a recording into segments; one for each processor at a time fits into so many bytes.

    Recorded time and time with sums only are in different segments. Only the first may begin after
    ``until_ns``, CLOCK_MONOTONIC.
    """
    reader = reader_of(session)
    room = (memory - BASE) // processors() - BASE
    sized = segments_by_size(reader.path, reader.mark_places, max(room // NEED, LEAST_PART))
    edges = [edge for hole in unkept_of(session) for edge in hole]
    at = np.searchsorted(reader.marks, edges)
    inner = {
        int(row)
        for row, edge in zip(at, edges, strict=True)
        if row < len(reader.marks) and reader.marks[row] == edge
    }
    borders = sorted({-1, *(one.until_mark for one in sized), *(inner - {len(reader.marks) - 1})})
    if until_ns is not None:
        beyond = next(row for row, mark in enumerate(borders) if _at(reader, mark) >= until_ns)
        borders = borders[: beyond + 1]
    return [Segment(reader.path, after, until) for after, until in pairwise(borders)]


def _at(reader: SessionReader, mark: int) -> int:
    """The moment of a border: a mark's; before all for the start, behind all for the end."""
    if mark < 0:
        return -1
    return int(reader.marks[mark]) if mark < len(reader.marks) else FOREVER


def joined(
    work: ChainedWork[Any, Known, object],
    session: Session,
    memory: int,
    progress: Progress,
    until_ns: int | None = None,
) -> Known:
    """Return the joined result of all segments: in this process if all of the recording fits, else in others.

    Raises:
        EndedEarlyError: It was interrupted; ``parts`` are of ``segments_that_fit``.
    """
    segments = segments_that_fit(session, memory, until_ns)
    if fits(memory, session):
        return _joined_here(work, segments, progress)
    return reduced(work, segments, processors(), progress.parts, lambda: progress.stopped)


def _joined_here(
    work: ChainedWork[Any, Known, object], segments: Sequence[Segment], progress: Progress
) -> Known:
    carry, rest = work.follow(segments[0], work.begin())
    whole = rest()
    for done, segment in enumerate(segments[1:], 1):
        if progress.stopped:
            raise EndedEarlyError(whole, done)
        progress.parts(done, len(segments))
        carry, rest = work.follow(segment, carry)
        whole = work.merge(whole, rest())
    return whole


def fits(memory: int, *sessions: Session) -> bool:
    """Return True if all of some recordings can be explained at once in so many bytes."""
    return sum(reader_of(session).size_bytes for session in sessions) * NEED + BASE <= memory


def in_parts(session: Session, work: Explaining, memory: int, progress: Progress) -> Report:
    """Explain a recording part by part.

    Args:
        memory: Limit in bytes, of all processes together.
    """
    until_ns = work.wanted and work.wanted[1]
    parts = PartByPart(work.header, partial(_ledger_of, wanted=work.wanted), merge)
    try:
        return work.report(joined(parts, session, memory, progress, until_ns))
    except EndedEarlyError as early:
        if early.known is None:
            raise
        report = work.report(early.known)
        reader, segments = reader_of(session), segments_that_fit(session, memory, until_ns)
        until = int(reader.marks[segments[early.parts - 1].until_mark]) - session.start_ns
        return replace(report, notes=(interrupted(until, session.duration_ns), *report.notes))


@lru_cache(maxsize=1)
def _opened(path: str) -> SessionReader:
    """The file, opened once by a process that reads many parts of it.

    Each part reuses the memory of the one before, so freed memory is kept.
    """
    keep_freed()
    return open_file(path)
