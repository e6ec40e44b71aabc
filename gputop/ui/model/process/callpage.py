"""The page of one function: durations of its calls, as a chart and as a list of buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop.engine.frame import CallRow
from gputop.format import (
    NS_PER_S,
    fit,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    used_range,
)
from gputop.ui.model.look import Glyphs, Line, Span
from gputop.ui.model.process.call_table import FEW

CHART_LINES = 8  # of the chart, without axis and marks
_SCALE = 7  # columns of the scale of counts
_TICK = 8  # columns that a duration on the axis needs
_LEAST_SHARE = 0.05  # percent: less is shown as "<0.1"
_WIDEST = 12  # columns of a bar
_BLOCKS, _BLOCKS_ASCII = " ▁▂▃▄▅▆▇█", " ....####"


class _Axis:
    """Durations on a logarithmic axis: ``bars`` of ``group`` powers of two, ``slot`` columns each."""

    def __init__(self, histogram: Sequence[int], width: int) -> None:
        self.first, end = used_range([histogram])
        room = max(width - _SCALE - 1, 1)
        self.group = max(math.ceil((end - self.first) / room), 1)
        self.bars = [
            sum(histogram[start : min(start + self.group, end)])
            for start in range(self.first, end, self.group)
        ]
        self.slot = min(max(room // max(len(self.bars), 1), 1), _WIDEST)

    @property
    def columns(self) -> int:
        return len(self.bars) * self.slot

    def place(self, ns: int) -> int:
        powers = math.log2(max(ns, 1)) - self.first
        return min(max(int(powers / self.group * self.slot), 0), max(self.columns - 1, 0))

    def begin(self, bar: int) -> int:
        """Return the least duration of a bar, ns."""
        return int(2 ** (self.first + bar * self.group))


def chart_lines(row: CallRow, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return bars over an axis of durations, with the percentiles marked below, in ``height`` lines."""
    axis = _Axis(row.histogram, width)
    levels = max(height - 2, 1)
    if not axis.bars:
        return [glyphs.line([(" no call ended in the last window", "dim")], width)]
    blocks = _BLOCKS_ASCII if glyphs.ascii else _BLOCKS
    highest, solid = max(axis.bars), max(axis.slot - 1, 1)
    lines: list[Line] = []
    for level in range(levels, 0, -1):
        text = ""
        for count in axis.bars:
            # at least the lowest block
            eighths = max(round(count / highest * levels * 8), 1) if count else 0
            part = min(max(eighths - (level - 1) * 8, 0), 8)
            text += (blocks[part] * solid).ljust(axis.slot)
        scale = format_count(highest) if level == levels else "0" if level == 1 else ""
        lines.append(glyphs.line([(fit(scale, _SCALE, right=True) + " ", "dim"), (text, "busy")], width))
    return [*lines, _ticks(axis, width, glyphs), _marks(row, axis, width, glyphs)]


def _ticks(axis: _Axis, width: int, glyphs: Glyphs) -> Line:
    every = math.ceil(_TICK / axis.slot)
    cells = list(glyphs.rule * max(axis.columns, 1))
    for bar in range(0, len(axis.bars), every):
        text = format_ns(axis.begin(bar))
        if bar * axis.slot + len(text) <= len(cells):
            cells[bar * axis.slot : bar * axis.slot + len(text)] = text
    return glyphs.line([(" " * (_SCALE + 1), ""), ("".join(cells), "dim")], width)


def _marks(row: CallRow, axis: _Axis, width: int, glyphs: Glyphs) -> Line:
    """Return ``^p50   ^p95 p99   max^``; those at one place share an arrow."""
    few = "~" if row.count < FEW else ""
    groups: list[tuple[int, str]] = []
    for name, ns in (
        ("p50", row.p50_ns),
        (few + "p95", row.p95_ns),
        (few + "p99", row.p99_ns),
        ("max", row.max_ns),
    ):
        at = axis.place(ns)
        if groups and at < groups[-1][0] + len(groups[-1][1]) + 2:
            at, name = groups[-1][0], f"{groups.pop()[1]} {name}"
        groups.append((at, name))
    text = ""
    for at, names in groups:
        if _SCALE + 2 + at + len(names) <= width:
            text = f"{text.ljust(at)}{glyphs.ascending}{names}"
        else:  # at the right end, the arrow comes last
            text = f"{text.ljust(at - len(names))}{names}{glyphs.ascending}"
    return glyphs.line([(" " * (_SCALE + 1), ""), (text, "value")], width)


def figures(row: CallRow, window_s: float, glyphs: Glyphs) -> list[Span]:
    """Return a call's figures in one line: count, time, percentiles, bytes, errors."""
    few = "~" if row.count < FEW else ""
    spans: list[Span] = [(f" {format_count(row.count / window_s)}", "value"), ("/s", "dim")]
    for name, text in (
        ("time", f"{format_ns(row.sum_ns / window_s)}/s"),
        ("p50", format_ns(row.p50_ns)),
        ("p95", few + format_ns(row.p95_ns)),
        ("p99", few + format_ns(row.p99_ns)),
        ("max", format_ns(row.max_ns)),
    ):
        spans += [(f"  {name} ", "dim"), (text if row.count else "-", "value")]
    if row.bytes:
        spans += [("  bytes ", "dim"), (f"{format_bytes(round(row.bytes / window_s))}/s", "value")]
    if row.errors:
        spans += [("  errors ", "dim"), (format_count(row.errors), "alert")]
    if row.in_progress:
        spans += [("  in flight ", "dim"), (f"{row.in_progress}x {format_ns(row.in_progress_ns)}", "pending")]
    return spans


def call_page(row: CallRow | None, window_ns: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the page.

    Args:
        row: The selected call, if any.
        window_ns: The time span of its figures.
        width: The width in columns.
        glyphs: The screen's glyphs.
    """
    if row is None:
        return [((" no call is selected", "dim"),)]
    window_s = max(window_ns, 1) / NS_PER_S
    inside = "nested, times at most, " if row.at_most else "nested, " if row.nested else ""
    layer = inside + glyphs.shown(row.layer)
    name = glyphs.shown(row.api)
    out: list[Line] = [
        ((f" {name}", "value"), (f"  {layer}  calls that ended in the last {window_s:.3g} s", "dim")),
        tuple(figures(row, window_s, glyphs)),
        ((" ", ""),),
        *chart_lines(row, width, CHART_LINES + 2, glyphs),
        ((" ", ""),),
    ]
    if row.count < FEW:
        out.append(((f" ~: of {row.count} calls a percentile is one of the slowest calls", "unsure"),))
    return out + _buckets(row, width, glyphs)


def _buckets(row: CallRow, width: int, glyphs: Glyphs) -> list[Line]:
    first, end = used_range([row.histogram])
    total, highest = sum(row.histogram), max(row.histogram)
    room = max(min(width - 40, 60), 4)
    heads = [(" FROM", 9), ("TO", 8), ("CALLS", 8), ("%", 5), ("UP TO", 6)]
    out: list[Line] = [((" ".join(fit(head, columns, right=True) for head, columns in heads), "head"),)]
    before = 0
    for power in range(first, end):
        count = row.histogram[power]
        before += count
        share, reached = 100 * count / total, 100 * before / total
        cells = (
            fit(format_ns(2**power), 9, right=True),
            fit(format_ns(2 ** (power + 1)), 8, right=True),
            fit(format_count(count), 8, right=True),
            fit("<0.1" if count and share < _LEAST_SHARE else format_percent(share), 5, right=True),
            fit(format_percent(reached) + "%", 6, right=True),
        )
        bar = glyphs.full * max(round(count / highest * room), 1) if count else ""
        out.append(((" ".join(cells) + "  ", ""), (bar, "busy")))
    return out if total else []
