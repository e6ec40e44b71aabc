"""The WHY panel on small screens, from 3 lines of 20 columns on: class, cause, line, fix, by importance.

Each begins a line of its own if needed; further lines are for the fix, then for a cut title.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.analysis.answer.wording import devices_text
from gputop.format import brief, width_of
from gputop.ui.model.answer.why import Why
from gputop.ui.model.answer.whylines import (
    LEVEL_TOKENS,
    aged,
    all_idle_text,
    figure,
    range_text,
    step_text,
    unit_of,
)
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged, wrap

_LEAD = " FIX "


def narrow_lines(why: Why, width: int, height: int, glyphs: Glyphs, *, focused: bool) -> list[Line]:
    head = _head(why, width, glyphs, focused=focused)
    lines = [head]
    if not why.gpus:
        head = (*head, ("? ", "unknown"))
        wrapped = wrap(glyphs.shown(why.text), max(width - line_width(head), 8))
        most = max(height - 1, 1)
        wrapped = wrapped if len(wrapped) <= most else [*wrapped[: most - 1], " ".join(wrapped[most - 1 :])]
        blank = " " * line_width(head)
        lines = [
            merged([(blank, ""), (text, "unknown")] if place else [*head, (text, "unknown")])
            for place, text in enumerate(wrapped)
        ]
    elif why.causes:
        lines += _cause(why, width, height - len(lines), glyphs)
        lines += _fix(why, width, height - len(lines), glyphs)
    else:
        wrapped = wrap(glyphs.shown(why.text), max(width - 2, 8))
        lines += [((" " + text, "dim"),) for text in wrapped]
    shown = [glyphs.line(line, width) for line in lines[:height]]
    return [aged(line) for line in shown] if why.old else shown


def _head(why: Why, width: int, glyphs: Glyphs, *, focused: bool) -> Line:
    """Return the class, the GPUs' idle time and its age."""
    spans: list[Span] = [
        (glyphs.cursor if focused else " ", "cursor"),
        ("WHY ", "title.focus" if focused else "title"),
    ]
    if why.kind:
        unsure = " (hint)" if why.level == "hint" else ""
        spans.append((f"{why.kind}{unsure}  ", "" if why.calm else "value"))
    if why.gpus:
        many = f"{devices_text([gpu.label for gpu in why.gpus])} "
        idle = f"idle {all_idle_text(why.gpus, glyphs)}"
        whole = line_width(spans) + width_of(many + idle) <= width
        spans.append((many + idle if whole else idle, "dim" if why.calm else "value"))
    for text, token in (
        *((f"  {glyphs.warning} {doubt}", "warn") for doubt in why.doubts),
        *([(f"  {why.when}", "warn" if why.old else "dim")] if why.when else []),
    ):
        if line_width(spans) + width_of(text) <= width:
            spans.append((text, token))
    return merged(spans)


def _cause(why: Why, width: int, room: int, glyphs: Glyphs) -> list[Line]:
    """Return the first cause with number and level, its source line, its cost."""
    cause = why.causes[0]
    token = "dim" if why.calm else LEVEL_TOKENS.get(cause.level, "warn")
    tail = f" {cause.number} {cause.level}"
    place = f" at {glyphs.shown(cause.line)}" if cause.line else ""
    cost = step_text(cause, glyphs) or range_text(cause.low, cause.high, glyphs)
    # one line is for the fix, if any
    rows = max(room - bool(place) - (why.fix is not None), 1)
    title = glyphs.shown(cause.title)
    titles = _title(title, width - 1, width_of(tail), min(rows, 2), glyphs)
    first: list[list[Span]] = [[(" " + text, "value")] for text in titles]
    first[-1].append((tail, token))
    beside = width - line_width(first[-1])
    if place and width_of(place) <= beside:
        first[-1].append((place, "value"))
        place = ""
    lines = [merged(spans) for spans in first]
    if place:
        below: list[Span] = [(glyphs.clip(place, width), "value")]
        if width_of(place) + 2 + width_of(cost) <= width:
            below.append((f"  {cost}", ""))
            cost = ""
        lines.append(merged(below))
    if cost and line_width(lines[-1]) + 2 + width_of(cost) <= width:
        lines[-1] = merged([*lines[-1], (f"  {cost}", "")])
    elif cost and len(lines) < room - (why.fix is not None):
        lines.append(((f" {cost}", ""),))
    return lines


def _title(title: str, width: int, tail: int, rows: int, glyphs: Glyphs) -> list[str]:
    """Return the title in one or two lines with ``tail`` columns left at its end; brackets are cut first."""
    short = brief(title, width - tail)
    if width_of(short) <= width - tail or rows < 2:
        return [glyphs.clip(short, max(width - tail, 8))]
    first, *rest = wrap(brief(title, 2 * width - tail), max(width, 8))
    return [first, glyphs.clip(" ".join(rest), max(width - tail, 8))] if rest else [first, ""]


def _fix(why: Why, width: int, room: int, glyphs: Glyphs) -> Sequence[Line]:
    """Return the change, then its largest saving."""
    fix = why.fix
    if fix is None or room < 1:
        return []
    unit, name = unit_of(fix.saves_ns)
    saves = f"saves up to {figure(fix.saves_ns / unit)} {name}{'/step' if fix.per_step else ''}"
    wrapped = wrap(glyphs.shown(fix.text), max(width - len(_LEAD) - 1, 8))
    if len(wrapped) > room:
        rest = " ".join(wrapped[room - 1 :])
        wrapped = [*wrapped[: room - 1], glyphs.clip(rest, max(width - len(_LEAD) - 1, 8))]
    lines: list[Line] = [
        ((_LEAD if place == 0 else " " * len(_LEAD), "head"), (text, "value"))
        for place, text in enumerate(wrapped)
    ]
    if not fix.saves_ns:
        return lines
    if line_width(lines[-1]) + 2 + width_of(saves) <= width:
        lines[-1] = (*lines[-1], (f"  {saves}", "busy"))
    elif len(lines) < room:
        lines.append(((" " * len(_LEAD) + saves, "busy"),))
    return lines
