"""A lake of rows that a test chooses, without files; and rows of made-up sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gputop.documents.field_columns import INT, REAL, TEXT
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.query.database import LockedDatabase
from tests.conftest import needed

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def made(rows: Rows) -> LockedDatabase:
    """Tables with these rows; a column that a row leaves out is null."""

    arrow = needed("pyarrow")
    kinds = {INT: arrow.int64(), REAL: arrow.float64(), TEXT: arrow.string()}

    def fill(connection: Any) -> None:
        for table, columns in COLUMNS.items():
            schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
            plain = [{name: row.get(name) for name in columns} for row in rows.get(table, ())]
            connection.register("rows_of_one_table", arrow.Table.from_pylist(plain, schema=schema))
            connection.execute(f'CREATE TABLE "{table}" AS SELECT * FROM rows_of_one_table')
            connection.unregister("rows_of_one_table")

    return LockedDatabase(fill)


def sessions(many: int, seed: int = 1) -> dict[str, list[dict[str, Any]]]:
    """So many sessions, each with up to three findings of causes, lines, users and jobs of its own."""
    chance = np.random.default_rng(seed)
    rows: dict[str, list[dict[str, Any]]] = {"sessions": [], "findings": [], "problems": []}
    for number in range(many):
        name = f"{number:064x}"
        span = int(chance.integers(10**9, 10**12))
        lost = int(chance.integers(0, 3))
        rows["sessions"].append(
            {
                "session_id": name, "path": f"/data/{number}.gputop", "host": f"node{number % 7}",
                "start_wall_ns": number, "duration_ns": span, "verdict": "it waits", "gpu_span_ns": span,
                "idle_lower_ns": span // 4, "idle_upper_ns": span // 2, "small_ns": 5, "unexplained_ns": 7,
                "unknown_ns": 11, "lost_events": lost,
            }
        )  # fmt: skip
        for finding in range(int(chance.integers(0, 4))):
            kind, loss = ("idle", "waste")[finding == 2], int(chance.integers(1, span // 8))
            rows["findings"].append(
                {
                    "session_id": name, "number": finding + 1, "cause": f"C{chance.integers(1, 9):02d}",
                    "title": "a cause", "kind": kind, "level": ("proved", "hint")[number % 2],
                    "loss_lower_ns": loss // 2, "loss_upper_ns": loss, "loss_ns": loss * 0.75,
                    "pid": 10, "user": f"user{number % 5}", "job": f"job{number % 400}", "rank": finding,
                    "file": f"file{number}.py", "line": finding, "function": "train",
                }
            )  # fmt: skip
        if lost:
            problem = {"session_id": name, "path": f"/data/{number}.gputop", "what": "lossy", "text": "lost"}
            rows["problems"].append(problem)
    return rows
