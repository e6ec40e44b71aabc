"""The actions around a line's source: which line is meant, opening its page, closing it."""

from __future__ import annotations

from gputop.engine.lines import Line
from gputop.engine.source import read_source
from gputop.ui.model.lines import SourcePage, line_uses
from gputop.ui.model.state import ViewState


class SourceControls(ViewState):
    """A part of the actions."""

    def do_source(self) -> None:
        """Show the selected line in its file, or go back to where one came from."""
        if self.overlay == "source":
            self.close_source()
            return
        line, pid = self._meant()
        live = self.mode == "live"
        source = read_source(line, pid if live else None) if line is not None else None
        self.source = SourcePage(line, pid, source)
        self.before_source = self.overlay
        self.overlay = "source"
        self._scroll = max(self.source.place - max(self.size[1] // 2 - 3, 1), 0)

    def close_source(self) -> None:
        """Back to the page from which the source was opened, or to none."""
        self.overlay, self.before_source = self.before_source, ""
        self._scroll = 0

    def _meant(self) -> tuple[Line | None, int]:
        """The line that is selected, and its process: the finding's, the table's, else the costliest."""
        if self.overlay == "why" or (self.focus == "verdict" and not self.overlay):
            finding = self.chain.selected
            if finding is not None:
                return finding.line, finding.pid
        row = self.selected
        chosen = self.panes.lines.selected_row if self.focus == "lines" else None
        use = chosen or next(iter(line_uses(row)), None)
        return (use.line if use else None), (row.pid if row else 0)
