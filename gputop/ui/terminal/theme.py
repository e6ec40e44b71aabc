"""The colour of each token.

Only lost time has a loud colour: orange for costs of the host, vermilion for lost events, errors and a failed
source. High utilisation is good and stays blue. There is no pair of red and green; a glyph or a word stands
beside every colour, so that ``NO_COLOR`` loses nothing.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

BACKGROUND = "#11151a"
_TEXT, _DIM, _FAINT = "#c5ccd6", "#9aa4b2", "#8d97a5"
_BLUE, _ORANGE, _VERMILION, _VIOLET, _GREY = "#6aa9e9", "#e8a13c", "#f67c58", "#b79af0", "#949dab"
# one for each family of causes (gputop/analysis/causes/cause.py), and for calls of the same kind
CAUSES = {
    "S": "#ee8866", "D": "#eedd88", "C": "#ffaabb", "H": "#99ddff", "P": "#44bb99",
    "L": "#bbcc33", "K": "#c9a94f", "A": "#d9a6ff", "U": "#8fa5b3", "X": "#dddddd",
}  # fmt: skip

STYLES: dict[str, Style] = {
    "": Style(color=_TEXT),
    "value": Style(color="#eef2f7", bold=True),
    "dim": Style(color=_DIM),
    "faint": Style(color=_FAINT),
    "head": Style(color=_DIM, bold=True),
    "head.sort": Style(color="#eef2f7", bold=True),
    "rule": Style(color="#333c48"),
    "rule.focus": Style(color=_BLUE),
    "title": Style(color=_TEXT, bold=True),
    "title.focus": Style(color=_BLUE, bold=True),
    "more": Style(color=_VIOLET),
    "busy": Style(color="#659fda"),
    "host": Style(color=_ORANGE, bold=True),
    "warn": Style(color=_ORANGE),
    "alert": Style(color=_VERMILION, bold=True),
    "unknown": Style(color=_GREY),
    "unsure": Style(color=_DIM),
    "pending": Style(color=_VIOLET),
    "exited": Style(color=_FAINT),
    "cursor": Style(color=_BLUE, bold=True),
    "chrome": Style(color=_VIOLET),
    "key": Style(color=_BLUE),
    **{f"cause.{letter}": Style(color=color) for letter, color in CAUSES.items()},
    "badge.live": Style(color=BACKGROUND, bgcolor=_BLUE, bold=True),
    "badge.paused": Style(color=BACKGROUND, bgcolor=_ORANGE, bold=True),
    "badge.replay": Style(color=BACKGROUND, bgcolor=_VIOLET, bold=True),
    "badge.record": Style(color=BACKGROUND, bgcolor=_VIOLET, bold=True),
}
MODIFIERS: dict[str, Style] = {
    "select": Style(bgcolor="#1d2f45"),
    "mark": Style(bgcolor="#1c242e"),
}


@lru_cache(maxsize=512)
def style_of(token: str) -> Style:
    """Return the style of a token with modifiers: ``alert+select``."""
    name, *modifiers = token.split("+")
    style = Style(bgcolor=BACKGROUND) + STYLES[name]
    for modifier in modifiers:
        style += MODIFIERS[modifier]
    return style
