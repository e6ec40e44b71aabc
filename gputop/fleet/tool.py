"""What an assistant may ask of a lake: the questions that ``gputop fleet`` answers, as one tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gputop.ask.database import LockedDatabase
from gputop.ask.figures import MOST_ROWS, SECONDS, rows_page
from gputop.ask.reply import offset_of
from gputop.errors import USAGE, CommandError
from gputop.fleet.lake import open_lake
from gputop.fleet.questions import FINDINGS, GROUPS, overview
from gputop.fleet.stragglers import COLUMNS as OF_RANKS
from gputop.fleet.stragglers import TABLES, stragglers
from gputop.fleet.tables import COLUMNS

_T = TypeVar("_T")
_KNOWN: Final = frozenset({*OF_RANKS, *(name for columns in COLUMNS.values() for name in columns)})


def asked_of(lake: str) -> Callable[[str, str, str | None, int, str | None], str]:
    """The tool for one lake; takes action, by, query, limit and cursor.

    Raises:
        GputopError: It cannot be read, or duckdb is not installed.
    """
    open_lake(lake, ("sessions",)).close()

    def query_fleet(action: str, by: str, query: str | None, limit: int, cursor: str | None) -> str:
        limit = min(max(limit, 1), MOST_ROWS)
        most = offset_of(cursor) + limit
        if (action == "sql") != bool(query):
            raise CommandError("query goes with action sql, and with no other", USAGE)
        if action == "stragglers":
            return _stragglers(lake, most, cursor, limit)
        if by not in GROUPS:
            raise CommandError(f"by is one of {', '.join(GROUPS)}", USAGE)
        text = query or (overview(by) if action == "overview" else FINDINGS)
        tables = COLUMNS if query else ("sessions", "findings")
        answer = _of(open_lake(lake, tables), lambda database: database.query(text, most, SECONDS))
        return rows_page({"action": action}, answer, text, _KNOWN, cursor, limit)

    return query_fleet


def _stragglers(lake: str, most: int, cursor: str | None, limit: int) -> str:
    found = _of(
        open_lake(lake, TABLES), lambda database: stragglers(database, SECONDS, rest=False, limit=most)
    )
    fixed = {
        "action": "stragglers",
        "communicators_with_a_late_rank": found.late,
        "communicators_without": found.healthy,
        "communicators_not_known": found.unknown,
        "processes_of_unknown_communicators": found.unnumbered,
    }
    return rows_page(fixed, found.answer, "", _KNOWN, cursor, limit)


def _of(database: LockedDatabase, ask: Callable[[LockedDatabase], _T]) -> _T:
    try:
        return ask(database)
    finally:
        database.close()
