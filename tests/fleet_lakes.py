"""What is in a lake, as rows that can be compared; programs of Dask as a cluster has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputop.documents.field_columns import INT, REAL, TEXT
from gputop.fleet.lake.lake import OLD_PIECE, open_lake
from gputop.fleet.lake.lake_tables import COLUMNS, NEW
from tests.conftest import needed

_SECONDS = 60


def asked(lake: str | Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    database = open_lake(str(lake))
    try:
        return list(database.query(query, 10_000, _SECONDS).rows)
    finally:
        database.close()


def content(lake: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, in no order of time."""
    return {table: asked(lake, f"SELECT * FROM {table} ORDER BY ALL") for table in COLUMNS}


def as_before(lake: str | Path, old: Path, tables: Iterable[str] = tuple(COLUMNS)) -> None:
    """Writes the rows of a lake as gputops of lakes of version 2 did, and 1, which knew fewer tables."""
    pa, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    kinds = {INT: pa.int64(), REAL: pa.float64(), TEXT: pa.string()}
    folder = old / f"{OLD_PIECE}{1:032x}"
    folder.mkdir(parents=True)
    for table in tables:
        columns = COLUMNS[table]
        names = [name for name in columns if (table, name) not in NEW]
        rows = [dict(zip(columns, row, strict=True)) for row in asked(lake, f"SELECT * FROM {table}")]
        schema = pa.schema([(name, kinds[columns[name]]) for name in names])
        made = pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema)
        parquet.write_table(made, folder / f"{table}.parquet")


@contextmanager
def scheduler(**env: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler of Dask as a process, with these variables: its address, and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-dashboard",
        "--dashboard-address",
        "127.0.0.1:0",
    ]
    with _running("scheduler", words, env) as process:
        yield f"tcp://127.0.0.1:{port}", process


@contextmanager
def worker(address: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of that scheduler as a process, which nobody starts again."""
    alone = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    with _running("worker", [address, "--host", "127.0.0.1", *alone, *words], {}) as process:
        yield process


@contextmanager
def _running(what: str, words: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "distributed.cli.dask_" + what, *words]
    path = os.pathsep.join(folder for folder in sys.path if folder)
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, **env},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
