"""The timeline: lanes of the GPUs and of one thread over the last seconds, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputop.explain.lanes import COLUMN_NS
from gputop.format import NS_PER_S, escape_text, fit
from gputop.playback.feed import Explained
from gputop.ui.model import lanecells
from gputop.ui.model.lanecells import CellLine, Sign
from gputop.ui.model.lanehistory import MARKS, Cells, LaneHistory
from gputop.ui.model.look import Glyphs, Line, Span, fit_line

SPANS_S = (10, 60, 300)
_STEPS_S = (1, 2, 5, 10, 20, 60, 120)  # between two times on the axis
_MOST_TICKS = 6
_NOW = " now"
_UNSEEN = "nothing seen of it in this time"
_FIGURE = 12  # columns of the figure behind a lane
_OLD_NS = 2 * NS_PER_S  # lanes that end longer ago than this say so


@dataclass(frozen=True, slots=True)
class Subject:
    """The thread that has a lane; ``gpus`` are those that its process uses, by NVML's numbers."""

    tid: int
    name: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line with its place from the top, and how soon it leaves a low pane (the highest first)."""

    place: tuple[int, int]
    rank: int
    line: Line
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """The columns of time in sight: ``count`` cells of ``group`` columns."""

    first: int
    count: int
    group: int

    @property
    def span_ns(self) -> int:
        return self.count * self.group * COLUMN_NS


class Timeline:
    """The lanes kept, how much time is in sight, and the lines of the pane.

    Attributes:
        chosen_ns: Moments that are marked apart from the others, CLOCK_MONOTONIC.
    """

    def __init__(self, glyphs: Glyphs) -> None:
        """Start without lanes.

        Args:
            glyphs: The signs to draw with.
        """
        self._glyphs = glyphs
        self._history = LaneHistory()
        self._begin = self._end = 0  # numbers of the first column seen and the first not seen yet
        self._taken: object = None
        self._span = 0
        self.chosen_ns: tuple[int, ...] = ()
        self._drawn: tuple[object, tuple[list[Line], int]] | None = None

    def take(self, explained: Explained) -> None:
        """Join the lanes of an explanation on; the same ones again cost nothing."""
        lanes = explained.lanes
        if lanes is None or lanes is self._taken:
            return
        self._taken = lanes
        self._history.take(lanes)
        self._begin = min(self._begin or lanes.first, lanes.first)
        self._end = lanes.first + lanes.columns

    def zoom(self, by: int) -> None:
        """More time in sight (1) or less (-1)."""
        self._span = min(max(self._span + by, 0), len(SPANS_S) - 1)

    def empty(self, now_ns: int) -> bool:
        """Whether there is nothing to draw yet, or only what comes after this moment."""
        return not self._end or self._end * COLUMN_NS > now_ns + _OLD_NS

    def wanted(self) -> int:
        """Lines for everything there is, the title among them."""
        gpus = max(len(self._history.gpus), 1)
        return 1 + gpus * (2 if gpus <= 2 else 1) + 2 + 3

    def title(self, width: int) -> str:
        """What the title says about time: ``last 10.5 s``."""
        return f"last {self._view(width).span_ns / NS_PER_S:.4g} s"

    def lines(self, width: int, height: int, subject: Subject | None, now_ns: int) -> tuple[list[Line], int]:
        """What fits of the lanes, and how many GPUs do not.

        Args:
            width: Columns.
            height: Lines.
            subject: The thread that has a lane.
            now_ns: The frame's time: how old the lanes are.
        """
        key = (width, height, subject, self._span, self.chosen_ns, self._taken, self._age_ns(now_ns))
        if self._drawn is None or self._drawn[0] != key:
            # explanations come less often than frames
            self._drawn = key, self._lines(width, height, subject, now_ns)
        return self._drawn[1]

    def _lines(self, width: int, height: int, subject: Subject | None, now_ns: int) -> tuple[list[Line], int]:
        entries = self._entries(width, self._view(width), [subject] if subject else [], now_ns)
        kept = sorted(entries, key=lambda entry: entry.rank)[: max(height, 0)]
        shown = {entry.place for entry in kept}
        hidden = sum((0, 2 * gpu) not in shown for gpu in range(len(self._history.gpus)))
        return [entry.line for entry in self._with_legend(kept, width)], hidden

    def every_line(self, width: int, subjects: Iterable[Subject], now_ns: int) -> list[Line]:
        """All lanes, and those of all these threads: the pane that has the screen."""
        entries = self._entries(width, self._view(width), list(subjects), now_ns)
        return [entry.line for entry in self._with_legend(entries, width)]

    # -- lines ------------------------------------------------------------------------------------

    def _view(self, width: int) -> _View:
        cells = max(width - _label(width) - _FIGURE, 8)
        wanted = SPANS_S[self._span] * NS_PER_S // COLUMN_NS
        if not self._span:
            wanted = min(wanted, max(self._end - self._begin, 1))  # of a short session all of the width
        group = -(-wanted // cells)
        # a cell holds the same columns however time goes on, so that nothing flickers
        last = -(-self._end // group)
        return _View((last - cells) * group, cells, group)

    def _age_ns(self, now_ns: int) -> int:
        """How long ago the lanes end, in whole seconds; 0 while they are as new as can be."""
        age_ns = now_ns - self._end * COLUMN_NS
        return age_ns - age_ns % NS_PER_S if age_ns > _OLD_NS else 0

    def _entries(self, width: int, view: _View, subjects: list[Subject], now_ns: int) -> list[_Entry]:
        glyphs, out = self._glyphs, []
        gpus = self._history.gpus
        own = {index for subject in subjects for index in subject.gpus}
        first = sorted(range(len(gpus)), key=lambda place: gpus[place][1] not in own)[:2]
        for place, (label, _index) in enumerate(gpus):
            shares, known = self._cells(("gpu", label), view)
            drawn = lanecells.gpu_line(shares, known, glyphs)
            line = self._lane(escape_text(label, ascii_only=glyphs.ascii), drawn, width)
            out.append(_Entry((0, 2 * place), 0 if place in first else 6, line, drawn.signs))
            bars = self._lane("", lanecells.idle_line(shares, known, glyphs), width)
            out += [_Entry((0, 2 * place + 1), 7, bars)] if len(gpus) <= 2 else []
        for place, subject in enumerate(subjects):
            name = f"{subject.tid} {escape_text(subject.name, ascii_only=glyphs.ascii)}"
            shares, known = self._cells(("states", subject.tid), view)
            states = lanecells.state_line(shares, known, glyphs) if known.any() else _nothing(view)
            out.append(_Entry((1, 2 * place), 1, self._lane(name, states, width), states.signs))
            shares, known = self._cells(("calls", subject.tid), view)
            if len(subjects) == 1 or shares.any():
                calls = lanecells.call_line(shares, known, glyphs)
                line = self._lane("  its calls", calls, width)
                out.append(_Entry((1, 2 * place + 1), 4, line, calls.signs))
        chosen = {(moment // COLUMN_NS - view.first) // view.group for moment in self.chosen_ns}
        marks = lanecells.mark_line(self._cells(MARKS, view)[0], chosen, glyphs)
        out.append(_Entry((2, 0), 3, self._lane("marks", marks, width), marks.signs))
        out.append(_Entry((3, 0), 2, self._axis(view, width, now_ns)))
        out.append(_Entry((4, 0), 5, ()))  # the legend, of what the others draw
        return out

    def _cells(self, key: tuple[object, ...], view: _View) -> tuple[Cells, Cells]:
        return self._history.cells(key, view.first, view.count, view.group)

    def _lane(self, label: str, drawn: CellLine, width: int) -> Line:
        name: Span = (fit(label, _label(width) - 1, ellipsis=self._glyphs.ellipsis) + " ", "head")
        return fit_line([name, *drawn.spans, (fit(drawn.figure, _FIGURE, right=True), "")], width)

    def _axis(self, view: _View, width: int, now_ns: int) -> Line:
        """The scale: how long ago; lanes that end at the newest moment end ``now``."""
        age_ns = self._age_ns(now_ns)
        step = next(step for step in _STEPS_S if step * NS_PER_S * _MOST_TICKS >= view.span_ns)
        cells = list(self._glyphs.rule * view.count)
        if not age_ns:
            cells[-len(_NOW) :] = _NOW
        for number in range(1, _MOST_TICKS + 1 + age_ns // (step * NS_PER_S)):
            text = f"-{number * step} s" if number * step < 120 else f"-{number * step // 60} min"
            left_ns = view.span_ns + age_ns - number * step * NS_PER_S
            at = left_ns // (view.group * COLUMN_NS)
            if at >= 0 and at + len(text) + 1 < view.count - len(_NOW):
                cells[at : at + len(text)] = text
        return fit_line([(" " * _label(width), ""), ("".join(cells), "faint")], width)

    def _with_legend(self, entries: list[_Entry], width: int) -> list[_Entry]:
        """In their order from the top, the legend filled in."""
        ordered = sorted(entries, key=lambda entry: entry.place)
        signs = dict.fromkeys(sign for entry in ordered for sign in entry.signs)
        words: dict[str, list[str]] = {}
        spans: list[Span] = [(" ", "")]
        for sign in signs:
            if sign.word not in words.setdefault(sign.glyph, []):
                words[sign.glyph].append(sign.word)
        for sign in signs:
            if sign.glyph in words:
                spans += [(sign.glyph, sign.token), (f" {' / '.join(words.pop(sign.glyph))}  ", "dim")]
        legend = fit_line(spans, width, ellipsis=self._glyphs.ellipsis)
        return [_Entry(entry.place, entry.rank, entry.line or legend) for entry in ordered]


def _nothing(view: _View) -> CellLine:
    """A thread without a lane: it did nothing that is recorded, or too many others did more."""
    return CellLine(((f"{_UNSEEN:<{view.count}}"[: view.count], "unknown"),), (), "-")


def _label(width: int) -> int:
    """Columns of the name of a lane."""
    return 8 if width < 60 else 12 if width < 110 else 18
