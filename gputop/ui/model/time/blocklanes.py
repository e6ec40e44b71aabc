"""The cells of lanes: a block in the colour of its meaning, or a letter with few colours.

Calls, waits and causes about the same thing share colour and letter (``S``: a sync call, and a GPU that waits
for one). The legend names every sign; unknown time and time not seen have their own.
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
    SKIPPED,
    WHOLE,
)
from gputop.analysis.evidence.blocking import Wait
from gputop.format import clip, escape_text
from gputop.ui.model.look import Glyphs, Line, Span, merged
from gputop.ui.model.process.waterfall import LETTERS, call_token
from gputop.ui.model.time.lanehistory import Cells

_NAME = 24  # columns of a range in the legend
_FAMILY = {family.letter: family for family in FAMILIES}
# the families of waits; others are shown as blocked
_WAITS = {
    Wait.LOCK: "L", Wait.SOCKET: "K", Wait.DISK: "K", Wait.FAULT: "K", Wait.MEMORY: "K", Wait.DATA: "D",
    Wait.REQUEST: "U",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """How lanes are drawn."""

    glyphs: Glyphs  # the screen's glyphs
    letters: bool = False  # True with too few colours for all meanings

    @property
    def by_letters(self) -> bool:
        """True if meanings have letters."""
        return self.letters or self.glyphs.ascii


@dataclass(frozen=True, slots=True)
class Sign:
    """A kind of cell: its sign, its token, its word in the legend, or "", and the order there."""

    glyph: str
    token: str
    word: str
    rank: int = 1


NO_MARK = Sign(" ", "", "")


def _pick(look: Look, unicode: str, ascii_: str) -> str:
    return ascii_ if look.glyphs.ascii else unicode


def not_seen(look: Look, *, yet: bool = False) -> Sign:
    """Return the sign of time without an explanation: before the first, between two, or not yet."""
    return Sign(look.glyphs.dot, "faint", "not explained yet" if yet else "not seen", 0)


def skipped(look: Look) -> Sign:
    """Return the sign of time between two explanations, too far back for a light one."""
    return Sign(look.glyphs.dot, "unknown", "skipped: CPU budget", 0)


def with_skipped(signs: list[Sign], marks: Cells, look: Look) -> list[Sign]:
    """Return the cells of a lane, those of skipped time only as such."""
    sign = skipped(look)
    gone = (marks[SKIPPED] > 0).tolist()
    return [sign if skip and one == not_seen(look) else one for one, skip in zip(signs, gone, strict=False)]


def unknown(look: Look) -> Sign:
    """Return the sign of unknown time."""
    return Sign(_pick(look, "░", ":"), "unknown", "unknown", 0)


def _busy(look: Look, *, sure: bool = True) -> Sign:
    if sure:
        return Sign(look.glyphs.full, "busy", "busy", 0)
    return Sign(_pick(look, "▓", "="), "busy", "presumably busy", 0)


def _cause(look: Look, letter: str, *, sure: bool = True) -> Sign:
    """Return the sign of a family of causes: solid if proved, hatched or a small letter if estimated."""
    token, word = f"cause.{letter}", _FAMILY[letter].word
    if look.by_letters:
        return Sign(letter if sure else letter.lower(), token, word if sure else f"{word} (estimated)")
    return Sign("█" if sure else "▒", token, word if sure else f"{word} (estimated)")


def _call(look: Look, kind: int) -> Sign:
    return Sign(LETTERS[kind] if look.by_letters else "█", call_token(kind), CALL_WORDS[kind], 2)


def gpu_signs(shares: Cells, known: Cells, look: Look) -> list[Sign]:
    """Return a GPU's cells: busy, idle by cause, or unknown; arguments as of ``LaneHistory``."""
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
    """Return the (proved, largest) idle share of a GPU's time, 0 to 1, like the WHY panel, or None.

    Args:
        shares, known: As of ``LaneHistory``.
        error: The error of the estimate, as a share of the time; bounded by the estimated busy time.
    """
    whole = int(known.sum()) * WHOLE - int(shares[OUTSIDE].sum())
    if whole <= 0:
        return None
    proved, presumed = int(shares[PROVED:ASSUMED].sum()), int(shares[PRESUMED].sum())
    working = int(shares[BUSY].sum()) + max(presumed - int(error * whole), 0)
    return proved / whole, max(whole - working, proved) / whole


def state_signs(shares: Cells, known: Cells, look: Look) -> list[Sign]:
    """Return a thread's cells: on a CPU, waiting for one, blocked by family, ended, or unknown."""
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
    """Return a thread's calls, if they fill most of a cell."""
    between = Sign(look.glyphs.rule, "rule", "no call", 0)
    table = [not_seen(look), between, *(_call(look, kind) for kind in range(len(CALL_WORDS)))]
    inside = 2 * shares.sum(axis=0) >= known * WHOLE
    code = np.where(inside, 2 + np.argmax(shares, axis=0), 1)
    return [table[one] for one in np.where(known > 0, code, 0).tolist()]


def range_signs(shares: Cells, known: Cells, names: Sequence[str], look: Look) -> list[Sign]:
    """Return the range that fills most of each cell, by number; ``names`` are those of the rows."""
    table = [not_seen(look), Sign(_pick(look, "┄", "'"), "rule", "no range", 0)]
    for number, name in enumerate(names, 1):
        sign = str(number) if name != OTHER_RANGES else "+"
        table.append(Sign(sign, "value", _short_path(name) if name != OTHER_RANGES else "other ranges", 3))
    most = np.argmax(np.stack([known * WHOLE - shares.sum(axis=0), *shares]), axis=0)
    return [table[one] for one in np.where(known > 0, 1 + most, 0).tolist()]


def _short_path(name: str) -> str:
    """Return the innermost names of a path, as many as fit into the legend."""
    parts = name.split("/")
    while len(parts) > 1 and len("/".join(parts)) > _NAME:
        del parts[0]
    return clip(escape_text("/".join(parts)), _NAME)


def mark_signs(marks: Cells, chosen: Iterable[int], marked: Iterable[int], look: Look) -> list[Sign]:
    """Return the marks: lost records and the worst moments of findings.

    Args:
        marks: As of ``LaneHistory``.
        chosen: Cells of the selected finding.
        marked: Cells with a marker or an alert.
        look: How they are drawn.
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
    """Return a lane in runs of equal cells."""
    return [(next(one for one in same), 1 + sum(1 for _ in same)) for _id, same in groupby(signs, id)]


def spans_of(runs: Sequence[tuple[Sign, int]], repeat: int) -> Line:
    """Return a lane, each cell ``repeat`` columns wide."""
    return merged([(sign.glyph * count * repeat, sign.token) for sign, count in runs])


def legend(signs: Iterable[Sign]) -> list[list[Span]]:
    """Return an entry for each sign in its token, by rank: unknown time first."""
    words: dict[tuple[str, str], list[str]] = {}
    order: dict[tuple[str, str], Any] = {}
    for place, sign in enumerate(dict.fromkeys(sign for sign in signs if sign.word)):
        key = sign.glyph, sign.token
        order.setdefault(key, (sign.rank, place))
        if sign.word not in words.setdefault(key, []):
            words[key].append(sign.word)
    ordered = sorted(words, key=lambda key: order[key])
    return [[(glyph, token), (f" {' / '.join(words[glyph, token])}", "dim")] for glyph, token in ordered]
