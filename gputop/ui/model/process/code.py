"""Code as a person reads it: in colours by what its words are, and a stack with one's own code first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.format import clip
from gputop.ui.model.look import Glyphs, Line, Span, wrap
from probes.code.source_files import is_library

STACK_ROWS = 3
_BEHIND = " < "  # its caller
_BACK = 400  # lines to look back for one at which nothing is open: no string, no bracket
_BEGINS = ("def ", "class ", "@", "import ", "from ", "async def ", "if __name__")
# by what a word is; meanings of the screen are reused, so every theme has a colour that can be read
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
    """Lines of a file with the token of each of their parts; none where the language is not known.

    Args:
        lines: All lines of the file.
        first: The first one wanted, counted from 1.
        last: The last one.
        path: The file: its name tells the language.
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
    """The file's first line where that is near, else one before at which a definition seems to begin."""
    if first <= _BACK:
        return 1
    near = (number for number in range(first, first - _BACK, -1) if lines[number - 1].startswith(_BEGINS))
    return next(near, first)


def readable_stack(frames: Sequence[SourceLine]) -> str:
    """One's own code first, innermost first; then in a word what it goes through.

    ``train.py:30 in mask() < train.py:60 in main(), through torch (4), native (6: libcudart.so.12)``.
    """
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
    """The stack in at most ``STACK_ROWS`` lines."""
    escaped = glyphs.shown(readable_stack(frames))
    shown = wrap(escaped, max(width - 9, 8))
    if len(shown) > STACK_ROWS:
        last = f"{clip(shown[STACK_ROWS - 1], width - 11, '')} {glyphs.ellipsis}"
        shown = [*shown[: STACK_ROWS - 1], last]
    heads = [" stack  ", *(" " * 8 for _ in shown[1:])]
    return [((head, "dim"), (text, "value")) for head, text in zip(heads, shown, strict=True)]
