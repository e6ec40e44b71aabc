"""From an instruction to the line of the source that it belongs to, by the tables of each version."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_NO_LINE = 128  # 3.10: -128 as a byte
_LONG, _NO_COLUMN, _NONE = 14, 13, 15  # 3.11: codes of an entry
_ONE_LINE = (10, 11, 12)
_MOST_BITS = 36  # of a step: no interpreter writes more
_MOST_LINES = 1 << 31
_MOST_KEPT = 1024  # bytes of a table whose lines are kept: most have fewer


def line_at(table: bytes, first_line: int, offset: int, minor: int) -> int | None:
    """The line of the instruction ``offset`` bytes into the code; None when it has none.

    ``table`` is ``co_linetable`` or the beginning of it (see ``whole_entries``); ``minor`` is the version's.
    """
    if offset < 0:
        return None
    find = _found if len(table) > _MOST_KEPT else _kept
    return find(table, first_line, offset, minor)


def _found(table: bytes, first_line: int, offset: int, minor: int) -> int | None:
    find = _pairs if minor == 10 else _locations
    line = find(table, first_line, offset)
    return line if line is not None and 0 < line < _MOST_LINES else None


_kept = lru_cache(maxsize=4096)(_found)  # processes that are born from one another run the same code


def whole_entries(table: bytes, minor: int) -> bytes:
    """A cut table without the entry that may be incomplete: the rest has no wrong line."""
    place = len(table) & ~1 if minor == 10 else len(table)
    while minor != 10 and place > 0:
        place -= 1
        if table[place] & 0x80:
            break
    return table[:place]


def _pairs(table: bytes, line: int, offset: int) -> int | None:
    """3.10: pairs of (bytes of code, signed step of the line), without a line where the step is -128."""
    pairs = np.frombuffer(table, np.uint8, len(table) & ~1).reshape(-1, 2)
    row = int(np.searchsorted(np.cumsum(pairs[:, 0], dtype=np.int64), offset, side="right"))
    if row >= len(pairs) or pairs[row, 1] == _NO_LINE:
        return None
    steps = pairs[: row + 1, 1]
    return line + int(steps.view(np.int8)[steps != _NO_LINE].sum(dtype=np.int64))


def _locations(table: bytes, line: int, offset: int) -> int | None:
    """3.11 and later: entries with a length in units of two bytes, and a code for the change of the line.

    A table may have two hundred thousand entries, and each frame of a stack may need its end.
    """
    data = np.frombuffer(table, np.uint8)
    begins = np.flatnonzero(data & 0x80)
    if not len(begins) or begins[0]:
        # whatever it begins with
        begins = np.concatenate([np.zeros(1 if len(data) else 0, np.int64), begins])
    heads = data[begins]
    row = int(np.searchsorted(np.cumsum(2 * ((heads & 7) + 1), dtype=np.int64), offset, side="right"))
    if row >= len(heads):
        return None
    codes = heads[: row + 1] >> 3 & 15
    if codes[row] == _NONE:
        return None
    short = codes[(codes >= _ONE_LINE[0]) & (codes <= _ONE_LINE[-1])]
    long = begins[: row + 1][(codes == _LONG) | (codes == _NO_COLUMN)]
    steps = int(short.sum(dtype=np.int64)) - len(short) * _ONE_LINE[0]
    return line + steps + _signed_sum(data, long + 1)


def _signed_sum(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> int:
    """The sum of the steps that begin at these places: six bits a byte, the lowest first, then the sign's."""
    values, shift = np.zeros(len(places), np.int64), 0
    going = np.arange(len(places))
    while len(going) and shift < _MOST_BITS:
        going = going[places[going] < len(data)]
        parts = data[places[going]]
        values[going] |= (parts & 63).astype(np.int64) << shift
        going = going[parts & 64 != 0]
        places = places + 1
        shift += 6
    halves = values >> 1
    return int(np.where(values & 1, -halves, halves).sum())
