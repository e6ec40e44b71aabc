"""The folder of a lake: pieces that appear whole or not at all, and a lock for who adds to it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from gputop.ask.database import LockedDatabase
from gputop.errors import GputopError
from gputop.files.output import new_file, new_folder
from gputop.fleet.tables import COLUMNS, INT, REAL, TEXT, Row, write_table

PIECE, UNFINISHED = "piece-", ".unfinished-"
_TYPES = {INT: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR"}


@contextmanager
def adding_to(lake: str) -> Iterator[None]:
    """Makes the folder if it is not there, and holds it, so that no other run adds to it.

    Raises:
        GputopError: It cannot be made, is no folder, or another run adds to it.
    """
    if not os.path.lexists(lake):
        with new_folder(lake):
            pass
    try:
        held = os.open(lake, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise GputopError(f"{lake} cannot be used as a lake: {error.strerror}; choose a folder") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise GputopError(f"another run adds to {lake}: wait until it has ended") from error
        for name in os.listdir(lake):  # of a run that was killed
            if name.startswith(UNFINISHED):
                shutil.rmtree(os.path.join(lake, name))
        yield
    finally:
        os.close(held)


def add_piece(lake: str, rows: Mapping[str, Sequence[Row]]) -> None:
    """Adds rows to all tables at once.

    Raises:
        GputopError: It cannot be written.
    """
    name = uuid4().hex
    folder = os.path.join(lake, UNFINISHED + name)
    try:
        with new_folder(folder):
            for table in COLUMNS:
                with new_file(os.path.join(folder, f"{table}.parquet")) as file:
                    write_table(table, rows[table], file)
        os.rename(folder, os.path.join(lake, PIECE + name))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def open_lake(lake: str) -> LockedDatabase:
    """The tables of a lake, to be asked.

    Raises:
        GputopError: It is no lake, is damaged, or duckdb is not installed.
    """
    pieces = _pieces(lake)

    def fill(connection: Any) -> None:
        for table, columns in COLUMNS.items():
            made = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in columns.items())
            connection.execute(f'CREATE TABLE "{table}" ({made})')
            if pieces:
                files = [os.path.join(piece, f"{table}.parquet") for piece in pieces]
                names = ", ".join(f'"{name}"' for name in columns)
                connection.execute(f'INSERT INTO "{table}" SELECT {names} FROM read_parquet(?)', [files])

    return LockedDatabase(fill)


def known_in(lake: str) -> frozenset[str]:
    """Hashes of what the lake holds already, what cannot be explained included."""
    if not _pieces(lake):
        return frozenset()
    database = open_lake(lake)
    try:
        text = "SELECT session_id FROM sessions UNION SELECT session_id FROM problems"
        return frozenset(row[0] for row in database.query(text, 1 << 31, 600).rows if row[0])
    finally:
        database.close()


def _pieces(lake: str) -> list[str]:
    try:
        names = sorted(os.listdir(lake))
    except OSError as error:
        raise GputopError(
            f"{lake} cannot be read: {error.strerror}; gputop fleet ingest makes a lake"
        ) from error
    return [os.path.join(lake, name) for name in names if name.startswith(PIECE)]
