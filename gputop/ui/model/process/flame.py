"""The flame graph: time of calls and off the CPU, by stack, as rows of cells, zoomable.

The zoomed node fills the first line, its callees are below it, each as wide as its share. Nodes are named by
paths of names; a path that a newer frame lacks is followed as far as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gputop.format import clip, escape_text, fit, format_count, format_percent
from gputop.ui.model.look import Glyphs, Line, Span, merged
from gputop.ui.model.process.flametree import Kind, Node, Path

Way = Literal["up", "down", "left", "right"]
_TOKENS: dict[Kind, str] = {
    "root": "head", "own": "value", "folded": "dim", "call": "pending", "wait": "cause.U", "other": "unknown",
}  # fmt: skip
_WITH_SHARE = 6  # columns, from which on a cell shows its share


@dataclass(frozen=True, slots=True)
class Cell:
    """A drawn node: ``width`` columns from ``x`` on, in line ``y``."""

    path: Path
    node: Node
    x: int
    y: int
    width: int


@dataclass(frozen=True, slots=True)
class Flame:
    """The drawn graph."""

    lines: tuple[Line, ...]  # lines of exactly the graph's width
    cells: tuple[Cell, ...]  # the drawn nodes; none for nodes narrower than a column
    deeper: int  # the number of levels without room

    def path_at(self, x: int, y: int) -> Path | None:
        """Return the path of the node at a place, or None."""
        found = (cell.path for cell in self.cells if cell.y == y and cell.x <= x < cell.x + cell.width)
        return next(found, None)


def flame(
    tree: Node, zoom: Path, width: int, height: int, glyphs: Glyphs, *, selected: Path | None = None
) -> Flame:
    """Draw the graph below a node.

    Args:
        tree: The root.
        zoom: The node that fills the width.
        width: The width in columns.
        height: The most lines.
        glyphs: The screen's glyphs.
        selected: The node with the cursor, None without the focus.
    """
    path, top = tree.at(zoom)
    if not top.ns or height < 1 or width < 1:
        return Flame((), (), 0)
    cells = tuple(_cells(top, path, width, height))
    rows = max(cell.y for cell in cells) + 1
    lines = tuple(
        _row([cell for cell in cells if cell.y == y], tree.ns, width, glyphs, selected) for y in range(rows)
    )
    return Flame(lines, cells, max(top.depth - height, 0))


def _cells(top: Node, path: Path, width: int, height: int) -> Iterator[Cell]:
    """Yield the cells of a node and its descendants; children are side by side within their parent."""
    waiting = [Cell(path, top, 0, 0, width)]
    while waiting:
        cell = waiting.pop()
        yield cell
        if cell.y + 1 >= height or not cell.node.ns:
            continue
        done = 0
        for child in cell.node.ordered():
            low = cell.x + done * cell.width // cell.node.ns
            done += child.ns
            high = cell.x + done * cell.width // cell.node.ns
            if high > low:
                waiting.append(Cell((*cell.path, child.name), child, low, cell.y + 1, high - low))


def _row(cells: list[Cell], whole_ns: int, width: int, glyphs: Glyphs, selected: Path | None) -> Line:
    spans: list[Span] = []
    at = 0
    for cell in sorted(cells, key=lambda one: one.x):
        chosen = "+select" if cell.path == selected else ""
        spans.append((" " * (cell.x - at), ""))
        spans += [(text, token + chosen) for text, token in _text(cell, whole_ns, glyphs)]
        at = cell.x + cell.width
    return glyphs.line(merged(spans), width)


def _text(cell: Cell, whole_ns: int, glyphs: Glyphs) -> list[Span]:
    """Return a bar at the left edge, then the name and the share of all time, as far as they fit."""
    edge, room = "|" if glyphs.ascii else "▏", cell.width - 1
    token = _TOKENS[cell.node.kind]
    name = glyphs.shown(cell.node.name)
    share = f" {format_percent(100 * cell.node.ns / max(whole_ns, 1))}%"
    if room >= _WITH_SHARE + len(share):
        text = fit(glyphs.clip(name, room - len(share)) + share, room)
    else:
        text = fit(clip(name, room, "" if room < _WITH_SHARE else glyphs.ellipsis), room)
    return [(edge, "rule.focus"), (text, token)]


def move(tree: Node, selected: Path, way: Way) -> Path:
    """Return a node's neighbour: its caller (up), its widest callee (down), or a sibling."""
    path, node = tree.at(selected)
    if way == "up":
        return path[:-1]
    if way == "down":
        widest = max(node.children.values(), key=lambda child: child.ns, default=None)
        return (*path, widest.name) if widest is not None else path
    if not path:
        return path
    names = [child.name for child in tree.at(path[:-1])[1].ordered()]
    place = names.index(path[-1]) + (1 if way == "right" else -1)
    return (*path[:-1], names[min(max(place, 0), len(names) - 1)])


def node_text(tree: Node, path: Path, window_ns: int) -> tuple[str, str]:
    """Return a node's name and its figures: ``51 % of wall time, 31 % of all, 1.2k calls+waits/s``."""
    path, node = tree.at(path)
    seconds = max(window_ns, 1) / 1e9
    share = f", {format_percent(100 * node.ns / max(tree.ns, 1))} % of all" if path else ""
    return (
        escape_text(node.name),
        f"{format_percent(100 * node.ns / max(window_ns, 1))} % of wall time{share}, "
        f"{format_count(node.count / seconds)} calls+waits/s",
    )
