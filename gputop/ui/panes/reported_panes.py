"""Panes of the selected process's failed calls, memory by line, kernels and ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.geometry import Size

from gputop.ui.model.look import Line, Span, plain
from gputop.ui.panes.pane import Tabbed

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report
    from gputop.engine.frame import ProcessRow


_WHOLE = 1_000  # columns without cut lines
_NONE = "No row matches. [/] another search, [Esc] all"


class Reported(Tabbed):
    """Scrolling text about the selected process; its tab exists while there is data."""

    @abstractmethod
    def known(self, row: ProcessRow, report: Report | None) -> bool:
        """True if there is data about a process."""

    @abstractmethod
    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        """Return all lines."""

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
        """Return the lines; in a search the heading and the lines that contain the text, even cut off."""
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
    """Failed calls by error, with source lines, since the start of the session."""

    name_shown = "Errors"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        return report is not None and any(one.pid == row.pid for one in report.failures)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import failed_lines

        return failed_lines(report, row.pid, width, self.view.glyphs)


class MemoryPane(Reported):
    """GPU memory by line, leaks, and failed allocations."""

    name_shown = "Memory"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        memory = report.memory if report is not None else None
        return memory is not None and any(one.pid == row.pid for one in memory.processes)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import memory_lines

        return memory_lines(report, row.pid, width, self.view.glyphs)


class KernelsPane(Reported):
    """Launches in the window by kernel."""

    name_shown = "Kernels"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        exact = report.exact if report is not None else None
        return bool(row.kernels) or (exact is not None and any(one.pid == row.pid for one in exact.kernels))

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        """Return kernels by the GPU's own clock, if known, then launches, most frequent first."""
        from gputop.ui.model.process.reported import exact_lines, kernel_lines

        frame, glyphs = self.view.frame, self.view.glyphs
        exact = exact_lines(report, row.pid, width, glyphs)
        launched = kernel_lines(frame, row, width, glyphs, report) if frame and row.kernels else ()
        return [*exact, *launched]


class RanksPane(Reported):
    """The ranks of the process's job on this machine."""

    name_shown = "Ranks"

    def known(self, row: ProcessRow, report: Report | None) -> bool:
        ranks = report.ranks if report is not None else None
        return ranks is not None and any(one.pid == row.pid for one in ranks.ranks)

    def text(self, row: ProcessRow, report: Report | None, width: int) -> Sequence[Line]:
        from gputop.ui.model.process.reported import rank_lines

        frame = self.view.frame
        return rank_lines(report, frame, row.pid, width, self.view.glyphs) if frame else ()

    def about(self) -> list[Span]:
        """Return the text beside the tabs: the job, not the process."""
        return [(" of the job, by their collectives", "dim")]
