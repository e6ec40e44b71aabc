"""The one widget: shows lines, and says where the mouse was. No logic in here."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from gputop.format import escape_text
from gputop.ui.model.look import Line
from gputop.ui.palette import PALETTES, Palette


class Canvas(Widget):
    """Lines of text over the whole screen.

    One widget that renders lines costs a tenth of a screen of tables: nothing is laid out, and only
    lines that changed are painted.
    """

    class Clicked(Message):
        """A click happened."""

        def __init__(self, x: int, y: int) -> None:
            """Remember where."""
            super().__init__()
            self.x, self.y = x, y

    class WheelTurned(Message):
        """The wheel was turned."""

        def __init__(self, x: int, y: int, by: int) -> None:
            """Remember where and by how many lines."""
            super().__init__()
            self.x, self.y, self.by = x, y, by

    class Resized(Message):
        """The canvas has another size."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"
    WHEEL_LINES = 3

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.lines: list[Line] = []
        self._palette = PALETTES["dark"]

    def dress(self, palette: Palette) -> None:
        """Show the lines in the colours of a theme."""
        self._palette = palette
        self.styles.background = palette.background
        self.refresh()

    def set_lines(self, lines: list[Line]) -> None:
        """Show these lines; those that are as they were are not painted again."""
        old, self.lines = self.lines, lines
        if len(old) != len(lines):
            self.refresh()
            return
        width = self.size.width
        changed = [y for y, line in enumerate(lines) if line != old[y]]
        if len(changed) * 4 > len(lines) * 3:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.size.width
        if y >= len(self.lines):
            return Strip.blank(width, self._palette.style(""))
        # the lines are escaped where they are made; what was forgotten there does not reach the terminal
        strip = Strip(
            [Segment(escape_text(text), self._palette.style(token)) for text, token in self.lines[y]]
        )
        # Between a resize and the next paint the lines have the old width.
        return strip.adjust_cell_length(width, self._palette.style(""))

    def on_resize(self) -> None:
        """Say that other lines are needed."""
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Pass a click on."""
        self.post_message(self.Clicked(event.x, event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Pass the wheel on."""
        self.post_message(self.WheelTurned(event.x, event.y, self.WHEEL_LINES))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Pass the wheel on."""
        self.post_message(self.WheelTurned(event.x, event.y, -self.WHEEL_LINES))
