"""Tables as CSV, one file each: for a spreadsheet, which must not run what a program chose as its name."""

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
    """Text that is text to every spreadsheet: an apostrophe stands before what would be a formula."""
    if value is None:
        return None
    text = escape_text(value)
    return f"'{text}" if value.startswith(_FORMULA) or text.startswith(_FORMULA) else text
