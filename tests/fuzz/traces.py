"""Traces of other tools: JSON of any shape, databases with any tables, rows and cells, and any damage."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sqlite3
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

from gputop.commands import cli
from gputop.errors import GputopError
from tests import made_traces
from tests.fuzz import mutation
from tests.fuzz.target import Target

_SQLITE, _GZIP = b"SQLite format 3\0", b"\x1f\x8b"
_KEPT = 40  # rows of a table, calls of a trace: of one like the others more tell nothing
_STATUS = {"import": (0, 1), "explain": (0, 1, 3), "stats": (0, 1)}
_FIRST = 1_000_000  # ns: the loop's first time


def _seeds() -> list[bytes]:
    ops, operators = made_traces.loop()
    few = ops[:_KEPT], operators[:_KEPT]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [
            made_traces.kineto(folder / "trace.json", of=few),
            made_traces.kineto(folder / "trace.json.gz", of=few),
            made_traces.kineto(folder / "plain.json", of=few, relative=False),
        ]
        switches = [(_FIRST + 100_000 * number, number % 2, 7, 4) for number in range(20)]
        databases = [
            made_traces.nsys(folder / "nsys.sqlite"),
            made_traces.nsys(folder / "switches.sqlite", switches=switches),
            made_traces.ingero(folder / "ingero.db"),
        ]
        for path in databases:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
                for table, _ in _tables(database):
                    database.execute(f'delete from "{table}" where rowid > {_KEPT}')
                database.execute("vacuum")
        return [path.read_bytes() for path in made + databases]


def _tables(database: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    """Each table with its columns."""
    names = [str(row[0]) for row in database.execute("select name from sqlite_master where type = 'table'")]
    return [(name, [row[1] for row in database.execute(f'pragma table_info("{name}")')]) for name in names]


def _mutate(data: bytes, random: Random) -> bytes:
    with contextlib.suppress(ValueError, RecursionError, OSError, EOFError, zlib.error, sqlite3.Error):
        if data.startswith(_SQLITE):
            return _other_database(data, random)
        packed = data.startswith(_GZIP)
        document = json.loads(gzip.decompress(data) if packed else data)
        for _ in range(random.choice((1, 1, 2, 5))):
            document = mutation.plain(document, random)
        text = json.dumps(document, default=repr).encode(errors="replace")
        return gzip.compress(text, 1) if packed else text
    return mutation.some_bytes(data, random)


def _other_database(data: bytes, random: Random) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "trace")
        path.write_bytes(data)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            for _ in range(random.choice((1, 1, 2, 5))):
                table, columns = random.choice(_tables(database))
                column = random.choice(columns)
                match random.randrange(10):
                    case 0:
                        database.execute(f'drop table "{table}"')
                    case 1:
                        database.execute(f'alter table "{table}" drop column "{column}"')
                    case 2:
                        database.execute(f'insert into "{table}" select * from "{table}"')
                    case 3:
                        database.execute(f'delete from "{table}"')
                    case _:
                        _other_cell(database, table, column, random)
        return path.read_bytes()


def _other_cell(database: sqlite3.Connection, table: str, column: str, random: Random) -> None:
    row = database.execute(f'select rowid, "{column}" from "{table}" order by random() limit 1').fetchone()
    if row is None:
        return
    value: Any = mutation.plain(row[1], random)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        value = float(value)
    if not isinstance(value, int | float | bytes | str | None):
        value = repr(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    everywhere = "" if random.random() < 0.2 else " where rowid = ?"
    database.execute(
        f'update "{table}" set "{column}" = ?{everywhere}', (value, *([row[0]] if everywhere else []))
    )


# -- reading it --------------------------------------------------------------------------------------


def _run(data: bytes, folder: Path) -> None:
    trace, session = folder / "trace", folder / "session"
    trace.write_bytes(data)
    session.unlink(missing_ok=True)
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        status = _typed("import", str(trace), "-o", str(session))
        if session.exists() != (status == 0):
            raise AssertionError(f"exit status {status}, and a session: {session.exists()}")
        if status == 0:
            _typed(("explain", "stats")[zlib.crc32(data) % 2], str(session), "--json")


def _typed(*words: str) -> int:
    name, options = cli.parse(list(words))
    try:
        status = cli.dispatch(name, options)
    except GputopError:
        return 1
    if status not in _STATUS[words[0]]:
        raise AssertionError(f"exit status {status} of {words[0]}")
    return status


TARGET = Target(_seeds, _mutate, _run)
