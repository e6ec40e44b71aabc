"""The panes that list things: tables with their titles, the GPUs, the output of the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gputop.engine.frame import CallRow, Frame, ProcessRow, ThreadRow
from gputop.format import clip, escape_text, format_count
from gputop.ui.model import details, lines, processes
from gputop.ui.model.gpu_pane import GpuPane
from gputop.ui.model.layout import Placed, tabs_of
from gputop.ui.model.listing import Listing
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, wrap
from gputop.ui.model.subject import without_cuda
from gputop.ui.model.table import Context, Table, title_line


class Panes:
    """The tables, the GPUs, and the lines of their panes."""

    def __init__(self, glyphs: Glyphs) -> None:
        """Make empty tables.

        Args:
            glyphs: The signs to draw with.
        """
        self.glyphs = glyphs
        self.processes: Table[ProcessRow] = processes.process_table()
        self.listing = Listing()
        self.calls: Table[CallRow] = details.call_table()
        self.threads: Table[ThreadRow] = details.thread_table()
        self.gpus = GpuPane(glyphs)
        self.lines: Table[lines.LineUse] = lines.line_table()

    def table(self, pane: str) -> Table[Any] | None:
        """The table of a pane, ``None`` for panes without one."""
        tables: dict[str, Table[Any]] = {
            "processes": self.processes,
            "calls": self.calls,
            "threads": self.threads,
            "lines": self.lines,
        }
        return tables.get(pane)

    def title(self, text: str, right: str, width: int, *, focused: bool) -> Line:
        """The rule above a pane."""
        token = "title.focus" if focused else "title"
        return title_line([(text, token)], right, width, self.glyphs, focused=focused)

    def table_pane(
        self, placed: Placed, frame: Frame, *, focused: bool, tabbed: bool, mode: str
    ) -> list[Line]:
        """Title, heading and rows of the processes, or of what is known of one: calls, threads, lines.

        Args:
            placed: The pane.
            frame: What is shown.
            focused: Whether the keys go here.
            tabbed: Whether all details share one place.
            mode: ``live`` or ``replay``.
        """
        row = self.processes.selected_row
        if placed.pane == "processes":
            context = self.listing.context(processes.context_of(frame, self.glyphs))
            title: list[Span] = [("Processes", self._token(focused)), *self.listing.title(self.glyphs)]
            nobody = self.listing.empty(frame) or processes.waiting(frame)
            return self._listed(self.processes, placed, context, title, nobody, processes.row_token, focused)
        name = escape_text(row.name, ascii_only=self.glyphs.ascii) if row else ""
        who = f"{row.pid} {name}" if row else "no process selected"
        title = self._tabs(placed.pane, focused=focused, tabbed=tabbed)
        if placed.pane == "calls":
            context = details.call_context(frame, row, self.glyphs)
            title.append((f" of {who}", "dim"))
            scale = details.histogram_scale(context)
            if scale and placed.width >= 72:
                title.append((f"  {scale}", "faint"))
            none = details.NO_CALLS if frame.calls_observed else details.NO_CALLS_KNOWN
            if row is not None and frame.calls_observed and without_cuda(row):
                none = details.NO_CUDA
            empty: tuple[str, ...] = none if row else ("Select a process to see its calls.",)
            return self._listed(self.calls, placed, context, title, empty, lambda _: "", focused)
        context = details.call_context(frame, None, self.glyphs)
        if placed.pane == "lines":
            title.append((f" of {who}", "dim"))
            if row and (row.lines or row.waits) and row.unknown_lines:
                title.append((f"  and {format_count(row.unknown_lines)} calls of unknown lines", "faint"))
            empty = lines.no_lines(frame, row, mode)
            return self._listed(self.lines, placed, context, title, empty, lambda _: "", focused)
        count = f" {len(row.threads)}" if row else ""
        title.append((f"{count} of {who}", "dim"))
        empty = (
            ("No thread was seen in the last window.",) if row else ("Select a process to see its threads.",)
        )
        return self._listed(self.threads, placed, context, title, empty, details.thread_token, focused)

    def _tabs(self, pane: str, *, focused: bool, tabbed: bool) -> list[Span]:
        """What the pane shows, among what else may stand in its place."""
        spans: list[Span] = []
        for tab in tabs_of(pane, together=tabbed) or (pane,):
            spans += [(" | ", "rule")] if spans else []
            spans.append((tab.capitalize(), self._token(focused) if tab == pane else "dim"))
        return spans

    @staticmethod
    def _token(focused: bool) -> str:
        return "title.focus" if focused else "title"

    def _listed(
        self,
        table: Table[Any],
        placed: Placed,
        context: Context,
        title: Sequence[Span],
        empty: tuple[str, ...],
        token: Callable[[Any], str],
        focused: bool,
    ) -> list[Line]:
        width, height = placed.width, placed.height
        more = table.more(height - 2)
        if table.frozen:
            more = f"{more}  frozen".strip()
        head = title_line(title, more, width, self.glyphs, focused=focused)
        if not table.rows:
            texts = [line for text in empty for line in wrap(text, max(width - 2, 1))]
            return [head, *(fit_line([(f" {text}", "dim")], width) for text in texts)]
        mark = table is self.processes
        lines = table.lines(context, width, height - 1, focused=focused, mark=mark, row_token=token)
        order = table.hidden_sort(self.glyphs)
        if order:
            head = title_line([*title, (f"  {order}", "faint")], more, width, self.glyphs, focused=focused)
        return [head, *lines]

    def log_pane(self, log: list[str], placed: Placed) -> list[Line]:
        """The newest lines of output of the started command."""
        head = self.title("Output of the command", "[l] hide", placed.width, focused=False)
        room = placed.height - 1
        texts = log[-room:] if log else ["No output yet."]
        shown = [
            clip(
                escape_text(text.expandtabs(4), ascii_only=self.glyphs.ascii),
                placed.width - 1,
                self.glyphs.ellipsis,
            )
            for text in texts
        ]
        return [head, *(fit_line([(f" {text}", "" if log else "dim")], placed.width) for text in shown)]
