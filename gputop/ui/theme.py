"""The colour of each token: the only place where a meaning becomes a colour.

Only loss of time gets a loud colour: orange for what the host costs, vermilion for lost events, errors
and a dead source. High utilisation is good and stays blue. No red and green pair; a glyph or a word
stands beside every colour, so that ``NO_COLOR`` loses nothing.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

BACKGROUND = "#11151a"
_TEXT, _DIM, _FAINT = "#c5ccd6", "#8a94a3", "#5f6978"
_BLUE, _ORANGE, _VERMILION, _VIOLET, _GREY = "#6aa9e9", "#e8a13c", "#f2643d", "#b79af0", "#7f8896"

_STYLES: dict[str, Style] = {
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
    "busy": Style(color="#5795d6"),
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
    "badge.live": Style(color=BACKGROUND, bgcolor=_BLUE, bold=True),
    "badge.paused": Style(color=BACKGROUND, bgcolor=_ORANGE, bold=True),
    "badge.replay": Style(color=BACKGROUND, bgcolor=_VIOLET, bold=True),
    "badge.record": Style(color=BACKGROUND, bgcolor=_VIOLET, bold=True),
}
_MODIFIERS: dict[str, Style] = {
    "select": Style(bgcolor="#26384d"),
    "mark": Style(bgcolor="#1c242e"),
}


@lru_cache(maxsize=512)
def style_of(token: str) -> Style:
    """The style of a token, with its modifiers: ``alert+select``."""
    name, *modifiers = token.split("+")
    style = Style(bgcolor=BACKGROUND) + _STYLES[name]
    for modifier in modifiers:
        style += _MODIFIERS[modifier]
    return style
