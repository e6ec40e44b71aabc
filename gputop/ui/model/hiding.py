"""Panes that the user has hidden: their room goes to neighbours, whatever the layout is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gputop.ui.model.layout import Placed

# The key of a pane is its place here.
TOGGLED = ("gpus", "processes", "calls", "threads", "storms")
# Lines of chrome have the height they need: they may move, they do not grow.
_FIXED = frozenset({"header", "verdict", "banner", "storms", "transport", "footer"})
_ANCHORED = frozenset({"header", "verdict", "banner", "transport", "footer"})
_SEAM = 1  # columns that may lie between panes side by side


def without(placed: Iterable[Placed], hidden: Iterable[str]) -> tuple[Placed, ...]:
    """The layout without some of its panes; a pane that has no neighbour to give its room to stays.

    Args:
        placed: The whole layout.
        hidden: Names of panes; those that are not in the layout do not matter.
    """
    panes = tuple(placed)
    for name in hidden:
        hole = next((pane for pane in panes if pane.pane == name), None)
        if hole is not None:
            panes = _closed(hole, tuple(pane for pane in panes if pane is not hole)) or panes
    return panes


def _closed(hole: Placed, panes: Sequence[Placed]) -> tuple[Placed, ...] | None:
    """The panes with the hole filled, None when nobody can grow into it."""
    filled = _filled(hole, panes)
    if filled is not None:
        return filled
    for below in (True, False):
        step = _past(hole, panes, below=below)
        while step is not None:
            filled = _filled(*step)
            if filled is not None:
                return filled
            step = _past(*step, below=below)
    return None


def _filled(hole: Placed, panes: Sequence[Placed]) -> tuple[Placed, ...] | None:
    """The panes with neighbours grown into the hole, None when no neighbours can."""
    for neighbours, grown in (
        (_beside(hole, panes, left=True), lambda p: replace(p, width=hole.x + hole.width - p.x)),
        (_beside(hole, panes, left=False), lambda p: replace(p, x=hole.x, width=p.x + p.width - hole.x)),
        (_stacked(hole, panes, below=True), lambda p: replace(p, y=hole.y, height=p.height + hole.height)),
        (_stacked(hole, panes, below=False), lambda p: replace(p, height=p.height + hole.height)),
    ):
        if neighbours and not any(pane.pane in _FIXED for pane in neighbours):
            return _changed(panes, neighbours, grown)
    return None


def _past(hole: Placed, panes: Sequence[Placed], *, below: bool) -> tuple[Placed, tuple[Placed, ...]] | None:
    """A line of chrome and the hole change places: perhaps the hole comes to somebody who can grow."""
    neighbours = _stacked(hole, panes, below=below)
    if len(neighbours) != 1 or neighbours[0].pane in _ANCHORED:
        return None
    line = neighbours[0]
    if below:
        moved, rest = replace(line, y=hole.y), replace(hole, y=hole.y + line.height)
    else:
        moved, rest = replace(line, y=line.y + hole.height), replace(hole, y=line.y)
    return rest, _changed(panes, neighbours, lambda _: moved)


def _changed(
    panes: Sequence[Placed], which: Sequence[Placed], change: Callable[[Placed], Placed]
) -> tuple[Placed, ...]:
    return tuple(change(pane) if pane in which else pane for pane in panes)


def _beside(hole: Placed, panes: Sequence[Placed], *, left: bool) -> list[Placed]:
    """The panes along one side of the hole, when together they are exactly as high."""
    end = hole.x + hole.width
    found = [
        pane
        for pane in panes
        if hole.y <= pane.y < hole.y + hole.height
        and (0 <= hole.x - (pane.x + pane.width) <= _SEAM if left else 0 <= pane.x - end <= _SEAM)
    ]
    exact = sum(pane.height for pane in found) == hole.height
    return found if exact and all(pane.y + pane.height <= hole.y + hole.height for pane in found) else []


def _stacked(hole: Placed, panes: Sequence[Placed], *, below: bool) -> list[Placed]:
    """The panes right below or above the hole, when together they are exactly as wide."""
    end = hole.x + hole.width
    found = [
        pane
        for pane in panes
        if hole.x <= pane.x < end
        and (pane.y == hole.y + hole.height if below else pane.y + pane.height == hole.y)
    ]
    if not found or any(pane.x + pane.width > end for pane in found):
        return []
    covered = sum(pane.width for pane in found) + _SEAM * (len(found) - 1)
    return found if hole.width - _SEAM * (len(found) - 1) <= covered <= hole.width else []
