"""A bounded ring of the figures of the last minutes, in fixed bins of time.

A bin keeps its newest figures, so that playing the same seconds again changes nothing; after a jump back,
earlier figures are still there, and later ones are not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gputop.engine.frame import Frame
from gputop.format import NS_PER_S

BIN_NS = NS_PER_S // 4
Values = npt.NDArray[np.float64]


def share_of(value: float | None, whole: float | None) -> float | None:
    """Return a value as a share of the whole; None: unknown."""
    return value / whole if value is not None and whole else None


class HistoryRing:
    """Figures over time; NaN: unknown."""

    def __init__(self, rows: int, kept: int) -> None:
        """Create an empty ring of ``kept`` bins of ``BIN_NS`` with ``rows`` figures each."""
        self._kept = kept
        self._values = np.full((kept, rows), np.nan, np.float32)
        self._number = np.full(kept, -1, np.int64)  # which bin a slot holds
        self.oldest_ns: int | None = None  # the earliest time of any figure

    def put(
        self,
        time_ns: int,
        values: Sequence[float | None] | Values,
        hold_ns: int,
        before_ns: int | None = None,
    ) -> bool:
        """Store figures, also in the bins since the time before, unless there is a gap.

        Args:
            time_ns: The time, CLOCK_MONOTONIC.
            values: One per row; None and NaN: unknown.
            hold_ns: The largest distance of two times without a gap.
            before_ns: The time before, if any.

        Returns:
            False after a gap.
        """
        last = time_ns // BIN_NS
        follows = before_ns is not None and 0 <= time_ns - before_ns <= hold_ns
        first = before_ns // BIN_NS + 1 if follows and before_ns is not None else last
        numbers = np.arange(max(min(first, last), last - self._kept + 1), last + 1)
        slots = numbers % self._kept
        self._values[slots] = np.asarray(values, np.float64)  # None becomes NaN
        self._number[slots] = numbers
        self.oldest_ns = time_ns if self.oldest_ns is None else min(self.oldest_ns, time_ns)
        return follows

    def fill(self, row: int, end_ns: int, step_ns: int, values: Sequence[float | None]) -> None:
        """Store earlier figures of a row, where they are unknown.

        Args:
            row: The row.
            end_ns: The time of the newest value.
            step_ns: From one value to the next.
            values: The oldest first.
        """
        count = min(len(values), (self._kept - 1) * BIN_NS // step_ns)
        if not count:
            return
        begin_ns = end_ns - (count - 1) * step_ns
        first_ns = (begin_ns + at * step_ns for at, value in enumerate(values[-count:]) if value is not None)
        oldest_ns = next(first_ns, end_ns)
        self.oldest_ns = oldest_ns if self.oldest_ns is None else min(self.oldest_ns, oldest_ns)
        numbers = np.arange(max(begin_ns // BIN_NS, 0), end_ns // BIN_NS + 1)
        at = np.clip(((numbers + 1) * BIN_NS - 1 - begin_ns) // step_ns, 0, count - 1)
        fresh = np.array([np.nan if value is None else value for value in values[-count:]])[at]
        slots = numbers % self._kept
        other = self._number[slots] != numbers
        self._values[slots[other]] = np.nan
        self._number[slots] = numbers
        old = self._values[slots, row]
        self._values[slots, row] = np.where(np.isnan(old), fresh, old)

    def forget(self, row: int) -> None:
        """Clear a row, for another figure."""
        self._values[:, row] = np.nan

    def cells(self, end_ns: int, count: int, cell_ns: int) -> Values:
        """Return means over cells of time, ``[rows, count]``; NaN: unknown.

        Args:
            end_ns: A time in the last cell; later bins are left out.
            count: The number of cells.
            cell_ns: The time of each, a multiple of ``BIN_NS``; its edges are fixed.
        """
        group = cell_ns // BIN_NS
        first = (end_ns // cell_ns - count + 1) * group
        numbers = np.arange(first, first + count * group)
        slots = numbers % self._kept
        known = (self._number[slots] == numbers) & (numbers <= end_ns // BIN_NS)
        values = np.where(known[:, None], self._values[slots], np.nan).astype(np.float64)
        parts = values.reshape(count, group, -1)
        there = ~np.isnan(parts)
        sums, seen = np.where(there, parts, 0.0).sum(axis=1), there.sum(axis=1)
        means: Values = np.where(seen > 0, sums / np.maximum(seen, 1), np.nan).T
        return means


class SeenFrames:
    """The last frame of each of two streams: the shown frames, and the newest ones while paused."""

    def __init__(self) -> None:
        self._last: dict[bool, Frame] = {}

    def before(self, frame: Frame, *, present: bool) -> tuple[bool, int | None]:
        """Note a frame; return whether it is new, and the time of the frame before it in its stream.

        Args:
            frame: The frame.
            present: True for the newest frame, while another one is shown.
        """
        last = self._last.get(present)
        new = all(frame is not one for one in self._last.values())
        self._last[present] = frame
        return new, last.time_ns if last is not None else None
