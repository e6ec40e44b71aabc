"""Exports a recording in a format of another tool."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Final

from gputop.api.reading import SILENT, Progress
from gputop.api.session import Session
from gputop.exchange.csv_files import CsvFile
from gputop.exchange.parquet_files import ParquetFile
from gputop.exchange.perfetto import write_perfetto
from gputop.exchange.session_tables import COLUMNS, tables
from gputop.exchange.speedscope import write_speedscope
from gputop.files.output_files import new_file, new_folder


@dataclass(frozen=True, slots=True)
class Format:
    """An output format."""

    opened_by: str  # how to open it, with ``{}`` for the output's path
    # writes the file; None: a folder with a file for each table
    write: Callable[[Session, BinaryIO, Progress], None] | None = None


FORMATS: Final = {
    "perfetto": Format("open it at ui.perfetto.dev, which reads it on your machine", write_perfetto),
    "parquet": Format("a file for each table: duckdb -c \"FROM '{}/findings.parquet'\""),
    "csv": Format("a file for each table"),
    "speedscope": Format("open it at speedscope.app, which reads it on your machine", write_speedscope),
}


def export(session: Session, path: str, to: str, progress: Progress = SILENT, *, force: bool = False) -> None:
    """Write a file, or for tables a folder of files.

    Args:
        to: One of ``FORMATS``.
        force: Replace an existing output, once the new one is complete.

    Raises:
        GputopError: It cannot be read or written, or a package of the format is not installed.
    """
    if (write := FORMATS[to].write) is not None:
        with new_file(path, force=force) as file:
            write(session, file, progress)
    else:
        _tables(session, path, to, progress, force=force)


def _tables(session: Session, path: str, to: str, progress: Progress, *, force: bool) -> None:
    kind = ParquetFile if to == "parquet" else CsvFile
    with new_folder(path, force=force, ending=f".{to}") as folder, ExitStack() as stack:
        files: dict[str, CsvFile | ParquetFile] = {}
        for table in COLUMNS:
            files[table] = kind(table, stack.enter_context(new_file(os.path.join(folder, f"{table}.{to}"))))
            stack.callback(files[table].let_go)
        for rows in tables(session, progress):
            files[rows.table].add(rows)
        for one in files.values():
            one.close()
