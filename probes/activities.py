"""Samples of kind ``activity``: measurements beside calls, as columns of bytes.

An imported file holds a million of them, so their numbers are stored as arrays and not one by one.
Begins are stored as differences, ends as durations, the causing call as how long before it that began:
these are small, and zlib finds repeats in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.source import ACTIVITY, Sample

# kinds of the GPU's own activities; of a graph only the whole is known
KERNEL: Final = "kernel"
COPY: Final = "copy"
FILL: Final = "fill"
GRAPH: Final = "graph"
ON_GPU: Final = frozenset({KERNEL, COPY, FILL, GRAPH})
# of one activity; -1 where it is not known, but 0 of ``shape`` and ``stack``
FIELDS: Final = (
    "begin",
    "end",
    "pid",
    "tid",
    "device",
    "stream",
    "bytes",
    "call_begin",
    "call_tid",
    "direction",
    "memory",
    "graph",
    "shape",
    "stack",
)
TEXTS: Final = ("what", "name", "detail")  # places in the texts of a sample
TABLE: Final = np.dtype([(name, "<i8") for name in FIELDS] + [(name, "<i4") for name in TEXTS])
_MOST_ROWS: Final = 8_000  # of one sample, whose size is bounded
_MOST_TEXT: Final = 200_000  # characters of its texts, which may have four bytes each
_UNKNOWN: Final = {name: 0 if name in ("shape", "stack") else -1 for name in FIELDS}
_WIDTHS: Final = (1, 2, 4, 8)

_PYTHON: Final = re.compile(r"(.+\.pyx?)\((\d{1,9})\): (.+)", re.DOTALL)

Table = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


MOST_GPUS = 1024  # of a file: each has its own proofs, and those of a hundred thousand would need hours
NO_SUCH_GPU = f"a recording has {MOST_GPUS:,} at most, numbered from 0"


def python_place(name: str) -> tuple[str, int, str] | None:
    """(file, line, function) of a function of Python as activities are called: ``a/b.py(12): step``."""
    found = _PYTHON.fullmatch(name)
    return (found[1], int(found[2]), found[3]) if found else None


def unknown_rows(count: int) -> Table:
    """Rows of which nothing is known yet."""
    rows = np.zeros(count, TABLE)
    for name, value in _UNKNOWN.items():
        rows[name] = value
    return rows


def activity_samples(rows: Table, texts: Sequence[str], time_ns: int) -> Iterator[Sample]:
    """Any number of rows as samples, none of which is too large to be stored; as ``activity_sample``."""
    for first in range(0, len(rows), _MOST_ROWS):
        part = rows[first : first + _MOST_ROWS]
        used = np.unique(np.stack([part[name] for name in TEXTS]))
        if len(part) > 1 and sum(len(texts[place]) for place in used.tolist()) > _MOST_TEXT:
            for half in (part[: len(part) // 2], part[len(part) // 2 :]):
                yield from activity_samples(half, texts, time_ns)
        else:
            yield activity_sample(part, texts, time_ns)


def activity_sample(rows: Table, texts: Sequence[str], time_ns: int) -> Sample:
    """Rows as a sample.

    Args:
        rows: dtype ``TABLE``; ``what``, ``name`` and ``detail`` are places in ``texts``.
        texts: Of these rows, or of many more: those of other rows are left out.
        time_ns: The moment of their report.
    """
    used, places = np.unique(np.stack([rows[name] for name in TEXTS]), return_inverse=True)
    numbers = {name: rows[name] for name in FIELDS}
    numbers["end"] = rows["end"] - rows["begin"]
    known = rows["call_tid"] >= 0
    numbers["call_begin"] = np.where(known, rows["begin"] - rows["call_begin"], 0)
    numbers.update(zip(TEXTS, places.reshape(len(TEXTS), -1), strict=True))
    columns: dict[str, int | bytes] = {name: _packed(values) for name, values in numbers.items()}
    # always eight bytes a row: a sample holds no more rows than it is large
    columns["begin"] = np.diff(rows["begin"], prepend=0).astype("<i8").tobytes()
    return Sample(ACTIVITY, time_ns, {"columns": columns, "texts": [texts[place] for place in used.tolist()]})


def _packed(values: Ints) -> int | bytes:
    """One number where all are the same, else as few bytes for each as they need."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if low == high:
        return low
    width = next(one for one in _WIDTHS if -(1 << 8 * one - 1) <= low and high < 1 << 8 * one - 1)
    return values.astype(f"<i{width}").tobytes()


def activity_rows(data: Mapping[str, Any]) -> tuple[Table, list[str]]:
    """(rows of dtype ``TABLE``, their texts) of a sample, also of one from an older gputop.

    Raises:
        ValueError: It is damaged.
        TypeError, KeyError, OverflowError: Likewise.
    """
    texts = [str(text) for text in data["texts"]]
    if "columns" not in data:
        return _of_lists(data), texts
    columns = data["columns"]
    begin = np.frombuffer(columns["begin"], "<i8")
    rows = unknown_rows(len(begin))
    for name in (*FIELDS[1:], *TEXTS):
        if name in columns:
            rows[name] = _unpacked(columns[name], len(begin))
    rows["begin"] = np.cumsum(begin)
    rows["end"] += rows["begin"]
    rows["call_begin"] = np.where(rows["call_tid"] >= 0, rows["begin"] - rows["call_begin"], -1)
    return _checked(rows, len(texts)), texts


def _unpacked(column: Any, count: int) -> Any:
    if not isinstance(column, bytes):
        return int(column)
    width, rest = divmod(len(column), max(count, 1))
    if rest or width not in _WIDTHS:
        raise ValueError("a column of an activity sample has another length than the others")
    return np.frombuffer(column, f"<i{width}")


def _of_lists(data: Mapping[str, Any]) -> Table:
    """A list for each column, as it was before."""
    rows = unknown_rows(len(data["begin"]))
    for name in (*FIELDS, *TEXTS):
        if name in data:
            rows[name] = data[name]
    if "detail" not in data and len(rows):
        rows["detail"] = rows["name"]  # none: a text must be named
    return _checked(rows, len(data["texts"]))


def _checked(rows: Table, texts: int) -> Table:
    for name in TEXTS:
        if len(rows) and not 0 <= int(rows[name].min()) <= int(rows[name].max()) < texts:
            raise ValueError("an activity names a text that is not there")
    if len(rows) and int(rows["device"].max()) >= MOST_GPUS:
        raise ValueError(f"an activity names GPU {int(rows['device'].max())}: {NO_SUCH_GPU}")
    return rows
