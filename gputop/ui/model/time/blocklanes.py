"""What a cell of a lane is drawn as: a block in the colour of its meaning, or a letter without colours.

One meaning a letter and one a colour: calls, waits of threads and causes of idle time that are about the
same thing share both (``S`` a sync call, and a GPU that waits for one). Every cell has a sign that the legend
names: what is not known, and what was not seen, have their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    FAMILIES,
    FINDING,
    GONE,
    LOST,
    OTHER_RANGES,
    OUTSIDE,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    WHOLE,
)
from gputop.analysis.evidence.blocking import Wait
from gputop.format import clip, escape_text
from gputop.ui.model.look import Glyphs, Line, Span, merged
from gputop.ui.model.process.waterfall import LETTERS, call_token
from gputop.ui.model.time.lanehistory import Cells

_NAME = 24  # columns of a range in the legend
_FAMILY = {family.letter: family for family in FAMILIES}
# waits that are about what a family is about; the others are reported as blocked
_WAITS = {
    Wait.LOCK: "L", Wait.SOCKET: "K", Wait.DISK: "K", Wait.FAULT: "K", Wait.MEMORY: "K", Wait.DATA: "D",
    Wait.REQUEST: "U",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """How a lane is drawn.

    Attributes:
        glyphs: The signs there are.
        letters: True if colours cannot tell meanings apart: none, sixteen, or ASCII.
    """

    glyphs: Glyphs
    letters: bool = False

    @property
    def by_letters(self) -> bool:
        """True if meanings have letters."""
        return self.letters or self.glyphs.ascii


@dataclass(frozen=True, slots=True)
class Sign:
    """One kind of cell: what is drawn, in which token, and what the legend says of it ("" for nothing).

    ``rank`` is its place in the legend: what has no colour of its own first.
    """

    glyph: str
    token: str
    word: str
    rank: int = 1


NO_MARK = Sign(" ", "", "")


def _pick(look: Look, unicode: str, ascii_: str) -> str:
    return ascii_ if look.glyphs.ascii else unicode


def not_seen(look: Look, *, yet: bool = False) -> Sign:
    """Time that no explanation has told of: before the first, between two, or the newest: not yet."""
    return Sign(look.glyphs.dot, "faint", "not explained yet" if yet else "not seen", 0)


def unknown(look: Look) -> Sign:
    """Seen, but unknown."""
    return Sign(_pick(look, "░", ":"), "unknown", "unknown", 0)


def _busy(look: Look, *, sure: bool = True) -> Sign:
    if sure:
        return Sign(look.glyphs.full, "busy", "busy", 0)
    return Sign(_pick(look, "▓", "="), "busy", "presumably busy", 0)


def _cause(look: Look, letter: str, *, sure: bool = True) -> Sign:
    """A family of causes: solid where it is proved, hatched or a small letter where it is estimated."""
    token, word = f"cause.{letter}", _FAMILY[letter].word
    if look.by_letters:
        return Sign(letter if sure else letter.lower(), token, word if sure else f"{word} (estimated)")
    return Sign("█" if sure else "▒", token, word if sure else f"{word} (estimated)")


def _call(look: Look, kind: int) -> Sign:
    return Sign(LETTERS[kind] if look.by_letters else "█", call_token(kind), CALL_WORDS[kind], 2)


def gpu_signs(shares: Cells, known: Cells, look: Look) -> list[Sign]:
    """A GPU: at work, without work by cause, or not known; ``shares`` and ``known`` as of ``LaneHistory``."""
    families = len(FAMILIES)
    proved, assumed = shares[PROVED : PROVED + families], shares[ASSUMED : ASSUMED + families]
    idle, working = (proved + assumed).sum(axis=0), shares[BUSY] + shares[PRESUMED]
    most = np.argmax(np.stack([known * WHOLE - idle - working, idle, working]), axis=0)
    certain = shares[BUSY] >= shares[PRESUMED]
    cause = np.argmax(proved + assumed, axis=0) + np.where(
        proved.sum(axis=0) >= assumed.sum(axis=0), 0, families
    )
    table = [not_seen(look), unknown(look), _busy(look), _busy(look, sure=False)]
    first = len(table)
    for sure in (True, False):
        table += [_cause(look, family.letter, sure=sure) for family in FAMILIES]
    code = np.where(most == 0, 1, np.where(most == 1, first + cause, np.where(certain, 2, 3)))
    return [table[one] for one in np.where(known > 0, code, 0).tolist()]


def idle_range(shares: Cells, known: Cells, error: float = 0.0) -> tuple[float, float] | None:
    """(proved, at most) idle share of a GPU's time, 0 to 1, as the WHY panel has it; None without any.

    Args:
        shares, known: As of ``LaneHistory``.
        error: How far the estimate may be off, of the time; never more than what is estimated to be busy.
    """
    whole = int(known.sum()) * WHOLE - int(shares[OUTSIDE].sum())
    if whole <= 0:
        return None
    proved, presumed = int(shares[PROVED:ASSUMED].sum()), int(shares[PRESUMED].sum())
    working = int(shares[BUSY].sum()) + max(presumed - int(error * whole), 0)
    return proved / whole, max(whole - working, proved) / whole


def state_signs(shares: Cells, known: Cells, look: Look) -> list[Sign]:
    """A thread: on a CPU, waiting for one, blocked by what, ended, or not known."""
    rule, blocked = _pick(look, "▂", "_"), shares[BLOCKED:]
    about = [letter for _wait, letter in sorted(_WAITS.items())]
    named = np.stack([blocked[wait] for wait in sorted(_WAITS)])
    asleep = blocked.sum(axis=0) - named.sum(axis=0)
    rest = known * WHOLE - shares.sum(axis=0)
    families = sorted(set(about))
    of_family = [named[[one == letter for one in about]].sum(axis=0) for letter in families]
    parts = [rest, shares[RUNNING], shares[QUEUED], shares[GONE], asleep, *of_family]
    table = [
        unknown(look), Sign(look.glyphs.full, "busy", "busy", 0), _cause(look, "P"),
        Sign(_pick(look, "×", "/"), "faint", "ended", 0), Sign(rule, "dim", "blocked, asleep", 0),
        *(_cause(look, letter) for letter in families),
    ]  # fmt: skip
    most = np.argmax(np.stack(parts), axis=0)
    table.append(not_seen(look))
    return [table[one] for one in np.where(known > 0, most, len(table) - 1).tolist()]


def call_signs(shares: Cells, known: Cells, look: Look) -> list[Sign]:
    """The CUDA calls that a thread is in, where they take most of a cell."""
    between = Sign(look.glyphs.rule, "rule", "no call", 0)
    table = [not_seen(look), between, *(_call(look, kind) for kind in range(len(CALL_WORDS)))]
    inside = 2 * shares.sum(axis=0) >= known * WHOLE
    code = np.where(inside, 2 + np.argmax(shares, axis=0), 1)
    return [table[one] for one in np.where(known > 0, code, 0).tolist()]


def range_signs(shares: Cells, known: Cells, names: Sequence[str], look: Look) -> list[Sign]:
    """The range that a thread is in for most of a cell, by its number; ``names`` are those of the rows."""
    table = [not_seen(look), Sign(_pick(look, "┄", "'"), "rule", "no range", 0)]
    for number, name in enumerate(names, 1):
        sign = str(number) if name != OTHER_RANGES else "+"
        table.append(Sign(sign, "value", _short_path(name) if name != OTHER_RANGES else "other ranges", 3))
    most = np.argmax(np.stack([known * WHOLE - shares.sum(axis=0), *shares]), axis=0)
    return [table[one] for one in np.where(known > 0, 1 + most, 0).tolist()]


def _short_path(name: str) -> str:
    """The innermost names of a path, as many as the legend has room for."""
    parts = name.split("/")
    while len(parts) > 1 and len("/".join(parts)) > _NAME:
        del parts[0]
    return clip(escape_text("/".join(parts)), _NAME)


def mark_signs(marks: Cells, chosen: Iterable[int], marked: Iterable[int], look: Look) -> list[Sign]:
    """Where records are missing, and the worst moments of findings; in ``chosen`` cells the selected one.

    Cells that are ``marked`` hold a marker or an alert.
    """
    table = [
        NO_MARK, Sign("!", "warn", "finding", 0), Sign("~", "alert", "records lost", 0),
        Sign(look.glyphs.descending, "alert", "selected finding", 0), Sign("M", "value", "marker", 0),
    ]  # fmt: skip
    code = np.where(marks[FINDING] > 0, 1, 0)
    code[[cell for cell in chosen if 0 <= cell < len(code)]] = 3
    code[[cell for cell in marked if 0 <= cell < len(code)]] = 4
    return [table[one] for one in np.where(marks[LOST] > 0, 2, code).tolist()]


def runs_of(signs: Sequence[Sign]) -> list[tuple[Sign, int]]:
    """A lane in runs of equal cells."""
    return [(next(one for one in same), 1 + sum(1 for _ in same)) for _id, same in groupby(signs, id)]


def spans_of(runs: Sequence[tuple[Sign, int]], repeat: int) -> Line:
    """A lane, each of its cells ``repeat`` columns wide."""
    return merged([(sign.glyph * count * repeat, sign.token) for sign, count in runs])


def legend(signs: Iterable[Sign]) -> list[list[Span]]:
    """What each sign means, those for what is not known first; one entry for each sign in its token."""
    words: dict[tuple[str, str], list[str]] = {}
    order: dict[tuple[str, str], Any] = {}
    for place, sign in enumerate(dict.fromkeys(sign for sign in signs if sign.word)):
        key = sign.glyph, sign.token
        order.setdefault(key, (sign.rank, place))
        if sign.word not in words.setdefault(key, []):
            words[key].append(sign.word)
    ordered = sorted(words, key=lambda key: order[key])
    return [[(glyph, token), (f" {' / '.join(words[glyph, token])}", "dim")] for glyph, token in ordered]
