"""Screens that stand over another one, which goes on below them."""

from __future__ import annotations

from typing import Any

from textual.command import CommandPalette
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


def lines_below(screen: Screen[Any], crop: Region) -> list[Strip]:
    """The lines of the screen below as they were painted there: Textual would style each sign anew.

    Args:
        screen: The one on top.
        crop: The part that is painted.
    """
    stack: list[Screen[Any]] = list(screen.app.screen_stack)
    below = stack[stack.index(screen) - 1]
    lines = below._compositor.render_strips()[crop.y : crop.bottom]
    return [line.crop(crop.x, crop.right) for line in lines]


class Actions(CommandPalette):
    """Finds an action by its name."""

    render_lines = lines_below
