"""The tables of a lake: columns, and their Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

from gputop.analysis.answer.report import Finding
from gputop.documents.field_columns import INT, REAL, TEXT, columns
from gputop.errors import GputopError, install_command
from gputop.format import escape_text

VERSION: Final = 3
Row = Mapping[str, Any]  # column -> value; None: not known

# columns of a recording's findings that a lake omits
_IN_THE_FILE = frozenset(
    {
        "tid", "evidence", "ruled_out", "advice", "gaps", "per_step_ns", "loss_estimate_ns", "idle_level",
        "name_level", "gain_because",
    }
)  # fmt: skip
# table -> column -> type; the meaning of each is in docs/fleet.md
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "sessions": {
        "session_id": TEXT, "path": TEXT, "host": TEXT, "start_wall_ns": INT, "duration_ns": INT,
        "class": TEXT, "verdict": TEXT, "gpu_span_ns": INT, "idle_lower_ns": INT, "idle_upper_ns": INT,
        "idle_estimate_ns": INT, "small_ns": INT, "unexplained_ns": INT, "unknown_ns": INT,
        "lost_events": INT, "session_job": TEXT, "calls": INT, "unkept_ns": INT,
    },
    "findings": {
        "session_id": TEXT, "number": INT, **columns(Finding, without=_IN_THE_FILE), "loss_ns": REAL,
        "process": TEXT, "user": TEXT, "job": TEXT, "rank": INT,
    },
    "communicators": {
        "session_id": TEXT, "member": INT, "communicator": TEXT, "rank": INT, "ranks": INT, "pid": INT,
        "process": TEXT, "job": TEXT, "clock": TEXT, "collectives": INT, "waits": INT, "kept": INT,
        "first_ns": INT, "last_ns": INT, "why": TEXT,
    },
    "collectives": {
        "member": INT, "seq": INT, "begin_ns": INT, "end_ns": INT, "slack_ns": INT, "idle_ns": INT,
        "drained": INT,
    },
    "before_collectives": {"member": INT, "seq": INT, "cause": TEXT, "ns": INT},
    "problems": {"session_id": TEXT, "path": TEXT, "what": TEXT, "text": TEXT},
}  # fmt: skip
# values that were renamed after older lakes
FORMER: Final = {
    ("sessions", "class"): 'CASE "class" WHEN \'unasked\' THEN \'no-requests\' ELSE "class" END AS "class"'
}
# columns since version 3
NEW: Final = frozenset({("sessions", "session_job"), ("sessions", "calls"), ("sessions", "unkept_ns")})


def write_table(table: str, rows: Sequence[Row], file: BinaryIO) -> None:
    """Write one table as Parquet; foreign text is escaped.

    Raises:
        GputopError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise GputopError(
            f"pyarrow is not installed, which writes the lake: {install_command('fleet')}"
        ) from error
    kinds = {INT: pa.int64(), REAL: pa.float64(), TEXT: pa.string()}
    about = {"gputop.table": table, "gputop.version": str(VERSION)}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS[table].items()], metadata=about)
    plain = [
        {name: escape_text(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
    parquet.write_table(pa.Table.from_pylist(plain, schema=schema), file, compression="zstd")
