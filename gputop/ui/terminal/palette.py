"""The colour of each token, and themes, which replace these colours, also by those of the terminal.

Only lost time has a loud colour: orange for costs of the host, vermilion for lost events, errors and a failed
source. High utilisation is good and stays blue. There is no pair of red and green; a glyph or a word stands
beside every colour, so that ``NO_COLOR`` loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.console import Console
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

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


MONO = "mono"
_SELECT, _MARK = "#1d2f45", "#1c242e"  # backgrounds
_LIGHT = {
    BACKGROUND: "#fbfbf8", "#c5ccd6": "#24292f", "#9aa4b2": "#57606a", "#8d97a5": "#59636e",
    "#eef2f7": "#000000", "#333c48": "#c2c8ce", "#6aa9e9": "#0550ae", "#659fda": "#0860c4",
    "#e8a13c": "#8a4600", "#f67c58": "#b42318", "#b79af0": "#6639ba", "#949dab": "#59636e",
    _SELECT: "#d3e4fa", _MARK: "#ebeef2",
    "#ee8866": "#a33b00", "#eedd88": "#6b5900", "#ffaabb": "#a3204f", "#99ddff": "#00607a",
    "#44bb99": "#00664a", "#bbcc33": "#2f6b00", "#c9a94f": "#783c14", "#d9a6ff": "#7a2ba0",
    "#8fa5b3": "#4a5a66", "#dddddd": "#4d4d4d",
}  # fmt: skip
_CONTRAST = {
    BACKGROUND: "#000000", "#c5ccd6": "#ffffff", "#9aa4b2": "#d0d0d0", "#8d97a5": "#b0b0b0",
    "#eef2f7": "#ffffff", "#333c48": "#8a8a8a", "#6aa9e9": "#7cc4ff", "#659fda": "#7cc4ff",
    "#e8a13c": "#ffc04d", "#f67c58": "#ff8c66", "#b79af0": "#d7b8ff", "#949dab": "#c0c0c0",
    _SELECT: "#003a70", _MARK: "#303030",
    "#ee8866": "#ff9d7a", "#eedd88": "#fff0a0", "#ffaabb": "#ffb8c6", "#99ddff": "#b0e6ff",
    "#44bb99": "#5ddcb8", "#bbcc33": "#d3e64d", "#c9a94f": "#e0c268", "#d9a6ff": "#e4bdff",
    "#8fa5b3": "#b3c6d2", "#dddddd": "#f0f0f0",
}  # fmt: skip
# the terminal's own sixteen; faint in place of grey, which may be unreadable
_SIXTEEN = {
    BACKGROUND: "default", "#c5ccd6": "default", "#9aa4b2": "default", "#8d97a5": "default",
    "#eef2f7": "default", "#333c48": "default", "#6aa9e9": "cyan", "#659fda": "cyan",
    "#e8a13c": "yellow", "#f67c58": "red", "#b79af0": "magenta", "#949dab": "default",
    **dict.fromkeys(CAUSES.values(), "yellow"),  # too few colours: causes have letters
}  # fmt: skip
_FAINT_COLORS = frozenset({"#8d97a5", "#333c48", "#949dab"})


@dataclass(frozen=True, slots=True)
class Palette:
    """A theme."""

    name: str  # its name on the screen and in the preferences
    colors: Mapping[str, str]  # the replacement of each colour of ``STYLES``
    native: bool = False  # True for the terminal's own colours and background
    colored: bool = True  # True if it has colours
    light: bool = False  # True for a bright background

    @property
    def background(self) -> str:
        """The background as a colour of Textual's CSS."""
        return "ansi_default" if self.native else self.colors.get(BACKGROUND, BACKGROUND)

    @property
    def letters(self) -> bool:
        """True if causes have letters, since there are too few colours."""
        return self.native

    def style(self, token: str) -> Style:
        """The style of a token (see ``gputop.ui.model.look``)."""
        return _style(self.name, token)

    def theme(self) -> Theme:
        """Return the theme of Textual's own widgets: borders, tabs, keys, dialogs."""
        if self.native:
            return Theme(
                self.name,
                primary="ansi_cyan" if self.colored else "ansi_default",
                warning="ansi_yellow",
                error="ansi_red",
                foreground="ansi_default",
                background="ansi_default",
                surface="ansi_default",
                panel="ansi_default",
                boost="ansi_default",
                ansi=True,
                variables={
                    **BUILTIN_THEMES["ansi-dark"].variables,
                    **dict.fromkeys(("rule", "dim", "select", "lit"), "ansi_default"),
                },
            )
        text, dim, rule, blue, orange, red, violet = (
            self.colors.get(color, color)
            for color in ("#c5ccd6", "#9aa4b2", "#333c48", "#6aa9e9", "#e8a13c", "#f67c58", "#b79af0")
        )
        select, mark = self.colors.get(_SELECT, _SELECT), self.colors.get(_MARK, _MARK)
        return Theme(
            self.name,
            primary=blue,
            secondary=violet,
            accent=violet,
            warning=orange,
            error=red,
            success=blue,
            foreground=text,
            background=self.background,
            surface=mark,
            panel=mark,
            dark=not self.light,
            variables={
                "rule": rule,
                "dim": dim,
                "select": select,
                "lit": self.colors.get("#eef2f7", "#eef2f7"),
            },
        )


PALETTES: dict[str, Palette] = {
    palette.name: palette
    for palette in (
        Palette("dark", {}),
        Palette("light", _LIGHT, light=True),
        Palette("contrast", _CONTRAST),
        Palette("terminal", _SIXTEEN, native=True),
        Palette(MONO, {}, native=True, colored=False),
    )
}


@lru_cache(maxsize=2_048)
def _style(name: str, token: str) -> Style:
    palette, style = PALETTES[name], style_of(token)
    color, back = (c.name if c is not None else "" for c in (style.color, style.bgcolor))
    if not palette.native:
        return Style(
            color=palette.colors.get(color, color), bgcolor=palette.colors.get(back, back), bold=style.bold
        )
    # without own backgrounds, badges and the selected row are shown in reverse
    reverse = back not in (BACKGROUND, _MARK)
    dim = color in _FAINT_COLORS and not reverse
    shown = palette.colors.get(color, color) if palette.colored and color != BACKGROUND else None
    if palette.colored and color == BACKGROUND:
        shown = palette.colors.get(back, back)
    bold = style.bold or back == _MARK
    return Style(color=shown, bold=bold, dim=dim, reverse=reverse)


def palette_for(wanted: str, *, no_color: bool, color_system: str | None) -> Palette:
    """Return the theme to start with.

    Args:
        wanted: The name in the preferences, or "".
        no_color: True if NO_COLOR is set.
        color_system: The terminal's colours, by Rich's names: ``standard`` is sixteen.
    """
    if no_color or color_system is None:
        return PALETTES[MONO]
    if color_system == "standard" and wanted != MONO:
        return PALETTES["terminal"]
    return PALETTES[wanted or "dark"]


def color_system_of(environ: Mapping[str, str]) -> str | None:
    """Return the terminal's colours: ``standard`` (16), ``256``, ``truecolor``, None for none."""
    system = environ.get("TEXTUAL_COLOR_SYSTEM", "auto")
    kept = {name: value for name, value in environ.items() if name != "NO_COLOR"}
    return Console(color_system=system, force_terminal=True, _environ=kept).color_system  # type: ignore[arg-type]


def following(name: str, color_system: str | None) -> Palette:
    """Return the next theme that the terminal can show."""
    names = [n for n, p in PALETTES.items() if p.native or color_system != "standard"]
    return PALETTES[names[(names.index(name) + 1) % len(names)]]
