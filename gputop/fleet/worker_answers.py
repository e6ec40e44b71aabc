"""Validates the answers of a cluster's workers, which are untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gputop.documents.field_columns import INT, REAL, TEXT
from gputop.fleet.explain_task import ExplainOutcome
from gputop.fleet.lake.lake_tables import COLUMNS, Row

_MOST_ROWS: Final = 1 << 18  # of one recording: its collectives are bounded, each by far less
_MOST_TEXT: Final = 1 << 16  # characters
_MOST_SENTENCE: Final = 1000
_MOST_INT: Final = 1 << 63
# beside the columns: which recording it is of, and up to which moment
_MORE: Final = {"sessions": {"recording": TEXT, "until_ns": INT}}


def checked(answer: Any, count: int) -> list[ExplainOutcome] | str:
    """Return a task's outcomes, one for each recording, of known tables and columns; or a sentence.

    Args:
        answer: The answer.
        count: Recordings of the task.

    Raises:
        ValueError: It is invalid; the text is the reason.
    """
    if isinstance(answer, str):
        return answer[:_MOST_SENTENCE]
    if not isinstance(answer, list) or len(answer) != count:
        raise ValueError("not one answer for each recording")
    return [_outcome(one) for one in answer]


def _outcome(answer: Any) -> ExplainOutcome:
    if not isinstance(answer, ExplainOutcome) or not isinstance(answer.rows, Mapping):
        raise ValueError("no tables")
    if not isinstance(answer.session_id, str | None):
        raise ValueError("a recording's hash that is none")
    if set(answer.rows) - set(COLUMNS):
        raise ValueError("a table that a lake does not have")
    rows = {table: answer.rows.get(table, ()) for table in COLUMNS}
    if not all(isinstance(some, Sequence) for some in rows.values()):
        raise ValueError("a table without rows")
    if sum(map(len, rows.values())) > _MOST_ROWS:
        raise ValueError("more rows than a recording has")
    return ExplainOutcome(
        {table: tuple(_row(table, row) for row in rows[table]) for table in COLUMNS}, answer.session_id
    )


def _row(table: str, answer: Any) -> Row:
    """A row of the known columns, which identifies its session."""
    if not isinstance(answer, Mapping):
        raise ValueError("a row that is none")
    kinds = {**COLUMNS[table], **_MORE.get(table, {})}
    row = {name: _value(kind, answer[name]) for name, kind in kinds.items() if name in answer}
    named = [name for name in ("session_id", "member") if name in COLUMNS[table]]
    if any(row.get(name) is None for name in named if table != "problems"):
        raise ValueError("a row of no session")
    if row.get("recording") is not None and None in (row.get("until_ns"), row.get("duration_ns")):
        raise ValueError("a recording of no length")
    return row if table != "problems" else {"session_id": None, **row}


def _value(kind: str, value: Any) -> Any:
    fits = {
        INT: isinstance(value, int) and -_MOST_INT <= value < _MOST_INT,
        REAL: isinstance(value, float | int) and -1e300 < value < 1e300,
        TEXT: isinstance(value, str) and len(value) <= _MOST_TEXT,
    }
    if value is not None and (isinstance(value, bool) or not fits[kind]):
        raise ValueError("a value that a column cannot have")
    return value
