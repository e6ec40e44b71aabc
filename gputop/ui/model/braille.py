"""Graphs of one or more lines: two values a column in braille, one a column in ASCII.

``graph(values, height, glyphs)`` takes values of 0 to 1 (NaN: not known), two a column, and returns
``height`` strings of ``len(values) // 2`` columns, the top first. Zero has the lowest dot, so that it differs
from what is not known: a dot at the bottom where neither value of a column is.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from gputop.format import SPARKS_ASCII
from gputop.ui.model.look import Glyphs, Span

Floats = npt.NDArray[np.float64]
_BLANK = 0x2800
_LEFT = np.array([0, 0x40, 0x44, 0x46, 0x47])  # filled from the bottom to so many dots
_RIGHT = np.array([0, 0x80, 0xA0, 0xB0, 0xB8])
_DOTS = 4
PER_COLUMN = 2


def graph(values: Floats, height: int, glyphs: Glyphs) -> list[str]:
    """The lines of a graph.

    Args:
        values: 0 to 1, an even number of them, the oldest first; NaN where nothing is known.
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
    """How many dots high each value is: 0 only where it is not known."""
    known = np.nan_to_num(np.clip(values, 0.0, 1.0))
    levels = np.clip(np.ceil(known * most - 1e-9), 1, most)
    return np.where(np.isnan(values), 0, levels).astype(np.int64)


def _ascii(pairs: Floats, nothing: npt.NDArray[np.bool_], height: int) -> list[str]:
    """The higher of the two values of each column."""
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
    """One line of a graph in its token, what is not known in a faint one."""
    sign = "?" if glyphs.ascii else glyphs.dot
    return [
        ("".join(part), "faint" if nothing else token)
        for nothing, part in groupby(drawn, key=lambda char: char == sign)
    ]
