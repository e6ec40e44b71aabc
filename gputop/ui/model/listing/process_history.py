"""Each process's calls per second over the last minute, as a sparkline of ``WIDTH`` columns."""

from __future__ import annotations

import math

import numpy as np

from gputop.engine.frame import Frame, ProcessRow
from gputop.format import NS_PER_S, SPARKS, SPARKS_ASCII
from gputop.ui.model.look import Glyphs, Span
from gputop.ui.model.table import Column, Context
from gputop.ui.model.time.history_ring import BIN_NS, HistoryRing, SeenFrames, Values

WIDTH = 10
SPAN_NS = 60 * NS_PER_S
MOST = 256  # processes; of more, those with the fewest calls have no sparkline
_KEPT_NS = 2 * SPAN_NS  # so that a minute is left after a jump back by another
_CELL_NS = SPAN_NS // WIDTH
_HOLD = 2.5  # frames: a longer distance of two frames is a gap


class ProcessHistory:
    """Calls per second of each process over the last two minutes."""

    def __init__(self) -> None:
        self._ring = HistoryRing(MOST, _KEPT_NS // BIN_NS)
        self._rows: dict[int, int] = {}  # by pid
        self._seen: dict[int, int] = {}  # by pid: the newest frame with it
        self._frames = SeenFrames()
        self._drawn: tuple[int, dict[int, int], Values] | None = None  # second, rows by pid

    def append(self, frame: Frame, *, present: bool = False) -> None:
        """Add a frame with calls, unless it is known.

        Args:
            frame: The frame.
            present: True for the newest frame, while another moment is shown.
        """
        new, before_ns = self._frames.before(frame, present=present)
        if not new or not frame.calls_observed:
            return
        processes = sorted(frame.processes, key=lambda row: -row.calls_per_second)[:MOST]
        self._make_room({row.pid for row in processes})
        values = np.full(MOST, np.nan)
        for row in processes:
            values[self._row(row.pid)] = row.calls_per_second
            self._seen[row.pid] = frame.time_ns
        hold_ns = _HOLD * NS_PER_S / frame.rate_hz if frame.rate_hz > 0 else 0
        self._ring.put(frame.time_ns, values, int(hold_ns), before_ns)

    def _make_room(self, wanted: set[int]) -> None:
        """Drop the processes absent for longest, so that each new one has a row."""
        new = len(wanted - self._rows.keys())
        gone = sorted(self._rows.keys() - wanted, key=lambda pid: self._seen[pid])
        for pid in gone[: max(len(self._rows) + new - MOST, 0)]:
            self._ring.forget(self._rows.pop(pid))
            del self._seen[pid]

    def _row(self, pid: int) -> int:
        if pid not in self._rows:
            used = set(self._rows.values())
            self._rows[pid] = next(row for row in range(MOST) if row not in used)
        return self._rows[pid]

    def spark(self, row: ProcessRow, time_ns: int, glyphs: Glyphs) -> str:
        """Return a process's last minute, scaled to its maximum: blank for none, a dot for unknown.

        Args:
            row: The process; before its start it made no calls.
            time_ns: The end of the minute.
            glyphs: The screen's glyphs.
        """
        second = time_ns // NS_PER_S  # drawn once a second, since a cell spans several
        if self._drawn is None or self._drawn[0] != second or row.pid not in self._drawn[1]:
            self._drawn = second, dict(self._rows), self._ring.cells(time_ns, WIDTH, _CELL_NS)
        place = self._drawn[1].get(row.pid)
        values = self._drawn[2][place].tolist() if place is not None else [math.nan] * WIDTH
        signs, unknown = (SPARKS_ASCII, "?") if glyphs.ascii else (SPARKS, glyphs.dot)
        most = max((value for value in values if not math.isnan(value)), default=0.0)
        born = WIDTH - 1 - (time_ns // _CELL_NS - row.start_ns // _CELL_NS)
        drawn = []
        for cell, value in enumerate(values):
            if math.isnan(value):
                drawn.append(" " if cell < born else unknown)
            else:
                drawn.append(signs[math.ceil(value / most * (len(signs) - 1)) if most else 0])
        return "".join(drawn)


def spark_column(history: ProcessHistory) -> Column[ProcessRow]:
    """Return the column of the process table, sorted by calls per second."""

    def cell(row: ProcessRow, context: Context, _width: int) -> Span:
        if not context.traced:
            return "-", "unknown"
        return history.spark(row, context.time_ns, context.glyphs), "busy" if row.exited_ns is None else ""

    return Column("spark", "1 min", WIDTH, cell, lambda row: row.calls_per_second, right=False, keep=30)
