"""The table of the lines that make calls, and the page that shows one of them in its file."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.engine.frame import OFF_CPU, Frame, LineRow, ProcessRow
from gputop.engine.lines import Line as SourceLine
from gputop.engine.source import Source
from gputop.format import clip, escape_text, fit, format_count, format_ns, format_percent
from gputop.ui.model.look import Glyphs, Line, Span, wrap
from gputop.ui.model.processes import short_api
from gputop.ui.model.table import Column, Context, Table

AROUND = 100  # lines of the file before and after the one that is shown
NOT_ASKED = {
    "live": ("Lines are not looked for: start gputop without --lines off.",),
    "replay": ("This recording has no lines: record with --lines costly or all.",),
}
_STACK_ROWS = 3
_BEHIND = " < "  # its caller
_UNKNOWN = (
    "no line is known here: the calls that --lines asks for have one, of native code and of the Pythons that"
    " gputop check lists"
)


@dataclass(frozen=True, slots=True)
class LineUse:
    """What the calls of one line, and its waits between calls, cost in the window.

    Attributes:
        api: The function in which most of the time passes; OFF_CPU where most of it is waits.
        others: How many others the line calls.
        share: Of the time of all calls and waits whose line is known, 0 to 1.
        frames: The stack of most of its time, from the innermost on; of waits none.
    """

    line: SourceLine
    api: str
    others: int
    count: int
    sum_ns: int
    share: float
    frames: tuple[SourceLine, ...] = ()


def line_uses(row: ProcessRow | None) -> tuple[LineUse, ...]:
    """The lines of a process, whatever they call or wait for, most time first."""
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
    return escape_text(use.line.place, ascii_only=context.glyphs.ascii), ""


def _function(use: LineUse, context: Context, width: int) -> Span:
    return escape_text(use.line.function, ascii_only=context.glyphs.ascii), ""


def _call(use: LineUse, context: Context, width: int) -> Span:
    more = f" +{use.others}" if use.others else ""
    return escape_text(short_api(use.api, max(width - len(more), 1))) + more, "dim"


COLUMNS: tuple[Column[LineUse], ...] = (
    Column("line", "LINE", 18, _place, lambda use: use.line.file, right=False, keep=100, grow=40,
           descending=False),
    Column("function", "FUNCTION", 12, _function, lambda use: use.line.function, right=False, keep=60,
           grow=36, descending=False),
    Column("count", "n/s", 5, lambda u, c, w: (format_count(u.count / c.window_s), ""), lambda u: u.count,
           keep=80),
    Column("time", "TIME/s", 6, lambda u, c, w: (format_ns(u.sum_ns / c.window_s), ""), lambda u: u.sum_ns,
           keep=90),
    Column("share", "SHARE%", 6, lambda u, c, w: (format_percent(100 * u.share), ""), lambda u: u.share,
           keep=85),
    Column("call", "CALL", 14, _call, lambda use: use.api.lower(), right=False, keep=70, grow=32,
           descending=False),
)  # fmt: skip


def line_table() -> Table[LineUse]:
    """An empty table of lines, most time first."""
    return Table(COLUMNS, lambda use: use.line, "time")


def no_lines(frame: Frame, row: ProcessRow | None, mode: str) -> tuple[str, ...]:
    """Why the table is empty."""
    if row is None:
        return ("Select a process to see its lines.",)
    if not frame.calls_observed:
        return ("Which lines make CUDA calls is not known without eBPF.",)
    if frame.lines == "off":
        return NOT_ASKED[mode]
    if row.unknown_lines:
        calls = f"{format_count(row.unknown_lines)} calls, and the line of none is known"
        return (f"{calls}: gputop check says which Pythons' lines are known, and why others' are not.",)
    which = "call" if frame.lines == "all" else "sync, copy, allocation or graph call"
    return (f"No {which} ended in the last window.",)


class SourcePage:
    """A line in its file, with what the lines around it cost."""

    def __init__(self, line: SourceLine | None, pid: int, source: Source | None) -> None:
        """Start with a file that was read.

        Args:
            line: The line; None when there is none to show.
            pid: The process whose calls are counted.
            source: Its file.
        """
        self.line = line
        self.pid = pid
        self._source = source
        self._first = max((line.line if line else 1) - AROUND, 1)

    @property
    def title(self) -> str:
        """The line in words."""
        return escape_text(f"Source of {self.line.text()}") if self.line else "Source"

    @property
    def place(self) -> int:
        """Where the line is among ``lines``."""
        known = self.line and self._source and self._source.lines
        return max(self.line.line - self._first, 0) if self.line and known else 0

    def _row_of(self, frame: Frame | None) -> ProcessRow | None:
        return next((one for one in frame.processes if one.pid == self.pid), None) if frame else None

    def head(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """What stays above the lines: the path, a doubt, the headings.

        Args:
            frame: What is counted.
            width: Columns.
            glyphs: The signs used.
        """
        if self.line is None or self._source is None:
            return []
        path = escape_text(self._source.path, ascii_only=glyphs.ascii)
        out: list[Line] = [((f" {clip(path, width - 2, glyphs.ellipsis)}", "dim"),)]
        out += self._stack(frame, width, glyphs)
        if self._source.problem:
            return out
        if _is_newer(self._source, frame, self._row_of(frame)):
            doubt = "the file was changed after the program began: its lines may have moved"
            out.append(((f" {glyphs.warning} {doubt}", "warn"),))
        return [*out, ((f"    n/s  TIME/s {'LINE':>6}", "head"),)]

    def _stack(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """What it calls on the way to CUDA, and who calls it."""
        uses = line_uses(self._row_of(frame))
        frames = next((use.frames for use in uses if use.line == self.line), ())
        if len(frames) < 2:
            return []
        told = escape_text(_BEHIND.join(one.text() for one in frames), ascii_only=glyphs.ascii)
        shown = wrap(told, max(width - 9, 8))
        if len(shown) > _STACK_ROWS:
            last = f"{clip(shown[_STACK_ROWS - 1], width - 11, '')} {glyphs.ellipsis}"
            shown = [*shown[: _STACK_ROWS - 1], last]
        heads = [" stack  ", *(" " * 8 for _ in shown[1:])]
        return [((head, "dim"), (text, "value")) for head, text in zip(heads, shown, strict=True)]

    def lines(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """The lines below the head; what they cost comes from a frame."""
        if self.line is None or self._source is None or self._source.problem:
            said = _UNKNOWN
            if self.line is not None and self._source is not None:
                where = (
                    self.line.text()
                    if self.line.is_native
                    else f"line {self.line.line} in {self.line.function}()"
                )
                said = f"{where}: {self._source.problem}"
            shown = wrap(escape_text(said, ascii_only=glyphs.ascii), max(width - 2, 8))
            return [((f" {text}", "unknown"),) for text in shown]
        out: list[Line] = []
        row = self._row_of(frame)
        uses = {use.line.line: use for use in line_uses(row) if use.line.file == self.line.file}
        seconds = max(frame.window_ns, 1) / 1e9 if frame else 1.0
        last = min(self.line.line + AROUND, len(self._source.lines))
        for number in range(self._first, last + 1):
            text = self._source.lines[number - 1].expandtabs(4)
            out.append(self._row(number, text, uses.get(number), seconds, width, glyphs))
        return out

    def _row(
        self, number: int, text: str, use: LineUse | None, seconds: float, width: int, glyphs: Glyphs
    ) -> Line:
        here = self.line is not None and number == self.line.line
        rate = format_count(use.count / seconds) if use else ""
        time = format_ns(use.sum_ns / seconds) if use else ""
        sign = glyphs.cursor if here else " "
        code = fit(escape_text(text, ascii_only=glyphs.ascii), max(width - 25, 1), ellipsis=glyphs.ellipsis)
        suffix = "+select" if here else ""
        return (
            (f" {rate:>6} {time:>7} ", ("value" if use else "") + suffix),
            (f"{number:>6} ", "dim" + suffix),
            (f"{sign} ", "cursor" + suffix),
            (code, ("value" + suffix) if here else ""),
        )


def _is_newer(source: Source, frame: Frame | None, row: ProcessRow | None) -> bool:
    """Whether the file was changed after the program that runs it was seen first."""
    if frame is None or row is None or not frame.wall_ns:
        return False
    return source.changed_ns > frame.wall_ns - (frame.time_ns - row.start_ns)
