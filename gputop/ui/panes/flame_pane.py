"""The flame graph of the selected process, by source lines; zoomable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.format import format_counted
from gputop.ui.model.listing import process_table
from gputop.ui.model.look import Line, Span
from gputop.ui.model.process.flame import Flame, Way, flame, move, node_text
from gputop.ui.model.process.flametree import Node, Path, start, tree_of
from gputop.ui.model.view import View
from gputop.ui.panes.pane import Tabbed, quiet_key

NAME = 40  # columns of a frame's name beside the tabs


class FlamePane(Tabbed, inherit_bindings=False):
    """The flame graph: each frame as wide as its share, its callees below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "zoom", "Zoom", tooltip="zoom into the selected frame; again: show all"),
        quiet_key("up,k", "go('up')", "Caller", "the caller of a frame"),
        quiet_key("down,j", "go('down')", "Callee", "the callee with most time"),
        quiet_key("left", "go('left')", "Left", "the frame to the left"),
        quiet_key("right", "go('right')", "Right", "the frame to the right"),
    ]
    name_shown = "Flame"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="flame")
        self._pid = 0
        self._zoom: Path | None = None
        self._cursor: Path = ()
        self._drawn: Flame | None = None

    def _tree(self) -> Node | None:
        row = self.view.selected
        if row is None or not row.stacks:
            return None
        if row.pid != self._pid:
            self._pid, self._zoom, self._cursor = row.pid, None, ()
        return tree_of(row)

    def about(self) -> list[Span]:
        tree, frame = self._tree(), self.view.frame
        if tree is None or frame is None or not self.has_focus:
            return super().about()
        name, figures = node_text(tree, self._cursor, frame.window_ns)
        name = self.view.glyphs.clip(name, NAME)
        first, *more = figures.split(", ")  # the name comes last, since the graph shows it
        return [
            *super().about(),
            (f"  {first}", "value"),
            *((f", {one}", "value") for one in more),
            (f"  {name}", "value"),
        ]

    def more(self) -> str:
        return f"+{format_counted(self._drawn.deeper, 'level')}" if self._drawn and self._drawn.deeper else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        tree = self._tree()
        self._drawn = None
        if tree is None:
            frame = self.view.frame
            text: tuple[str, ...] = ("No stacks were recorded (see --stacks).",)
            if self.view.selected is None and frame is not None:
                text = process_table.unselected(frame, "stacks")
            return [self.view.glyphs.line([(f" {text[0]}", "dim")], width)]
        zoom = start(tree) if self._zoom is None else self._zoom
        cursor = self._cursor if self.has_focus else None
        self._drawn = flame(tree, zoom, width, height, self.view.glyphs, selected=cursor)
        return self._drawn.lines

    def action_go(self, way: Way) -> None:
        tree = self._tree()
        if tree is not None:
            zoom = start(tree) if self._zoom is None else self._zoom
            self._cursor = move(tree, self._cursor, way) if self._cursor[: len(zoom)] == zoom else zoom
            self.changed()

    def action_zoom(self) -> None:
        self._zoom = None if self._zoom == self._cursor else self._cursor
        self.changed()

    def clicked(self, x: int, y: int) -> None:
        """Select the frame; zoom at a second click."""
        path = self._drawn.path_at(x, y) if self._drawn else None
        if path is not None and path == self._cursor:
            self.action_zoom()
        elif path is not None:
            self._cursor = path
            self.changed()
