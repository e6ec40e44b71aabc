"""Panes of what else is known of the selected process: failed calls, memory by line, launches by kernel."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size

from gputop.ui.model.failed import failed_lines, failures_of
from gputop.ui.model.kernels import kernel_lines
from gputop.ui.model.look import Line
from gputop.ui.model.memory import held_by, memory_lines
from gputop.ui.model.view import View
from gputop.ui.pane import Tabbed


class Reported(Tabbed):
    """Text about the selected process that scrolls; its tab is there while there is something to tell."""

    def text(self, width: int) -> list[Line]:
        """All of it."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The selected process."""
        row = self.view.selected
        return row.pid if row else None

    def more(self) -> str:
        """How many lines are below."""
        below = self.virtual_size.height - round(self.scroll_y) - self.size.height
        return f"+{below} line{'s' if below > 1 else ''}" if below > 0 else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """What is in sight."""
        lines = self.text(width)
        self.virtual_size = Size(0, len(lines))
        top = round(self.scroll_y)
        return lines[top : top + height]


class Failed(Reported):
    """Errors by name, with their lines, since the start of the session."""

    name_shown = "Errors"

    def __init__(self, view: View) -> None:
        """Nothing has failed yet."""
        super().__init__(view, id="failed")

    @property
    def needed(self) -> bool:
        """Whether a call of the process has failed."""
        return bool(failures_of(self.view.explained.report, self.pid))

    def text(self, width: int) -> list[Line]:
        """The newest error first."""
        return failed_lines(failures_of(self.view.explained.report, self.pid), width, self.view.glyphs)


class Memory(Reported):
    """What the process holds by line, what grows without end, and what failed for lack of memory."""

    name_shown = "Memory"

    def __init__(self, view: View) -> None:
        """Nothing is held yet."""
        super().__init__(view, id="memory")

    @property
    def needed(self) -> bool:
        """Whether the process has taken memory."""
        return held_by(self.view.explained.report, self.pid) is not None

    def text(self, width: int) -> list[Line]:
        """Troubles first, then the lines, who hold most first."""
        return memory_lines(self.view.explained.report, self.pid, width, self.view.glyphs)


class Kernels(Reported):
    """What the process launched in the window, by kernel."""

    name_shown = "Kernels"

    def __init__(self, view: View) -> None:
        """No kernel has a name yet."""
        super().__init__(view, id="kernels")

    @property
    def needed(self) -> bool:
        """Whether some kernel of the process has a name."""
        row = self.view.selected
        return row is not None and bool(row.kernels)

    def text(self, width: int) -> list[Line]:
        """Most launches first."""
        row, frame = self.view.selected, self.view.frame
        if row is None or frame is None:
            return []
        report = self.view.explained.report
        return kernel_lines(frame, row, width, self.view.glyphs, report)
