"""The pane of calls that failed: its tab is there while the selected process has some."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size

from gputop.ui.model.failed import failed_lines, failures_of
from gputop.ui.model.look import Line
from gputop.ui.model.view import View
from gputop.ui.pane import Tabbed


class Failed(Tabbed):
    """Errors by name, with their lines, since the start of the session."""

    name_shown = "Errors"

    def __init__(self, view: View) -> None:
        """Nothing has failed yet."""
        super().__init__(view, id="failed")

    @property
    def needed(self) -> bool:
        """Whether there is anything to show."""
        row = self.view.selected
        return row is not None and bool(failures_of(self.view.explained.report, row.pid))

    def _every(self, width: int) -> list[Line]:
        row = self.view.selected
        failures = failures_of(self.view.explained.report, row.pid if row else None)
        return failed_lines(failures, width, self.view.glyphs)

    def more(self) -> str:
        """How many lines are below."""
        below = self.virtual_size.height - round(self.scroll_y) - self.size.height
        return f"+{below} line{'s' if below > 1 else ''}" if below > 0 else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """What is in sight, the newest error first."""
        lines = self._every(width)
        self.virtual_size = Size(0, len(lines))
        top = round(self.scroll_y)
        return lines[top : top + height]
