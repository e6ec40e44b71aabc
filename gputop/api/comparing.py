"""Compares recordings that do not fit into memory: each part by part, in several processes."""

from __future__ import annotations

from gputop.analysis import compare_parts
from gputop.analysis.compare import Diff
from gputop.analysis.compare_parts import Compared
from gputop.analysis.window import Stretch
from gputop.api.reading import Progress
from gputop.api.session import Session
from gputop.api.stretches import PartByPart, joined
from gputop.errors import GputopError


def part_by_part(session: Session) -> PartByPart[Compared]:
    """Return the work that prepares one of two recordings for a comparison."""
    return PartByPart(dict(session.header), _look, compare_parts.merge)


def _look(window: Stretch, until_ns: int) -> Compared | None:
    found = window.part(until_ns)
    return found and compare_parts.compared_part(*found)


def in_parts(before: Session, after: Session, memory: int, progress: Progress) -> Diff:
    """Compare two recordings part by part.

    Args:
        memory: Limit in bytes, of all processes together.
    """
    sides = []
    for session in (before, after):
        whole = joined(part_by_part(session), session, memory, progress)
        if whole is None:
            raise GputopError(
                "no call of one of the recordings was kept (record --detail summary), so there is nothing to "
                "compare: gputop stats has its sums"
            )
        sides.append(whole)
        progress.goes_on("reading the other")
    return compare_parts.finish(*sides)
