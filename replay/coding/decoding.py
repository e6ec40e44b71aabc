"""Records from the body of a chunk; the body may be damaged or hostile (see encoding.py for the codings).

Nothing is allocated before its size is known to be no more than the chunk's declared count allows, and the
count is at most ``MAX_RECORDS``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.schema import RECORD, Records, empty
from replay.coding.file_format import MAX_RECORDS, inflate, unpack

Numbers = npt.NDArray[np.uint64]

_DTYPES: Final = {"|u1": 1, "<u2": 2, "<u4": 4, "<u8": 8}
_MAX_NODES: Final = 512
MAX_DEPTH: Final = 12


def decode_records(body: bytes, count: int) -> Records:
    """The records of a chunk.

    Raises:
        ValueError: the body is damaged.
    """
    if not 0 < count <= MAX_RECORDS:
        raise ValueError(f"a chunk of {count} records")
    columns = unpack(body)
    if not isinstance(columns, list):
        raise ValueError("not a list of columns")
    records = empty(count)
    tree = _Tree()
    for column in columns:
        if not (isinstance(column, list) and len(column) >= 3 and isinstance(column[0], str)):
            raise ValueError("not a column")
        name = column[0]
        known = name in RECORD.fields if RECORD.fields else False
        if known or name.startswith("#"):
            values = tree.numbers(column[2], count, 0)
            tree.columns[name] = values
            if known:
                records[name] = values
    return records


class _Tree:
    """Evaluates nodes; the number of them is bounded, however they are nested."""

    def __init__(self) -> None:
        self.columns: dict[str, Numbers] = {}
        self._nodes = 0

    def numbers(self, node: Any, count: int, depth: int) -> Numbers:
        """``count`` numbers.

        Raises:
            ValueError: no such coding, or its parts do not fit each other.
        """
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > MAX_DEPTH:
            raise ValueError("a column is nested too deeply")
        if isinstance(node, str):
            if node not in self.columns or len(self.columns[node]) != count:
                raise ValueError(f"no column {node[:20]!r}")
            return self.columns[node]
        match node:
            case ["const", int(value)]:
                return np.full(count, value % 2**64, np.uint64)
            case ["raw", str(dtype), bytes(data)]:
                return _from_bytes(dtype, data, count)
            case ["z", str(dtype), bytes(data)]:
                return _from_bytes(dtype, inflate(data, count * _DTYPES.get(dtype, 0)), count)
            case ["planes", list(planes)] if 0 < len(planes) <= 8:
                return self._planes(planes, count, depth)
            case ["sparse", int(filled), mask, values] if 0 < filled <= count:
                return self._sparse(filled, mask, values, count, depth)
            case ["dict", int(size), ids, values] if 0 < size <= MAX_RECORDS:
                table = self.numbers(values, size, depth + 1)
                rows = self.numbers(ids, count, depth + 1)
                if int(rows.max()) >= size:
                    raise ValueError("a number without an entry")
                return table[rows.view(np.int64)]
            case ["add", int(base), values]:
                result: Numbers = self.numbers(values, count, depth + 1) + np.uint64(base % 2**64)
                return result
            case ["delta", int(first), values]:
                result = np.cumsum(self.numbers(values, count, depth + 1), dtype=np.uint64)
                result += np.uint64(first % 2**64)
                return result
            case ["by", str(name), values]:
                key = self.columns.get(name, np.zeros(count, np.uint64))
                if len(key) != count:
                    raise ValueError("an order of another length")
                result = np.empty(count, np.uint64)
                result[np.argsort(key, kind="stable")] = self.numbers(values, count, depth + 1)
                return result
        raise ValueError("unknown coding")

    def _planes(self, planes: list[Any], count: int, depth: int) -> Numbers:
        result = np.zeros(count, np.uint64)
        for position, plane in enumerate(planes):
            result |= self.numbers(plane, count, depth + 1) << np.uint64(8 * position)
        return result

    def _sparse(self, filled: int, mask: Any, values: Any, count: int, depth: int) -> Numbers:
        packed = self.numbers(mask, (count + 7) // 8, depth + 1).astype(np.uint8)
        rows = np.flatnonzero(np.unpackbits(packed, count=count))
        if len(rows) != filled:
            raise ValueError("a mask with another number of rows")
        result = np.zeros(count, np.uint64)
        result[rows] = self.numbers(values, filled, depth + 1)
        return result


def _from_bytes(dtype: str, data: bytes, count: int) -> Numbers:
    if len(data) != count * _DTYPES.get(dtype, -1):
        raise ValueError("a column of another length")
    return np.frombuffer(data, dtype).astype(np.uint64)
