"""Lines of text with style tokens, and the two sets of glyphs.

A token names a meaning (``alert``), not a colour, which ``gputop.ui.terminal.palette`` defines. Tokens can be
joined with ``+``: ``alert+select`` is an alert within the selected row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputop.format import clip, clip_place, escape_text, fit, width_of

Span = tuple[str, str]
Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of a screen, and texts made of them; text from outside goes through ``shown``."""

    cursor: str
    storm: str
    exited: str
    warning: str
    dot: str
    rule: str
    ellipsis: str
    ascending: str
    descending: str
    play: str
    pause: str
    record: str
    position: str
    track: str
    pending: str
    separator: str
    full: str
    dash: str
    ascii: bool = False

    def shown(self, text: str) -> str:
        """Return text from outside, escaped."""
        return escape_text(text, ascii_only=self.ascii)

    def clip(self, text: str, width: int) -> str:
        """Return the text in at most ``width`` columns."""
        return clip(text, width, self.ellipsis)

    def clip_place(self, place: str, width: int) -> str:
        """Return ``file.py:12`` in at most ``width`` columns; the file's name is cut, not the line."""
        return clip_place(place, width, self.ellipsis)

    def fit(self, text: str, width: int, *, right: bool = False) -> str:
        """Return the text in exactly ``width`` columns."""
        return fit(text, width, right=right, ellipsis=self.ellipsis)

    def line(self, spans: Sequence[Span], width: int, *, token: str = "") -> Line:
        """Return spans in exactly ``width`` columns."""
        return fit_line(spans, width, token=token, ellipsis=self.ellipsis)


UNICODE = Glyphs(
    cursor="›", storm="▲", exited="✕", warning="▲", dot="·", rule="─", ellipsis="…", ascending="▴",
    descending="▾", play="▶", pause="‖", record="●", position="●", track="─", pending="▸", separator="│",
    full="█", dash="–",
)  # fmt: skip
ASCII = Glyphs(
    cursor=">", storm="!", exited="x", warning="!", dot=".", rule="-", ellipsis="~", ascending="^",
    descending="v", play=">", pause="=", record="*", position="o", track="-", pending=">", separator="|",
    full="#", dash="-", ascii=True,
)  # fmt: skip


def line_width(line: Sequence[Span]) -> int:
    return sum(width_of(text) for text, _ in line)


def fit_line(line: Sequence[Span], width: int, *, token: str = "", ellipsis: str = "…") -> Line:
    """Return the line in exactly ``width`` columns, cut with an ellipsis or padded with ``token``."""
    kept: list[Span] = []
    room = width
    for text, style in line:
        columns = width_of(text)
        if columns > room:
            kept.append((_fill(clip(text, room, ellipsis), room), style))
            return tuple(kept)
        if columns:
            kept.append((text, style))
        room -= columns
    if room:
        kept.append((" " * room, token))
    return tuple(kept)


def _fill(text: str, width: int) -> str:
    # A wide character that did not fit leaves one column over.
    return text + " " * (width - width_of(text))


def merged(line: Sequence[Span]) -> Line:
    """Return the line with neighbours of the same token joined, which makes painting faster."""
    out: list[Span] = []
    for text, token in line:
        if out and out[-1][1] == token:
            out[-1] = (out[-1][0] + text, token)
        elif text:
            out.append((text, token))
    return tuple(out)


def trimmed(line: Line) -> Line:
    """Return the line without trailing blanks."""
    spans = list(line)
    while spans and not spans[-1][0].rstrip(" "):
        spans.pop()
    if spans:
        spans[-1] = (spans[-1][0].rstrip(" "), spans[-1][1])
    return tuple(spans)


def ascii_line(line: Line) -> Line:
    """Return the line in ASCII, of the same width: a last barrier after escaping."""
    return tuple((text if text.isascii() else _in_ascii(text), token) for text, token in line)


def _in_ascii(text: str) -> str:
    replaced = "".join(c if c.isascii() else "?" * width_of(c) for c in text)
    width = width_of(text)  # several characters can be one sign
    return _fill(clip(replaced, width, ""), width)


def spread(left: Sequence[Span], right: Sequence[Span], width: int, *, fill: Span = (" ", "")) -> Line:
    """Return left part, filler, right part in ``width`` columns; without room the right part is left out."""
    gap = width - line_width(left) - line_width(right)
    if gap < 1:
        return fit_line(left, width)
    return (*left, (fill[0] * gap, fill[1]), *right)


def plain(line: Sequence[Span]) -> str:
    return "".join(text for text, _ in line)


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most ``width`` columns, broken at spaces if possible."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if width_of(candidate) <= width:
            current = candidate
            continue
        if current:
            lines.append(current)
        while width_of(word) > width:
            head = clip(word, width, "") or word[:1]
            lines.append(head)
            word = word[len(head) :]
        current = word
    return [*lines, current] if current or not lines else lines


def paragraph(
    text: str,
    token: str,
    width: int,
    glyphs: Glyphs,
    *,
    indent: int = 1,
    lead: str = "",
    lead_token: str = "head",
) -> list[Line]:
    """Return an unescaped text in lines of at most ``width`` columns, further ones below its beginning.

    Args:
        text: The text.
        token: Its token.
        width: The width in columns.
        glyphs: The screen's glyphs.
        indent: Columns before it.
        lead: The text before its first line.
        lead_token: The token of ``lead``.
    """
    hang = indent + width_of(lead)
    first, *others = wrap(glyphs.shown(text), max(width - hang - 1, 8))
    start: Line = ((" " * indent + lead, lead_token if lead else ""), (first, token))
    return [start, *(((" " * hang, ""), (other, token)) for other in others)]
