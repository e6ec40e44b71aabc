"""The timeline: lanes of the GPUs and of threads in blocks of colour, on one axis that ends now.

``TimeBlocks.append(explained)`` adds each explanation; ``picture(width, height, subjects, now_ns, look)``
draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputop.analysis.answer.picture import COLUMN_NS, SKIPPED, WHOLE
from gputop.format import NS_PER_S, fit, format_percent
from gputop.playback.feed import Explained
from gputop.ui.model.answer.why import idle_of
from gputop.ui.model.answer.whylines import range_text
from gputop.ui.model.look import Line, Span, line_width
from gputop.ui.model.time import blocklanes
from gputop.ui.model.time.blocklanes import Look, Sign
from gputop.ui.model.time.lanehistory import MARKS, Cells, LaneHistory

SPANS_S = (10, 60, 300)
_STEPS_S = (1, 2, 5, 10, 20, 60, 120)  # between two times on the axis
_MOST_TICKS = 6
_NOW = " now"
_FIGURE = 14  # columns of the figure after a lane
_LEGEND_LINES = 2
_LEAST_LINES = 4  # beside the GPUs' lanes: the thread, its calls, the axis, a line of the legend
_BETWEEN = "  "  # between two entries of the legend
_EARLY_NS = 2 * NS_PER_S  # lanes that begin so long after a moment are not shown


@dataclass(frozen=True, slots=True)
class Subject:
    """A thread with a lane; ``gpus`` are those of its process, by NVML's indices."""

    tid: int
    name: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VisibleColumns:
    """The visible time: ``count`` cells of ``group`` columns from ``first`` on, drawn from ``left`` on.

    In a short session a cell is drawn ``repeat`` columns wide.
    """

    first: int
    count: int
    group: int
    left: int
    repeat: int = 1

    @property
    def span_ns(self) -> int:
        """The visible time."""
        return self.count * self.group * COLUMN_NS

    def moment_ns(self, x: int) -> int | None:
        """Return the time of the middle of a drawn cell, CLOCK_MONOTONIC; None beside the lanes."""
        cell = (x - self.left) // self.repeat
        if not 0 <= cell < self.count:
            return None
        return (2 * (self.first + cell * self.group) + self.group) * COLUMN_NS // 2

    def cell_of(self, time_ns: int) -> int:
        """Return the cell of a time; it may be out of sight."""
        return (time_ns // COLUMN_NS - self.first) // self.group


@dataclass(frozen=True, slots=True)
class Picture:
    """The drawn timeline: its lines, the visible time, and the number of GPUs without room."""

    lines: tuple[Line, ...]
    view: VisibleColumns
    hidden: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line with its place from the top; in a low pane, the highest ranks are left out first."""

    place: tuple[int, int]
    rank: int
    line: Line
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class _Lane:
    """A lane with its signs up to the end of the newest explanation."""

    place: tuple[int, int]
    rank: int
    name: str
    signs: list[Sign]
    figure: str


class TimeBlocks:
    """The lanes, and how much time is visible."""

    def __init__(self) -> None:
        self._history = LaneHistory()
        self._begin = self._end = 0  # numbers of the first column seen, and the first not seen yet
        self._newest: object = None
        self._panel: tuple[int, dict[str, tuple[float, float]]] = 0, {}  # columns, and idle ranges by GPU
        self._span = 0
        self.chosen_ns: tuple[int, ...] = ()  # moments of the selected finding, CLOCK_MONOTONIC
        self.marked_ns: tuple[int, ...] = ()  # moments marked by the user or an alert
        self._drawn: tuple[object, Picture] | None = None
        self._most = 0, 0  # a width, and the most lines of one thread's picture in it
        self._looked: tuple[object, int, list[_Lane]] = None, 0, []  # a request, its first column, its lanes

    def append(self, explained: Explained) -> None:
        """Add the lanes of an explanation, unless they are known."""
        lanes = explained.lanes
        if lanes is None or lanes is self._newest:
            return
        self._newest = lanes
        self._history.append(lanes)
        spans = explained.report.gpus if explained.report is not None else ()
        known = int(np.count_nonzero(lanes.marks[SKIPPED] == 0))
        self._panel = known, {one.label: (one.proved, one.high) for one in map(idle_of, spans)}
        self._begin = min(self._begin or lanes.first, lanes.first)
        self._end = max(self._end, lanes.first + lanes.columns)

    def zoom(self, by: int) -> None:
        """Show more time (1) or less (-1)."""
        self._span = min(max(self._span + by, 0), len(SPANS_S) - 1)

    @property
    def labels(self) -> list[str]:
        """The names of the GPUs."""
        return [label for label, _index in self._history.gpus]

    def empty(self, now_ns: int) -> bool:
        """True if there are no lanes, or only after this moment."""
        return not self._end or self._begin * COLUMN_NS > now_ns + _EARLY_NS

    def wanted(self, width: int) -> int:
        """Return the lines of all lanes, without a title; never fewer than before, so that nothing jumps."""
        least = max(len(self._history.gpus), 1) + _LEAST_LINES
        return max(least, self._most[1]) if self._most[0] == width else least

    def title(self, width: int, now_ns: int) -> str:
        """Return the visible time for the title: ``last 10.5 s``."""
        return f"last {self._view(width, now_ns).span_ns / NS_PER_S:.4g} s"

    def picture(
        self, width: int, height: int, subjects: Sequence[Subject], now_ns: int, look: Look
    ) -> Picture:
        """Return the lanes that fit.

        Args:
            width: The width in columns.
            height: The most lines.
            subjects: The threads with lanes, the selected one first; its GPUs come first.
            now_ns: The frame's time, CLOCK_MONOTONIC: the right end.
            look: How lanes are drawn.
        """
        view = self._view(width, now_ns)
        key = (width, height, tuple(subjects), view, look, self.chosen_ns, self.marked_ns, self._newest)
        if self._drawn is None or self._drawn[0] != key:  # cells change less often than frames
            self._drawn = key, self._picture(width, height, subjects, view, look)
        return self._drawn[1]

    def _picture(
        self, width: int, height: int, subjects: Sequence[Subject], view: VisibleColumns, look: Look
    ) -> Picture:
        entries = self._entries(view, subjects, look)
        rows = _legend_rows([sign for entry in entries for sign in entry.signs], width)
        entries += [_Entry((4, place), 4 + place, row) for place, row in enumerate(rows)]
        if len(subjects) <= 1:
            self._most = width, max(len(entries), self._most[1] if self._most[0] == width else 0)
        kept = sorted(entries, key=lambda entry: (entry.rank, entry.place))[: max(height, 0)]
        shown = {entry.place for entry in kept}
        hidden = sum((0, gpu) not in shown for gpu in range(len(self._history.gpus)))
        ordered = sorted(kept, key=lambda entry: entry.place)
        return Picture(tuple(look.glyphs.line(entry.line, width) for entry in ordered), view, hidden)

    def _view(self, width: int, now_ns: int) -> VisibleColumns:
        cells = max(width - _label(width) - _FIGURE, 8)
        now = now_ns // COLUMN_NS  # without the incomplete column
        wanted = SPANS_S[self._span] * NS_PER_S // COLUMN_NS
        if not self._span:
            wanted = min(wanted, max(now - self._begin, 1))  # a short session fills the width
        group, repeat = -(-wanted // cells), max(cells // wanted, 1)
        count = cells // repeat
        # cells have fixed columns, so that nothing flickers
        return VisibleColumns((-(-now // group) - count) * group, count, group, _label(width), repeat)

    def _cells(self, key: tuple[object, ...], view: VisibleColumns) -> tuple[Cells, Cells]:
        return self._history.cells(key, view.first, view.count, view.group)

    def _entries(self, view: VisibleColumns, subjects: Sequence[Subject], look: Look) -> list[_Entry]:
        """Return the lanes with their axis, made once per explanation; then the cells only move."""
        wanted = replace(view, first=0), tuple(subjects), look, self.chosen_ns, self.marked_ns, self._newest
        cells = view.first - self._looked[1]
        # columns beyond the view of then are in sight now
        ahead = cells and self._end > self._looked[1] + view.count * view.group
        if self._looked[0] != wanted or ahead or not 0 <= cells < view.count * view.group:
            self._looked = wanted, view.first, self._lanes(view, subjects, look)
            cells = 0
        gone, later = cells // view.group, blocklanes.not_seen(look, yet=True)
        seen = (lane for lane in self._looked[2] if lane.figure or any(one.word for one in lane.signs[gone:]))
        lanes = [_entry(lane, gone, later, view, look) for lane in seen]
        return [*lanes, _Entry((3, 0), 2, _axis(view, look))]

    def _lanes(self, view: VisibleColumns, subjects: Sequence[Subject], look: Look) -> list[_Lane]:
        out: list[_Lane] = []
        known_cells = min(max(-(-(self._end - view.first) // view.group), 0), view.count)
        marks = self._cells(MARKS, view)[0]
        gpus = self._history.gpus
        own = {index for subject in subjects for index in subject.gpus}
        first = sorted(range(len(gpus)), key=lambda place: gpus[place][1] not in own)[:2]
        shown = look.glyphs.shown
        for place, (label, _index) in enumerate(gpus):
            shares, known = self._cells(("gpu", label), view)
            columns, panel = self._panel
            ends = blocklanes.idle_range(shares, known, self._history.errors[place])
            if int(known.sum()) == columns:  # the visible time is the panel's
                ends = panel.get(label, ends)
            figure = f"idle {range_text(*ends, look.glyphs)}" if ends is not None else "-"
            signs = blocklanes.gpu_signs(shares, known, look)[:known_cells]
            out.append(_Lane((0, place), 0 if place in first else 6, shown(label), signs, figure))
        for place, subject in enumerate(subjects):
            name = f"{subject.tid} {shown(subject.name)}"
            shares, known = self._cells(("states", subject.tid), view)
            signs = blocklanes.state_signs(shares, known, look)[:known_cells]
            figure = _share("CPU", shares[:1], known)
            out.append(_Lane((1, 3 * place), 1 if not place else 7, name, signs, figure))
            shares, known = self._cells(("calls", subject.tid), view)
            signs = blocklanes.call_signs(shares, known, look)[:known_cells]
            figure = _share("calls", shares, known)
            out.append(_Lane((1, 3 * place + 1), 3 if not place else 7, "  its calls", signs, figure))
            if names := self._history.range_names(subject.tid):
                shares, known = self._cells(("ranges", subject.tid), view)
                signs = blocklanes.range_signs(shares, known, names, look)[:known_cells]
                figure = _share("ranges", shares, known)
                out.append(_Lane((1, 3 * place + 2), 3 if not place else 7, "  its ranges", signs, figure))
        chosen = [view.cell_of(moment) for moment in self.chosen_ns]
        marked = [view.cell_of(moment) for moment in self.marked_ns]
        for lane in out:
            lane.signs[:] = blocklanes.with_skipped(lane.signs, marks, look)
        signs = blocklanes.mark_signs(marks, chosen, marked, look)
        return [*out, _Lane((2, 0), 5, "marks", signs, "")]


def _entry(lane: _Lane, gone: int, later: Sign, view: VisibleColumns, look: Look) -> _Entry:
    """Return a lane after ``gone`` cells have moved out at the left; new ones are not explained yet."""
    signs = lane.signs[gone:]
    following = later if lane.figure else blocklanes.NO_MARK
    signs += [following] * (view.count - len(signs))
    runs = blocklanes.runs_of(signs)
    name: Span = (look.glyphs.fit(lane.name, view.left - 1) + " ", "head")
    figure = fit(lane.figure, _FIGURE, right=True)
    line = (name, *blocklanes.spans_of(runs, view.repeat), (figure, ""))
    return _Entry(lane.place, lane.rank, line, tuple(sign for sign, _count in runs))


def _share(word: str, shares: Cells, known: Cells) -> str:
    """Return a share of the known time: ``CPU 30 %``."""
    whole = int(known.sum()) * WHOLE
    return f"{word} {format_percent(100 * int(shares.sum()) / whole)} %" if whole else "-"


def _axis(view: VisibleColumns, look: Look) -> Line:
    """Return the axis, which ends now."""
    step = next(step for step in _STEPS_S if step * NS_PER_S * _MOST_TICKS >= view.span_ns)
    cells = list(look.glyphs.rule * view.count * view.repeat)
    cells[-len(_NOW) :] = _NOW
    for number in range(1, _MOST_TICKS + 1):
        text = f"-{number * step} s" if number * step < 120 else f"-{number * step // 60} min"
        at = (view.span_ns - number * step * NS_PER_S) * view.repeat // (view.group * COLUMN_NS)
        if at >= 0 and at + len(text) + 1 < len(cells) - len(_NOW):
            cells[at : at + len(text)] = text
    return ((" " * view.left, ""), ("".join(cells), "faint"))


def _legend_rows(signs: Sequence[Sign], width: int) -> list[Line]:
    """Return the legend in one or two lines."""
    rows: list[list[Span]] = [[(" ", "")]]
    for entry in blocklanes.legend(signs):
        full = line_width(rows[-1]) + line_width(entry) > width
        if full and len(rows) < _LEGEND_LINES:
            rows.append([(" ", "")])
        rows[-1] += [*entry, (_BETWEEN, "")]
    return [tuple(row[:-1] if len(row) > 1 else row) for row in rows]


def _label(width: int) -> int:
    """Return the columns of a lane's name."""
    return 8 if width < 60 else 12 if width < 110 else 18
