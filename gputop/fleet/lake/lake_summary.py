"""Summary of a whole lake: sums, top rows of tables, late ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gputop.fleet.lake.questions import COVERAGE, FINDINGS, GROUPS, PROBLEMS, SESSIONS, overview
from gputop.fleet.ranks.stragglers import TABLES as OF_RANKS
from gputop.fleet.ranks.stragglers import Stragglers, stragglers
from gputop.query.database import LockedDatabase, QueryResult

TABLES: Final = (*OF_RANKS, "problems")


@dataclass(frozen=True, slots=True)
class TopRows:
    """The first rows of an answer, and the total number."""

    answer: QueryResult
    total: int


@dataclass(frozen=True, slots=True)
class LakeSummary:
    """Summary of a lake."""

    coverage: Mapping[str, Any]  # the row of ``COVERAGE``, by column
    overviews: Mapping[str, TopRows]  # GPU hours, by each of ``GROUPS``
    # findings, sessions, problems: the most expensive first; problems by kind
    findings: TopRows
    sessions: TopRows
    problems: TopRows
    wrong: Mapping[str, int]  # number of problems by kind
    ranks: Stragglers  # late ranks first, then communicators without one


def summed(database: LockedDatabase, rows: int, seconds: float) -> LakeSummary:
    """Run all queries.

    Args:
        database: The lake's, with ``TABLES``.
        rows: Most rows of each table.
        seconds: Time limit of a query.

    Raises:
        GputopError: A query exceeds its time or memory.
    """

    def part(text: str) -> TopRows:
        answer = database.query(text, rows, seconds)
        total = len(answer.rows)
        if answer.more:
            ((total,),) = database.query(f"SELECT count(*) FROM ({text})", 1, seconds).rows
        return TopRows(answer, total)

    sums = database.query(COVERAGE, 1, seconds)
    kinds = database.query("SELECT what, count(*) FROM problems GROUP BY what", rows, seconds)
    return LakeSummary(
        coverage=dict(zip(sums.columns, sums.rows[0], strict=True)),
        overviews={by: part(overview(by)) for by in GROUPS},
        findings=part(FINDINGS),
        sessions=part(SESSIONS),
        problems=part(PROBLEMS),
        wrong={str(what): int(count) for what, count in kinds.rows},
        ranks=stragglers(database, seconds, rest=True, limit=2 * rows),
    )
