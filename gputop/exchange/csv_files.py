"""Tables as CSV, one file each, safe from formula injection by program-chosen names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from gputop.documents.field_columns import TEXT
from gputop.exchange.session_tables import COLUMNS, Rows
from gputop.format import escape_text

# a cell that begins so is a formula to some spreadsheet; OWASP, "CSV Injection"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


class CsvFile:
    """One table."""

    def __init__(self, table: str, file: BinaryIO) -> None:
        self._columns = COLUMNS[table]
        self._file = file
        self._write([list(self._columns)])

    def add(self, rows: Rows) -> None:
        cells = [_cells(rows.columns[name], kind) for name, kind in self._columns.items()]
        self._write(zip(*cells, strict=True))

    def close(self) -> None:
        """Nothing is held."""

    def let_go(self) -> None:
        """Nothing is held."""

    def _write(self, rows: Iterable[Iterable[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())


def _cells(values: Any, kind: str) -> list[Any]:
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return [safe_cell(value) for value in plain] if kind == TEXT else plain


def safe_cell(value: str | None) -> str | None:
    """Return escaped text that no spreadsheet takes for a formula: an apostrophe is put in front."""
    if value is None:
        return None
    text = escape_text(value)
    return f"'{text}" if value.startswith(_FORMULA) or text.startswith(_FORMULA) else text
