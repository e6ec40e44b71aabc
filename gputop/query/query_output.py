"""The rows of a query as a text table, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from gputop.exchange.csv_files import safe_cell
from gputop.format import clip, escape_text, width_of
from gputop.query.database import QueryResult

_WIDEST = 60  # columns of a terminal for one cell


def answer_to_json(answer: QueryResult) -> str:
    """Return ``{"columns": […], "rows": [[…], …], "more": false}``; values that JSON lacks are text."""
    rows = [[plain(value) for value in row] for row in answer.rows]
    return json.dumps({"columns": answer.columns, "rows": rows, "more": answer.more}) + "\n"


def answer_to_csv(answer: QueryResult) -> str:
    """Return CSV with a header; a text that a spreadsheet would run is prefixed with an apostrophe."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([safe_cell(name) for name in answer.columns])
    for row in answer.rows:
        cells = (plain(value) for value in row)
        writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in cells])
    return text.getvalue()


def answer_to_text(answer: QueryResult) -> str:
    """Return aligned columns; numbers are right-aligned, long texts cut."""
    head = [clip(escape_text(name), _WIDEST) for name in answer.columns]
    body = [[clip(_shown(value), _WIDEST) for value in row] for row in answer.rows]
    widths = [max(map(width_of, column)) for column in zip(head, *body, strict=True)]
    right = [
        all(value is None or (_is_number(value)) for value in column)
        for column in (zip(*answer.rows, strict=True) if answer.rows else [()] * len(head))
    ]
    lines = [_line(head, widths, right), *(_line(row, widths, right) for row in body)]
    return "\n".join(lines) + "\n"


def plain(value: Any) -> Any:
    """Return a value in a form of JSON, else as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return escape_text(str(value))


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    parts = []
    for cell, width, aligned in zip(cells, widths, right, strict=True):
        padding = " " * (width - width_of(cell))
        parts.append(padding + cell if aligned else cell + padding)
    return "  ".join(parts).rstrip()
