"""Panes of what else is known of the selected process: failed calls, memory by line, kernels, its ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.geometry import Size

from gputop.ui.model.look import Line, Span, plain
from gputop.ui.panes.pane import Tabbed

# what makes the lines is loaded when there are some: the first frame has none
if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report
    from gputop.engine.frame import ProcessRow


_WHOLE = 1_000  # columns, in which no line is cut
_NONE = "No row matches. [/] another search, [Esc] all"


class Reported(Tabbed):
    """Text about the selected process that scrolls; its tab is there while there is something to tell."""

    @abstractmethod
    def known(self, row: ProcessRow, report: Report | None) -> bool:
        """True if there is something to tell of a process."""

    @abstractmethod
    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        """All of it."""

    @property
    def needed(self) -> bool:
        row = self.view.selected
        return row is not None and self.known(row, self.view.explained.report)

    def more(self) -> str:
        below = self.virtual_size.height - round(self.scroll_y) - self.size.height
        return f"+{below} line{'s' if below > 1 else ''}" if below > 0 else ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        row = self.view.selected
        lines = self._found(row, width) if row is not None else ()
        self.virtual_size = Size(0, len(lines))
        top = round(self.scroll_y)
        return lines[top : top + height]

    def _found(self, row: ProcessRow, width: int) -> Sequence[Line]:
        """Its lines; of a search those that hold the text, also where the line is cut, below the heading."""
        report = self.view.explained.report
        lines = self.text(row, report, width)
        if not self.searched or not lines:
            return lines
        whole = self.text(row, report, _WHOLE)
        whole = whole if len(whole) == len(lines) else lines
        wanted = self.searched.lower()
        rows = zip(lines[1:], whole[1:], strict=True)
        found = [line for line, full in rows if wanted in plain(full).lower()]
        return [lines[0], *found] if found else [self.view.glyphs.line([(f" {_NONE}", "dim")], width)]


class FailedPane(Reported):
    """Errors by name, with their lines, since the start of the session."""

    name_shown = "Errors"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        return report is not None and any(one.pid == row.pid for one in report.failures)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import failed_lines

        return failed_lines(report, row.pid, width, self.view.glyphs)


class MemoryPane(Reported):
    """What the process holds by line, what grows without end, and what failed for lack of memory."""

    name_shown = "Memory"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        memory = report.memory if report is not None else None
        return memory is not None and any(one.pid == row.pid for one in memory.processes)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import memory_lines

        return memory_lines(report, row.pid, width, self.view.glyphs)


class KernelsPane(Reported):
    """What the process launched in the window, by kernel."""

    name_shown = "Kernels"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        exact = report.exact if report is not None else None
        return bool(row.kernels) or (exact is not None and any(one.pid == row.pid for one in exact.kernels))

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        """By the GPU's own clock, where that is known, then what was launched, most first."""
        from gputop.ui.model.process.reported import exact_lines, kernel_lines

        frame, glyphs = self.view.frame, self.view.glyphs
        exact = exact_lines(report, row.pid, width, glyphs)
        launched = kernel_lines(frame, row, width, glyphs, report) if frame and row.kernels else ()
        return [*exact, *launched]


class RanksPane(Reported):
    """The ranks of the job that the process is of, as far as they are on this machine."""

    name_shown = "Ranks"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        ranks = report.ranks if report is not None else None
        return ranks is not None and any(one.pid == row.pid for one in ranks.ranks)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import rank_lines

        frame = self.view.frame
        return rank_lines(report, frame, row.pid, width, self.view.glyphs) if frame else ()

    def about(self) -> list[Span]:
        """They are no details of one process."""
        return [(" of the job, by their collectives", "dim")]
