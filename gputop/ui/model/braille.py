"""Graphs of one or more lines: two values per column in braille, their maximum in ASCII.

Zero has the lowest dot, so that it differs from unknown: a glyph at the bottom if both values of a column
are.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from gputop.format import SPARKS_ASCII
from gputop.ui.model.look import Glyphs, Span

Floats = npt.NDArray[np.float64]
_BLANK = 0x2800
_LEFT = np.array([0, 0x40, 0x44, 0x46, 0x47])  # by the number of dots from the bottom
_RIGHT = np.array([0, 0x80, 0xA0, 0xB0, 0xB8])
_DOTS = 4
PER_COLUMN = 2


def graph(values: Floats, height: int, glyphs: Glyphs) -> list[str]:
    """Return the lines of a graph, the top first.

    Args:
        values: ``PER_COLUMN`` per column, 0 to 1, the oldest first; NaN: unknown.
        height: The number of lines.
        glyphs: The screen's glyphs.
    """
    pairs = values.reshape(-1, PER_COLUMN)
    nothing = np.asarray(np.isnan(pairs).all(axis=1))
    if glyphs.ascii:
        return _ascii(pairs, nothing, height)
    levels = _levels(values, height * _DOTS).reshape(-1, PER_COLUMN)
    lines = []
    for row in range(height - 1, -1, -1):
        dots = np.clip(levels - row * _DOTS, 0, _DOTS)
        codes = _BLANK + _LEFT[dots[:, 0]] + _RIGHT[dots[:, 1]]
        blank = ord(glyphs.dot) if row == 0 else ord(" ")
        codes = np.where(nothing, blank, np.where(codes == _BLANK, ord(" "), codes))
        lines.append("".join(map(chr, codes.tolist())))
    return lines


def _levels(values: Floats, most: int) -> npt.NDArray[np.int64]:
    """Return the height of each value in dots: 0 only for unknown."""
    known = np.nan_to_num(np.clip(values, 0.0, 1.0))
    levels = np.clip(np.ceil(known * most - 1e-9), 1, most)
    return np.where(np.isnan(values), 0, levels).astype(np.int64)


def _ascii(pairs: Floats, nothing: npt.NDArray[np.bool_], height: int) -> list[str]:
    """Draw the maximum of each column's values."""
    higher = np.where(nothing, np.nan, np.nan_to_num(pairs, nan=-1.0).max(axis=1))
    steps = len(SPARKS_ASCII) - 1
    levels = _levels(higher, height * steps)
    lines = []
    for row in range(height - 1, -1, -1):
        within = np.clip(levels - row * steps, 0, steps).tolist()
        unknown = "?" if row == 0 else " "
        cells = zip(within, nothing.tolist(), strict=True)
        lines.append("".join(unknown if none else SPARKS_ASCII[level] for level, none in cells))
    return lines


def graph_spans(drawn: str, token: str, glyphs: Glyphs) -> list[Span]:
    """Return a line of a graph as spans, unknown columns in a faint token."""
    sign = "?" if glyphs.ascii else glyphs.dot
    return [
        ("".join(part), "faint" if nothing else token)
        for nothing, part in groupby(drawn, key=lambda char: char == sign)
    ]
