"""Reads foreign SQLite files, with missing tables and columns, and values of any type."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from gputop.imports.gathered import ImportFileError

# limit on steps of SQLite's virtual machine: a crafted file may loop for ever
_STEPS = 200_000_000
_STEPS_A_BYTE = 10  # more for large files; regular ones need less
_EVERY = 1_000_000
_CELL = 16 << 20  # bytes of a text: a sparse file can claim a gigabyte


class Tables:
    """A read-only database, as a context."""

    def __init__(self, path: str) -> None:
        """Remember the path; nothing is ever written beside it."""
        self._path = path
        self._steps = 0

    def __enter__(self) -> Tables:
        address = f"{Path(self._path).resolve().as_uri()}?mode=ro&immutable=1"
        try:
            self._most = _STEPS + _STEPS_A_BYTE * Path(self._path).stat().st_size
            self._database = sqlite3.connect(address, uri=True)
            if sys.version_info >= (3, 11):  # earlier versions have no limit
                self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
            self._database.text_factory = lambda data: data.decode("utf-8", "replace")
            self._database.set_progress_handler(self._step, _EVERY)
            self._database.execute("pragma trusted_schema = off")
            names = self._database.execute("select name from sqlite_master where type = 'table'").fetchall()
        except (sqlite3.Error, OSError) as error:
            raise ImportFileError(f"{self._path} cannot be read as an SQLite database: {error}") from error
        self.columns = {
            str(name): frozenset(str(row[1]) for row in self._run(f"pragma table_info({_quoted(str(name))})"))
            for (name,) in names
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def _step(self) -> int:
        self._steps += _EVERY
        return int(self._steps > self._most)

    def rows(self, table: str, columns: Sequence[str], order: str = "") -> Iterator[dict[str, Any]]:
        """Yield the rows of a table, with None for missing columns; none without the table."""
        if table not in self.columns:
            return
        there = [name for name in columns if name in self.columns[table]]
        if not there:
            return
        nothing = dict.fromkeys(columns)
        chosen = ", ".join(map(_quoted, there))
        by = f" order by {_quoted(order)}" if order in self.columns[table] else ""
        for row in self._run(f"select {chosen} from {_quoted(table)}{by}"):
            yield {**nothing, **dict(zip(there, row, strict=True))}

    def _run(self, sql: str) -> Iterator[Any]:
        try:
            yield from self._database.execute(sql)
        except (sqlite3.Error, OverflowError) as error:
            raise ImportFileError(
                f"{self._path} is damaged, or made by a version that gputop does not know: {error}"
            ) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def handle(value: Any) -> int:
    """Return the number of a stream, event or GPU; -1 if invalid or unnamed by CUPTI."""
    number = whole(value, -1)
    return number if 0 <= number < (1 << 32) - 1 else -1


def correlation_of(pid: int, value: Any) -> int:
    """Make a process's correlation unique in the trace; -1 if invalid."""
    number = whole(value, -1)
    return pid << 40 | number if 0 <= number < 1 << 40 else -1


def whole(value: Any, otherwise: int = 0) -> int:
    """Return a cell of any type as an integer within 62 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return otherwise
    return max(min(int(value), (1 << 62) - 1), -(1 << 62)) if abs(value) < 1e30 else otherwise
