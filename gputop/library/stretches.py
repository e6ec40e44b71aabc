"""Explains a recording that is longer than fits: part by part, in several processes, and joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from gputop.errors import OutsideSessionError
from gputop.explain.answer.report import Report
from gputop.explain.evidence.memory import give_back, keep_freed
from gputop.explain.merged import Partial, finish, merge
from gputop.explain.stretch import Carried, Stretch
from gputop.library.reading import Progress, interrupted, open_file, understood
from gputop.library.session import Session, reader_of
from gputop.parts.work import EndedEarlyError, Segment, processors, reduced, segments_by_size
from replay.reader import SessionReader

MEMORY = 1 << 30  # bytes that an explanation takes unless it is told otherwise
NEED = 96  # bytes at most for each byte of a file: 48 for launches, twice as much where each makes a gap
BASE = 96 << 20  # bytes that a process takes before it has read anything
LEAST_PART = 1 << 18
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Explaining:
    """Explains a recording part by part (``gputop.parts.work.ChainedWork``).

    Attributes:
        header: Of the recording.
        wanted: Only what lies between these moments, CLOCK_MONOTONIC; None: all.
        pids: Only findings of these processes; None: of all.
    """

    header: Mapping[str, Any]
    wanted: tuple[int, int] | None = None
    pids: frozenset[int] | None = None

    def begin(self) -> Carried:
        """Nothing is known before the recording."""
        return Carried(Stretch(self.header))

    def follow(
        self, segment: Segment, before: Carried
    ) -> tuple[Carried | None, Callable[[], Partial | None]]:
        """What the next part must know, and how to explain this one."""
        return filled(segment, before, lambda window, until_ns: window.partial(until_ns, self.wanted))

    def merge(self, earlier: Partial | None, later: Partial | None) -> Partial | None:
        """Of two parts; None where nothing of a part was wanted."""
        return merge(earlier, later) if earlier and later else earlier or later

    def finish(self, whole: Partial | None) -> Report:
        """The report of all parts."""
        if whole is None:
            raise OutsideSessionError("there is nothing between these moments in the recording")
        return finish(whole, self.pids)


def filled(
    segment: Segment, before: Carried, look: Callable[[Stretch, int], Found]
) -> tuple[Carried | None, Callable[[], Found]]:
    """Takes a part in; (what the next part must know, what gives the result of this one).

    Args:
        segment: The part.
        before: What it must know of those before it.
        look: Given the part with a little of what comes next, and the moment up to which it is: its result.
    """
    reader, window = _opened(segment.path), before.window
    last = segment.until_mark == len(reader.marks)
    with understood(segment.path):
        window.fill(reader.items_between(segment.after_mark, segment.until_mark))
        end = window.last_ns if last else window.end_ns
        after = None if last else window.carried()

    def rest() -> Found:
        with understood(segment.path):
            if not last:
                window.look_ahead(reader.items_between(segment.until_mark, len(reader.marks)))
            found = look(window, end)
        give_back()
        return found

    return after, rest


def segments_that_fit(session: Session, memory: int) -> list[Segment]:
    """A recording in segments that fit into so many bytes, as many at a time as there are processors."""
    reader = reader_of(session)
    room = (memory - BASE) // processors() - BASE
    return segments_by_size(reader.path, reader.mark_places, max(room // NEED, LEAST_PART))


def fits(session: Session, memory: int) -> bool:
    """Whether all of a recording can be explained at once in so many bytes."""
    return fit_together((session,), memory)


def fit_together(sessions: Sequence[Session], memory: int) -> bool:
    """The same of several."""
    return sum(reader_of(session).size_bytes for session in sessions) * NEED + BASE <= memory


def in_parts(
    session: Session,
    work: Explaining,
    memory: int,
    progress: Progress | None,
) -> Report:
    """Explains it part by part.

    Args:
        session: The recording.
        work: What of it is explained.
        memory: So many bytes at most, of all processes together.
        progress: Is told how far the work is.
    """
    reader, count, segments = reader_of(session), processors(), segments_that_fit(session, memory)
    try:
        if progress is None:
            return work.finish(reduced(work, segments, count))
        return work.finish(reduced(work, segments, count, progress.parts, lambda: progress.stopped))
    except EndedEarlyError as early:
        if early.known is None:
            raise
        report = work.finish(early.known)
        until = int(reader.marks[segments[early.parts - 1].until_mark]) - session.start_ns
        return replace(report, notes=(interrupted(until, session.duration_ns), *report.notes))


@lru_cache(maxsize=1)
def _opened(path: str) -> SessionReader:
    """The file, opened once by a process that looks at many parts of it."""
    keep_freed()
    return open_file(path)
