"""From an instruction to the line of the source that it belongs to, by the tables of each version."""

from __future__ import annotations

_NO_LINE = 128  # 3.10: -128 as a byte
_LONG, _NO_COLUMN, _NONE = 14, 13, 15  # 3.11: codes of an entry
_ONE_LINE = (10, 11, 12)
_MOST_BITS = 36  # of a step: no interpreter writes more
_MOST_LINES = 1 << 31


def line_at(table: bytes, first_line: int, offset: int, minor: int) -> int | None:
    """The line of the instruction ``offset`` bytes into the code; None when it has none.

    ``table`` is ``co_linetable`` or the beginning of it (see ``whole_entries``); ``minor`` is the version's.
    """
    if offset < 0:
        return None
    find = _pairs if minor == 10 else _locations
    line = find(table, first_line, offset)
    return line if line is not None and 0 < line < _MOST_LINES else None


def whole_entries(table: bytes, minor: int) -> bytes:
    """A table that was cut somewhere, without the entry that may be cut: what is left tells no wrong line."""
    place = len(table) & ~1 if minor == 10 else len(table)
    while minor != 10 and place > 0:
        place -= 1
        if table[place] & 0x80:
            break
    return table[:place]


def _pairs(table: bytes, line: int, offset: int) -> int | None:
    """3.10: pairs of (bytes of code, signed step of the line), without a line where the step is -128."""
    end = 0
    for place in range(0, len(table) - 1, 2):
        end += table[place]
        step = table[place + 1]
        if step != _NO_LINE:
            line += step - 256 if step > _NO_LINE else step
        if end > offset:
            return None if step == _NO_LINE else line
    return None


def _locations(table: bytes, line: int, offset: int) -> int | None:
    """3.11 and later: entries with a length in units of two bytes, and a code that says how lines go on."""
    place = end = 0
    while place < len(table):
        head = table[place]
        code = head >> 3 & 15
        end += 2 * ((head & 7) + 1)
        step = 0
        if code in (_LONG, _NO_COLUMN):
            step = _signed(table, place + 1)
        elif code in _ONE_LINE:
            step = code - _ONE_LINE[0]
        line += step
        if end > offset:
            return None if code == _NONE else line
        place += 1
        while place < len(table) and not table[place] & 0x80:
            place += 1
    return None


def _signed(table: bytes, place: int) -> int:
    value = shift = 0
    while place < len(table):
        byte = table[place]
        value |= (byte & 63) << shift
        shift += 6
        place += 1
        if not byte & 64 or shift >= _MOST_BITS:
            break
    return -(value >> 1) if value & 1 else value >> 1
