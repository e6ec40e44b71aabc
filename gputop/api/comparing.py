"""Compares recordings that are longer than fits: each part by part, in several processes, and the joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputop.analysis import compare_parts
from gputop.analysis.compare import Diff
from gputop.analysis.compare_parts import Compared
from gputop.analysis.window import Carried, Stretch
from gputop.api.reading import Progress
from gputop.api.session import Session
from gputop.api.stretches import filled, joined
from gputop.errors import GputopError
from gputop.parts.mapreduce import Segment


@dataclass(frozen=True, slots=True)
class Comparing:
    """Looks at one of two recordings part by part (``gputop.parts.mapreduce.ChainedWork``)."""

    header: Mapping[str, Any]

    def begin(self) -> Carried:
        """Nothing is known before the recording."""
        return Carried(Stretch(self.header))

    def follow(
        self, segment: Segment, before: Carried
    ) -> tuple[Carried | None, Callable[[], Compared | None]]:
        """What the next part must know, and how to look at this one."""
        return filled(segment, before, _look)

    def merge(self, earlier: Compared | None, later: Compared | None) -> Compared | None:
        """Of two parts; None where a part holds no time."""
        return compare_parts.merge(earlier, later) if earlier and later else earlier or later

    def finish(self, whole: Compared | None) -> Compared:
        """What the recording says for a comparison."""
        if whole is None:
            raise GputopError(
                "no call of one of the recordings was kept (record --detail summary), so there is nothing to "
                "compare: gputop stats has its sums"
            )
        return whole


def _look(window: Stretch, until_ns: int) -> Compared | None:
    found = window.part(until_ns)
    return found and compare_parts.compared_part(*found)


def in_parts(before: Session, after: Session, memory: int, progress: Progress | None) -> Diff:
    """Compares two recordings part by part.

    Args:
        before, after: The recordings.
        memory: So many bytes at most, of all processes together.
        progress: Reports how far the work is.
    """
    sides = []
    for session in (before, after):
        work = Comparing(dict(session.header))
        sides.append(work.finish(joined(work, session, memory, progress)))
        if progress is not None:
            progress.goes_on("reading the other")
    return compare_parts.finish(*sides)
