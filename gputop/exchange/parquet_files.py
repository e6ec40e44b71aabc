"""Tables as Parquet, one file each: for DuckDB, pandas, Polars, Spark."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from gputop.documents.field_columns import TEXT
from gputop.errors import GputopError, install_command
from gputop.exchange.session_tables import COLUMNS, VERSION, Rows
from gputop.format import escape_text

_GROUP = 1 << 17  # rows of a row group
_DELTA = ("start_ns", "time_ns")  # grow slowly
_SPLIT = ("duration_ns", "runnable_ns")  # whose low bytes are noise
_REPEATED = (
    *("api", "layer", "stream", "syscall", "name", "command", "file", "function", "cause", "title", "level"),
    *("gpu", "uuid"),
)


class ParquetFile:
    """One table, with the encodings that were smallest for gputop's columns: 3 to 4 bytes a call."""

    def __init__(self, table: str, file: BinaryIO) -> None:
        """Begin a file.

        Raises:
            GputopError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise GputopError(
                f"pyarrow is not installed: {install_command('exchange')}, or use --to csv"
            ) from error
        self._pa = pa
        columns = COLUMNS[table]
        kinds = {"int64": pa.int64(), "double": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
        about = {"gputop.table": table, "gputop.version": str(VERSION)}
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata=about)
        encodings = {name: "DELTA_BINARY_PACKED" for name in columns if name in _DELTA}
        encodings |= {name: "BYTE_STREAM_SPLIT" for name in columns if name in _SPLIT}
        self._writer = parquet.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in columns if name in _REPEATED],
            column_encoding=encodings,
        )
        self._held: list[Any] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Add rows, which are written once they fill a row group."""
        arrays = [self._array(rows.columns[field.name], field) for field in self._schema]
        batch = self._pa.record_batch(arrays, schema=self._schema)
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def let_go(self) -> None:
        """Discard an unfinished file, while it can still be written."""
        if self._writer.is_open:
            with suppress(OSError, ValueError, self._pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False  # else it tries again when it is collected, and complains

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_batches(self._held), row_group_size=_GROUP)
        self._held, self._rows = [], 0

    def _array(self, values: Any, field: Any) -> Any:
        if not isinstance(values, np.ndarray) and str(field.type) == TEXT:
            values = [None if value is None else escape_text(value) for value in values]
        return self._pa.array(values, type=field.type)
