"""The tables of a recording in a database that can only be read: DuckDB, in memory, locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session
from gputop.documents.field_columns import BOOL, INT, REAL, TEXT
from gputop.errors import GputopError, install_command
from gputop.exchange.session_tables import COLUMNS, tables
from gputop.format import escape_text
from gputop.query.forked import in_child

_TYPES = {INT: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR", BOOL: "BOOLEAN"}
_NUMPY: dict[str, Any] = {INT: np.int64, REAL: np.float64, BOOL: np.bool_}
_AT_ONCE = 1 << 16  # rows; inserting each tick's rows alone is slower than reading them
_MEMORY = "2GB"  # some ten million calls
SESSION_BOUNDS = (f"SET memory_limit='{_MEMORY}'", "SET threads=1", "SET temp_directory=''")
# a query must not reach files, the network, extensions, our own variables; and not undo this
_LOCKS = (
    "SET allow_persistent_secrets=false",
    "SET enable_external_access=false",
    "SET python_enable_replacements=false",
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET allow_community_extensions=false",
    "SET lock_configuration=true",
)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query; ``more``: True if there are rows beyond the limit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


def _without_threads(connection: Any) -> tuple[str, ...]:
    """What keeps DuckDB 2's threads for input and output away; one may hold a lock while a query forks."""
    known = connection.execute("SELECT 1 FROM duckdb_settings() WHERE name = 'async_threads'").fetchall()
    return ("SET async_threads=0",) if known else ()


class LockedDatabase:
    """Tables in memory, read-only; several threads may query them at once."""

    def __init__(self, fill: Callable[[Any], None]) -> None:
        """Make the tables, then lock them.

        Args:
            fill: Makes the tables over a connection that is not locked yet.

        Raises:
            GputopError: duckdb is not installed, or the tables cannot be made.
        """
        try:
            import duckdb
        except ImportError as error:
            raise GputopError(
                f"duckdb, which answers SQL, is not installed: {install_command('sql')}; without it: "
                "gputop export --to csv"
            ) from error
        self._duckdb = duckdb
        # only SELECT is run (``query``), so nothing can be added, changed or dropped
        self._connection = duckdb.connect(":memory:")
        try:
            with self._errors_as_sentences(filling=True):
                for bound in (*SESSION_BOUNDS, *_without_threads(self._connection)):
                    self._connection.execute(bound)
                fill(self._connection)
                for lock in _LOCKS:
                    self._connection.execute(lock)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def query(self, text: str, rows: int, seconds: float) -> QueryResult:
        """Run one SELECT.

        Raises:
            GputopError: It is no single SELECT, is invalid, or needs too much time or memory.
        """
        with self._errors_as_sentences(seconds):
            names, found = in_child(lambda: self._answered(text, rows), seconds)
        return QueryResult(names, tuple(found[:rows]), len(found) > rows)

    def _answered(self, text: str, rows: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        cursor = self._connection.cursor()
        statements = cursor.extract_statements(text)
        if len(statements) != 1 or statements[0].type != self._duckdb.StatementType.SELECT:
            raise GputopError("only a single SELECT is allowed: the tables are read-only")
        # the newline ends a comment; rows beyond the limit are not computed
        plain = statements[0].query.strip().rstrip(";")
        cursor.execute(f"SELECT * FROM (\n{plain}\n) LIMIT {rows + 1}")
        found = cursor.fetchall()
        return tuple(str(column[0]) for column in cursor.description or ()), found

    @contextmanager
    def _errors_as_sentences(self, seconds: float = 0, *, filling: bool = False) -> Iterator[None]:
        """Errors of the database as sentences."""
        try:
            yield
        except TimeoutError as error:
            raise GputopError(f"the query took longer than {seconds:g} s: use fewer rows or joins") from error
        except (self._duckdb.OutOfMemoryException, MemoryError) as error:
            if filling:
                raise GputopError(
                    f"its tables take more than {_MEMORY} of memory: gputop cut the recording first, or "
                    "gputop export --to parquet and use DuckDB, which streams those files"
                ) from error
            raise GputopError(
                f"the query takes more than {_MEMORY} of memory: select less, or gputop cut the "
                "recording first"
            ) from error
        except self._duckdb.Error as error:
            text = str(error).partition("Traceback")[0]  # of a missing module, as pytz for a time zone
            if "Table with name" in text:  # the database's own suggestion may be one of its internal tables
                text = f"{text.partition('!')[0]}; the tables are: {', '.join(self._names())}"
            raise GputopError(" ".join(text.split())) from error

    def _names(self) -> list[str]:
        found = self._connection.cursor().execute(
            "SELECT table_name AS name FROM duckdb_tables() "
            "UNION SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY name"
        )
        return [str(name) for (name,) in found.fetchall()]


class Database(LockedDatabase):
    """The tables of one recording (docs/exchange.md)."""

    def __init__(self, session: Session, progress: Progress = SILENT) -> None:
        """Read all of a recording.

        Raises:
            GputopError: duckdb is not installed, or the file cannot be read or understood.
        """
        super().__init__(lambda connection: _fill(connection, session, progress))


def _fill(connection: Any, session: Session, progress: Progress) -> None:
    for table, columns in COLUMNS.items():
        made = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in columns.items())
        connection.execute(f'CREATE TABLE "{table}" ({made})')
    held: dict[str, list[dict[str, Any]]] = {table: [] for table in COLUMNS}
    waiting = dict.fromkeys(COLUMNS, 0)
    for part in tables(session, progress):
        with understood(session.path):
            kinds = COLUMNS[part.table]
            arrays = {name: _array(part.columns[name], kind) for name, kind in kinds.items()}
        held[part.table].append(arrays)
        waiting[part.table] += len(next(iter(arrays.values())))
        if waiting[part.table] >= _AT_ONCE:
            _insert(connection, part.table, held[part.table])
            held[part.table], waiting[part.table] = [], 0
    for table, parts in held.items():
        _insert(connection, table, parts)


def _insert(connection: Any, table: str, parts: Sequence[dict[str, Any]]) -> None:
    if not parts:
        return
    joined: Any = np.ma.concatenate  # untyped
    columns = {name: joined([part[name] for part in parts]) for name in COLUMNS[table]}
    if len(next(iter(columns.values()))):
        connection.register("rows_of_one_table", columns)
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM rows_of_one_table')
        connection.unregister("rows_of_one_table")


def _array(values: Any, kind: str) -> Any:
    """A column as masked numpy array; text is escaped, as in every file that gputop writes."""
    if kind == TEXT:
        texts = [None if value is None else escape_text(str(value)) for value in values]
        made = np.empty(len(texts), dtype=object)
        made[:] = texts
        return np.ma.masked_array(made)
    if isinstance(values, np.ndarray):
        return np.ma.masked_array(values.astype(_NUMPY[kind]))
    unknown = [value is None for value in values]
    return np.ma.masked_array([value or 0 for value in values], mask=unknown, dtype=_NUMPY[kind])
