"""The table of source lines that make calls."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import OFF_CPU, Frame, LineRow, ProcessRow
from gputop.format import escape_text, format_count, format_counted, format_ns, format_percent
from gputop.ui.model.listing.process_table import short_api, unselected
from gputop.ui.model.look import Span
from gputop.ui.model.process.call_table import UNWATCHED
from gputop.ui.model.table import Column, Context, Table

NOT_REQUESTED = {
    "live": ("No lines are recorded: start gputop without --stacks off.",),
    "replay": ("This recording has no lines: record with --stacks slow or all.",),
}


@dataclass(frozen=True, slots=True)
class LineUse:
    """The calls of a line, and its waits between calls, in the window."""

    line: SourceLine
    api: str  # the function with most time, or OFF_CPU for waits
    others: int  # the number of other functions
    count: int
    sum_ns: int
    share: float  # of the time of all calls and waits with a known line, 0 to 1
    frames: tuple[SourceLine, ...] = ()  # the stack with most time, from the innermost on; none for waits


def line_uses(row: ProcessRow | None) -> tuple[LineUse, ...]:
    """Return the lines of a process, most time first."""
    waits = (LineRow(wait.line, OFF_CPU, wait.count, wait.sum_ns) for wait in row.waits) if row else ()
    every = sorted((*row.lines, *waits), key=lambda entry: -entry.sum_ns) if row else []
    by_line: dict[SourceLine, list[LineRow]] = {}
    for entry in every:
        by_line.setdefault(entry.line, []).append(entry)
    total = sum(entry.sum_ns for entry in every)
    uses = []
    for line, entries in by_line.items():
        ns = sum(entry.sum_ns for entry in entries)
        count = sum(entry.count for entry in entries)
        share, others = ns / max(total, 1), len(entries) - 1
        uses.append(LineUse(line, entries[0].api, others, count, ns, share, entries[0].frames))
    return tuple(sorted(uses, key=lambda use: (-use.sum_ns, use.line)))


def _place(use: LineUse, context: Context, width: int) -> Span:
    return context.glyphs.shown(use.line.place), ""


def _function(use: LineUse, context: Context, width: int) -> Span:
    return context.glyphs.shown(use.line.function), ""


def _call(use: LineUse, context: Context, width: int) -> Span:
    more = f" +{use.others}" if use.others else ""
    return escape_text(short_api(use.api, max(width - len(more), 1))) + more, "dim"


COLUMNS: tuple[Column[LineUse], ...] = (
    Column("line", "LINE", 18, _place, lambda use: use.line.file, right=False, keep=100, grow=40,
           descending=False),
    Column("function", "FUNCTION", 12, _function, lambda use: use.line.function, right=False, keep=60,
           grow=36, descending=False),
    Column("count", "CALLS/s", 7, lambda u, c, w: (format_count(u.count / c.window_s), ""), lambda u: u.count,
           keep=80),
    Column("time", "TIME/s", 6, lambda u, c, w: (format_ns(u.sum_ns / c.window_s), ""), lambda u: u.sum_ns,
           keep=90),
    Column("share", "SHARE%", 6, lambda u, c, w: (format_percent(100 * u.share), ""), lambda u: u.share,
           keep=85),
    Column("call", "CALL", 14, _call, lambda use: use.api.lower(), right=False, keep=70, grow=32,
           descending=False),
)  # fmt: skip


def line_table() -> Table[LineUse]:
    """Return an empty table of lines, most time first."""
    return Table(
        COLUMNS, lambda use: use.line, "time", lambda use: f"{use.line.place} {use.line.function} {use.api}"
    )


def no_lines(frame: Frame, row: ProcessRow | None, mode: str) -> tuple[str, ...]:
    if row is None:
        return unselected(frame, "lines")
    if not frame.calls_observed:
        return ("The lines that make CUDA calls are not known without eBPF.",)
    if frame.lines == "off":
        return NOT_REQUESTED[mode]
    if not row.watched:
        return UNWATCHED[:1]
    if row.unknown_lines:
        calls = f"{format_counted(row.unknown_lines, 'call')} of unknown lines"
        return (f"{calls}: gputop check lists the supported Python interpreters.",)
    which = "call" if frame.lines == "all" else "sync, copy, allocation or graph call"
    return (f"No {which} ended in the last window.",)
