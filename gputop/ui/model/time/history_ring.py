"""A bounded ring of samples: what frames said of the last minutes, in bins of time that never move.

``put(time_ns, values)`` with each frame, ``cells(end_ns, count, cell_ns)`` for a graph. A bin keeps what was
said of it last, so that playing the same seconds again changes nothing; what was seen before a jump is there
again behind a jump back, and nothing is drawn of what comes after the moment that is shown.
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
    """Some figures over time; one that is not known is NaN."""

    def __init__(self, rows: int, kept: int) -> None:
        """Start empty.

        Args:
            kept: Bins of ``BIN_NS`` that are kept.
        """
        self._kept = kept
        self._values = np.full((kept, rows), np.nan, np.float32)
        self._number = np.full(kept, -1, np.int64)  # which bin a slot holds
        self.oldest_ns: int | None = None  # the earliest moment that something was put of

    def put(
        self, time_ns: int, values: Sequence[float | None], hold_ns: int, before_ns: int | None = None
    ) -> bool:
        """What is said at a moment; the bins since the one before have it too, if that is not too long ago.

        Args:
            time_ns: The moment, CLOCK_MONOTONIC.
            values: One a row, None for one that is not known.
            hold_ns: How far apart two moments are at most, unless something is missing between them.
            before_ns: The moment before it; None where there was none.

        Returns:
            Whether nothing is missing between the two moments.
        """
        last = time_ns // BIN_NS
        follows = before_ns is not None and 0 <= time_ns - before_ns <= hold_ns
        first = before_ns // BIN_NS + 1 if follows and before_ns is not None else last
        numbers = np.arange(max(min(first, last), last - self._kept + 1), last + 1)
        slots = numbers % self._kept
        self._values[slots] = [np.nan if value is None else value for value in values]
        self._number[slots] = numbers
        self.oldest_ns = time_ns if self.oldest_ns is None else min(self.oldest_ns, time_ns)
        return follows

    def fill(self, row: int, end_ns: int, step_ns: int, values: Sequence[float | None]) -> None:
        """What was said before a moment, where nothing is known of a row yet.

        Args:
            row: The figure.
            end_ns: The moment of the newest value.
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
        """Nothing is known of a row any more: it will hold something else."""
        self._values[:, row] = np.nan

    def cells(self, end_ns: int, count: int, cell_ns: int) -> Values:
        """Means over cells of time, the last of which holds a moment.

        Args:
            end_ns: The moment; later bins are left out.
            cell_ns: Time in each, a multiple of ``BIN_NS``: its edges stay where they are as time goes on.

        Returns:
            ``[rows, count]``, NaN where nothing is known.
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


# Which frames a history has taken: those that are shown, and beside them the present while time is held.


class SeenFrames:
    """The last frame of each of two streams that go on by themselves: what is shown, and the present."""

    def __init__(self) -> None:
        self._last: dict[bool, Frame] = {}

    def before(self, frame: Frame, *, present: bool) -> tuple[bool, int | None]:
        """Note a frame: whether it is new to the history, and the time of the one before it in its stream.

        Args:
            present: True if it is of the present rather than the one that is shown.
        """
        last = self._last.get(present)
        new = all(frame is not one for one in self._last.values())
        self._last[present] = frame
        return new, last.time_ns if last is not None else None
