"""The questions of ``gputop fleet`` as one tool for assistants."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final, Literal, TypeVar

from gputop.errors import USAGE, CommandError
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.lake.pieces import LakeSelection
from gputop.fleet.lake.questions import FINDINGS, overview
from gputop.fleet.ranks.stragglers import COLUMNS as OF_RANKS
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from gputop.query.count_tools import MOST_ROWS, SECONDS, rows_page
from gputop.query.database import LockedDatabase
from gputop.query.reply import BEGIN, END, offset_of

_T = TypeVar("_T")
_KNOWN: Final = frozenset({*OF_RANKS, *(name for columns in COLUMNS.values() for name in columns)})


def lake_tool(lake: str) -> Callable[..., str]:
    """Return the tool for one lake.

    Raises:
        GputopError: It cannot be read, or duckdb is not installed.
    """
    open_lake(lake, ("sessions",)).close()

    def query_fleet(
        _catalogue: object,
        action: Literal["overview", "findings", "stragglers", "sql"],
        by: Literal["cause", "line", "user", "job"] = "cause",
        job: str | None = None,
        query: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> str:
        """Many recordings together: what costs most GPU hours (overview, by cause, line, user or job),
        the findings, ranks that others wait for (stragglers), or one SELECT (sql) over sessions, findings,
        communicators, collectives, before_collectives, problems; their columns:
        SELECT * FROM (DESCRIBE findings). With job only that job's recordings count.
        """
        limit = min(max(limit, 1), MOST_ROWS)
        most = offset_of(cursor) + limit
        if (action == "sql") != bool(query):
            raise CommandError("query goes with action sql, and with no other", USAGE)
        part = LakeSelection(job=None if job is None else job.removeprefix(BEGIN).removesuffix(END))
        if action == "stragglers":
            return _stragglers(lake, part, most, cursor, limit)
        text = query or (overview(by) if action == "overview" else FINDINGS)
        tables = COLUMNS if query else ("sessions", "findings")
        answer = _of(lake, tables, part, lambda database: database.query(text, most, SECONDS))
        return rows_page({"action": action}, answer, text, _KNOWN, cursor, limit)

    return query_fleet


def _stragglers(lake: str, part: LakeSelection, most: int, cursor: str | None, limit: int) -> str:
    found = _of(lake, TABLES, part, lambda database: stragglers(database, SECONDS, rest=False, limit=most))
    fixed = {
        "action": "stragglers",
        "communicators_with_a_late_rank": found.late,
        "communicators_without": found.healthy,
        "communicators_not_known": found.unknown,
        "processes_of_unknown_communicators": found.unnumbered,
    }
    return rows_page(fixed, found.answer, "", _KNOWN, cursor, limit)


def _of(
    lake: str, tables: Collection[str], part: LakeSelection, answer: Callable[[LockedDatabase], _T]
) -> _T:
    """Query a part of a lake, which must not be empty."""
    with closing(open_lake(lake, tables, part)) as database:
        if part and not database.query("SELECT 1 FROM sessions", 1, SECONDS).rows:
            raise CommandError("no recording is of that job: action overview by job lists them", USAGE)
        return answer(database)
