"""The source page: a line in its file, with the costs of the lines around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

from gputop.engine.calls.source_text import SourceFile
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import Frame, ProcessRow
from gputop.engine.wallclock import WallClock
from gputop.format import clip, escape_text, format_count, format_ns, format_percent
from gputop.ui.model.look import Glyphs, Line, Span, paragraph, wrap
from gputop.ui.model.process.line_table import LineUse, line_uses
from probes.code.source_files import is_library

AROUND = 100  # lines of the file before and after the selected one
HOT = 0.1  # of a process's samples, from which on a line is highlighted
_UNKNOWN = (
    "no source line was recorded here: see --stacks, and gputop check for the supported Python interpreters"
)


class SourceText:
    """A line in its file, with the costs of the lines around it."""

    def __init__(self, line: SourceLine | None, pid: int, source: SourceFile | None) -> None:
        """Create the page.

        Args:
            line: The line, if any.
            pid: The process whose calls are counted.
            source: The file, if any.
        """
        self.line = line
        self.pid = pid
        self._source = source
        self._first = max((line.line if line else 1) - AROUND, 1)
        self._colours: Mapping[int, Line] | None = None  # made once, since it takes milliseconds

    @property
    def title(self) -> str:
        return escape_text(f"Source of {self.line.text()}") if self.line else "Source"

    @property
    def place(self) -> int:
        """The index of the line in ``lines``."""
        known = self.line and self._source and self._source.lines
        return max(self.line.line - self._first, 0) if self.line and known else 0

    def _row_of(self, frame: Frame | None) -> ProcessRow | None:
        return next((one for one in frame.processes if one.pid == self.pid), None) if frame else None

    def head(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """Return the fixed lines: the path, the stack, a doubt, the heading."""
        if self.line is None or self._source is None:
            return []
        path = glyphs.shown(self._source.path)
        out: list[Line] = [((f" {glyphs.clip(path, width - 2)}", "dim"),)]
        out += self._stack(frame, width, glyphs)
        if self._source.problem:
            return out
        newer = _is_newer(self._source, frame, self._row_of(frame))
        if newer is not False:
            doubt = "the file was changed after the program began: its lines may have moved"
            if newer is None:
                doubt = "the clock was set meanwhile: the file may have changed since the program began"
            out.append(((f" {glyphs.warning} {doubt}", "warn"),))
        return [*out, ((f"  CPU%  CALLS/s  TIME/s {'LINE':>6}", "head"),)]

    def _stack(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """Return the stack through the line."""
        uses = line_uses(self._row_of(frame))
        frames = next((use.frames for use in uses if use.line == self.line), ())
        return stack_lines(frames, width, glyphs) if len(frames) > 1 else []

    def lines(self, frame: Frame | None, width: int, glyphs: Glyphs) -> list[Line]:
        """Return the source lines with their costs in a frame."""
        if self.line is None or self._source is None or self._source.problem:
            text = _UNKNOWN
            if self.line is not None and self._source is not None:
                where = (
                    self.line.text()
                    if self.line.is_native
                    else f"line {self.line.line} in {self.line.function}()"
                )
                text = f"{where}: {self._source.problem}"
            return paragraph(text, "unknown", width, glyphs)
        out: list[Line] = []
        row = self._row_of(frame)
        uses = {use.line.line: use for use in line_uses(row) if use.line.file == self.line.file}
        samples = sample_shares(row, self.line.file)
        if self._colours is None:
            end = self.line.line + AROUND
            self._colours = coloured(self._source.lines, self._first, end, self._source.path)
        seconds = max(frame.window_ns, 1) / 1e9 if frame else 1.0
        last = min(self.line.line + AROUND, len(self._source.lines))
        for number in range(self._first, last + 1):
            code = self._colours.get(number, ((self._source.lines[number - 1].expandtabs(4), ""),))
            lead = self._lead(number, uses.get(number), samples.get(number, 0.0), seconds, glyphs)
            out.append((*lead, *self._code(code, number == self.line.line, width, glyphs)))
        return out

    @staticmethod
    def _code(code: Line, here: bool, width: int, glyphs: Glyphs) -> Line:
        chosen = "value+select" if here else ""
        shown = [(glyphs.shown(text), chosen or token) for text, token in code]
        return glyphs.line(shown, max(width - 34, 1), token=chosen)

    def _lead(self, number: int, use: LineUse | None, share: float, seconds: float, glyphs: Glyphs) -> Line:
        """Return a line's share of CPU samples, its calls and waits, and their time."""
        here = self.line is not None and number == self.line.line
        rate = format_count(use.count / seconds) if use else ""
        time = format_ns(use.sum_ns / seconds) if use else ""
        sign = glyphs.cursor if here else " "
        cpu = format_percent(100 * share) if share else ""
        suffix = "+select" if here else ""
        return (
            (f" {cpu:>5} ", ("host" if share >= HOT else "value") + suffix),
            (f"{rate:>8} {time:>7} ", ("value" if use else "") + suffix),
            (f"{number:>6} ", "dim" + suffix),
            (f"{sign} ", "cursor" + suffix),
        )


def _is_newer(source: SourceFile, frame: Frame | None, row: ProcessRow | None) -> bool | None:
    """True if the file was changed after the program was first seen; None: unknown."""
    if frame is None or row is None or not frame.wall_ns:
        return False
    ahead = frame.wall_ns - frame.time_ns
    return (frame.clock or WallClock(ahead, ahead)).is_after(source.changed_ns, row.start_ns)


def sample_shares(row: ProcessRow | None, file: str) -> dict[int, float]:
    """Return each line's share of the process's CPU samples, 0 to 1."""
    if row is None or not row.sampled:
        return {}
    shares: dict[int, float] = {}
    for sample in row.samples:
        if sample.line.file == file:
            shares[sample.line.line] = shares.get(sample.line.line, 0.0) + sample.count / row.sampled
    return shares


# Code in colours, and a stack with own code first.

STACK_ROWS = 3
_BEHIND = " < "  # its caller
_BACK = 400  # lines to search back for one outside of strings and brackets
_BEGINS = ("def ", "class ", "@", "import ", "from ", "async def ", "if __name__")
# the screen's tokens, so that every theme has readable colours
_TOKENS: tuple[tuple[Any, str], ...] = (
    (Comment, "dim"),
    (String, "chrome"),
    (Number, "host"),
    (Keyword, "busy"),
    (Operator.Word, "busy"),
    (Name.Builtin, "busy"),
    (Name.Function, "value"),
    (Name.Class, "value"),
    (Name.Decorator, "value"),
)


def coloured(lines: Sequence[str], first: int, last: int, path: str) -> Mapping[int, Line]:
    """Return lines of a file with syntax colours, by number; none for an unknown language.

    Args:
        lines: All lines of the file.
        first: The first one wanted, counted from 1.
        last: The last one wanted.
        path: The file, whose name gives the language.
    """
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return {}
    begin = _beginning(lines, first)
    text = "\n".join(lines[begin - 1 : last])
    number, found = begin, list[Span]()
    shown: dict[int, Line] = {}
    for kind, value in lexer.get_tokens(text):
        token = next((token for known, token in _TOKENS if kind in known), "")
        for place, part in enumerate(value.split("\n")):
            if place:
                shown[number] = tuple(found)
                number, found = number + 1, []
            if part:
                found.append((part.expandtabs(4), token))
    shown[number] = tuple(found)
    return {number: line for number, line in shown.items() if number >= first}


def _beginning(lines: Sequence[str], first: int) -> int:
    """Return the first line if it is near, else one where a definition seems to begin."""
    if first <= _BACK:
        return 1
    near = (number for number in range(first, first - _BACK, -1) if lines[number - 1].startswith(_BEGINS))
    return next(near, first)


def readable_stack(frames: Sequence[SourceLine]) -> str:
    """Return a stack with own code first, innermost first, then its libraries and native frames."""
    own = [one for one in frames if not one.is_native and not is_library(one.file)]
    native = [one for one in frames if one.is_native]
    library = [one for one in frames if not one.is_native and is_library(one.file)]
    if not own:
        return _BEHIND.join(one.text() for one in frames)
    through = []
    if library:
        through.append(f"{len(library)} of libraries ({library[0].text()})")
    if native:
        through.append(f"{len(native)} native ({native[0].text()})")
    own_text = _BEHIND.join(one.text() for one in own)
    return f"{own_text}; through {' and '.join(through)}" if through else own_text


def stack_lines(frames: Sequence[SourceLine], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the stack in at most ``STACK_ROWS`` lines."""
    escaped = glyphs.shown(readable_stack(frames))
    shown = wrap(escaped, max(width - 9, 8))
    if len(shown) > STACK_ROWS:
        last = f"{clip(shown[STACK_ROWS - 1], width - 11, '')} {glyphs.ellipsis}"
        shown = [*shown[: STACK_ROWS - 1], last]
    heads = [" stack  ", *(" " * 8 for _ in shown[1:])]
    return [((head, "dim"), (text, "value")) for head, text in zip(heads, shown, strict=True)]
