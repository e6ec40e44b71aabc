"""The WHY panel in one line, for pages and small screens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from gputop.format import brief
from gputop.ui.model.answer.why import PanelCause, Why
from gputop.ui.model.answer.whylines import LEVEL_TOKENS, aged, all_idle_text, range_text, step_text
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged, spread

LEAST_TITLE = 10  # letters of a cut title
LEAST_BESIDE_PLACE = 5  # letters of a cut title where else the source line would be left out
USUAL_WIDTH = 80  # columns, from which on the source line is preferred to the cost
_WHOLE = 10_000  # longer than any title
# optional parts of a narrow line
_OTHERS, _DOUBTS, _PLACE, _COST, _CLASS = "others", "doubts", "place", "cost", "class"
_SHORT_PLACE, _LEAST_PLACE = "short place", 14  # with a cut file name
_EVERY = frozenset((_OTHERS, _DOUBTS, _PLACE, _COST, _CLASS))
Piece = tuple[str, Span]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """Words before the title, the title, which may be cut, and words after it, each with its part."""

    before: Sequence[Piece]
    title: str
    after: Sequence[Piece]
    token: str

    def line(self, title: str, chosen: Set[str]) -> list[Span]:
        """Return the words with this title and the chosen parts."""
        shown = [*self.before, ("", (title, self.token)), *self.after]
        return [span for part, span in shown if not part or part in chosen]


def verdict_line(why: Why, width: int, glyphs: Glyphs, *, focused: bool) -> Line:
    """Return the line; the number, the cause and the level are never left out."""
    lead: list[Span] = [
        (glyphs.cursor if focused else " ", "cursor"),
        ("WHY ", "title.focus" if focused else "head"),
    ]
    body = _body(why, glyphs)
    right: list[Span] = []
    if why.when:
        right = [(f" {why.when}", "warn" if why.old else "dim"), (" [Enter]" if focused else " [w]", "key")]
    room = width - line_width(lead) - line_width(body.line("", frozenset()))
    title = glyphs.clip(brief(body.title, room), room) if room > 1 else ""
    line = glyphs.line([*lead, *body.line(title, frozenset())], width)
    for chosen, least, tail in _tellings(right, width):
        room = max(width - line_width(lead) - line_width(tail) - 1 - line_width(body.line("", chosen)), 0)
        whole = brief(body.title, room)
        title = glyphs.clip(whole, room)
        if title == whole or len(title) >= least:
            line = merged(spread([*lead, *body.line(title, chosen)], tail, width))
            break
    return aged(line) if why.old else line


def _tellings(right: list[Span], width: int) -> Iterator[tuple[Set[str], int, list[Span]]]:
    """Yield (parts, least length of a cut title, right end), the fullest first."""
    yield _EVERY, _WHOLE, right
    yield _EVERY, _WHOLE, right[-1:]
    # then the least important parts go; the title is cut before the source line goes
    most = _EVERY - {_OTHERS}
    yield most, _WHOLE, right[-1:]
    yield most, LEAST_TITLE, right[-1:]
    yield most, LEAST_TITLE, []
    most -= {_DOUBTS}
    yield most, LEAST_TITLE, []
    if width >= USUAL_WIDTH:
        yield most - {_COST}, LEAST_BESIDE_PLACE, []
        yield most - {_COST, _PLACE} | {_SHORT_PLACE}, LEAST_BESIDE_PLACE, []
    yield most - {_PLACE}, LEAST_TITLE, []
    yield frozenset((_CLASS,)), LEAST_TITLE, []
    yield frozenset(), LEAST_TITLE, []


def _body(why: Why, glyphs: Glyphs) -> _Sentence:
    """Return the cause with its class, else the class, else why there is neither."""
    text = glyphs.shown(why.text)
    if not why.gpus:
        return _Sentence([("", ("? ", "unknown"))], text, [], "unknown")
    cause = why.causes[0] if why.causes else None
    calm = why.calm or cause is None or cause.overhead
    token = "dim" if why.calm else "warn" if calm or cause is None else LEVEL_TOKENS.get(cause.level, "warn")
    unsure = " (hint)" if why.level == "hint" else ""
    before: list[Piece] = [("", (f"{glyphs.dot if calm else glyphs.warning} ", token))]
    before += [(_CLASS, (f"{why.kind}{unsure}, ", token))] if why.kind else []
    before.append(("", (f"idle {all_idle_text(why.gpus, glyphs)}: ", token)))
    after: list[Piece] = [(_DOUBTS, (f" {glyphs.warning} {doubt}", "warn")) for doubt in why.doubts]
    if cause is None:
        level: list[Piece] = [("", (f" ({why.level})", "dim"))] if why.level else []
        return _Sentence(before, text, [*level, *after], "dim")
    others = why.more + len(why.causes) - 1
    after += [(_OTHERS, (f" +{others} more", "dim"))] if others else []
    title = glyphs.shown(cause.title)
    return _Sentence(before, title, [*_loss(cause, token, glyphs), *after], "")


def _loss(cause: PanelCause, token: str, glyphs: Glyphs) -> list[Piece]:
    """Return a finding's cause and level, its cost, its line."""
    share = range_text(cause.low, cause.high, glyphs) + (" lost" if cause.overhead else "")
    cost = step_text(replace(cause, step_ns=None), glyphs) or share
    pieces: list[Piece] = [("", (f" ({cause.number} {cause.level})", token)), (_COST, (f" {cost}", "value"))]
    if cause.line:
        place = glyphs.shown(cause.line)
        pieces.append((_PLACE, (f" at {place}", "value")))
        pieces.append((_SHORT_PLACE, (f" at {glyphs.clip_place(place, _LEAST_PLACE)}", "value")))
    return pieces
