"""Themes: every meaning has its look in each of them, whatever the terminal can show."""

from __future__ import annotations

import pytest
from rich.color import ColorSystem

from gputop.analysis.answer.picture import FAMILIES
from gputop.ui.terminal.palette import MODIFIERS, PALETTES, STYLES, following, palette_for

READABLE = 4.5  # WCAG 2, level AA


def test_every_token_has_its_place_in_every_theme() -> None:
    used = {
        color.name
        for style in (*STYLES.values(), *MODIFIERS.values())
        for color in (style.color, style.bgcolor)
        if color is not None
    }
    selected = {style.bgcolor.name for style in MODIFIERS.values() if style.bgcolor is not None}
    for palette in PALETTES.values():
        if palette.colored and palette.colors:
            known = set(palette.colors) | (selected if palette.native else set())
            assert used <= known, f"{palette.name} says nothing of {used - known}"


def test_no_two_meanings_look_alike_in_sixteen_colours() -> None:
    loud = {"alert", "host", "busy", "chrome"}
    codes = {
        PALETTES["terminal"].style(token).render("x", color_system=ColorSystem.STANDARD) for token in loud
    }
    assert len(codes) == len(loud)


def luminance(color: str) -> float:
    """The relative luminance of ``#rrggbb`` (WCAG 2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["dark", "light", "contrast"])
@pytest.mark.parametrize("row", ["", "+select", "+mark"])
def test_text_stands_out_from_its_background_in_a_selected_row_too(name: str, row: str) -> None:
    for token in STYLES:
        if token.startswith("rule") or (row and token.startswith("badge")):
            continue  # a line between panes is no text, and a badge stands in no row
        style = PALETTES[name].style(token + row)
        assert style.color is not None
        assert style.bgcolor is not None
        low, high = sorted((luminance(style.color.name), luminance(style.bgcolor.name)))
        assert (high + 0.05) / (low + 0.05) >= READABLE, token


@pytest.mark.parametrize("name", PALETTES)
@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
def test_no_two_causes_have_one_colour_unless_letters_distinguish_them(
    name: str, system: ColorSystem
) -> None:
    tokens = (*(f"cause.{family.letter}" for family in FAMILIES), "busy", "unknown")
    # not by Style.render, which remembers what it was asked for first
    colors = [PALETTES[name].style(token).color for token in tokens]
    codes = {color.downgrade(system).get_ansi_codes() if color else None for color in colors}
    assert (len(codes) == len(tokens)) != PALETTES[name].letters


def test_without_colours_what_is_selected_and_what_is_a_badge_is_reversed() -> None:
    mono = PALETTES["mono"]
    for token in STYLES:
        style = mono.style(token)
        assert style.color is None
        assert style.bgcolor is None
        assert bool(style.reverse) == token.startswith("badge")
        assert mono.style(f"{token}+select").reverse


def test_the_terminal_decides_which_themes_it_gets() -> None:
    assert palette_for("light", no_color=True, color_system="truecolor").name == "mono"
    assert palette_for("", no_color=False, color_system=None).name == "mono"
    assert palette_for("light", no_color=False, color_system="standard").name == "terminal"
    assert palette_for("light", no_color=False, color_system="256").name == "light"
    assert palette_for("", no_color=False, color_system="truecolor").name == "dark"
    assert following("terminal", "standard").name == "mono"
    assert following("mono", "standard").name == "terminal"
