"""The panes with tables: processes, and calls, threads and lines of the selected one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from gputop.engine.frame import Frame
from gputop.format import escape_text, format_counted
from gputop.ui.model.answer.subject import without_cuda
from gputop.ui.model.listing import process_table
from gputop.ui.model.look import Line, Span, wrap
from gputop.ui.model.pages import COLUMNS_HELP
from gputop.ui.model.process import call_table, line_table
from gputop.ui.model.table import Context, Table, row_text
from gputop.ui.model.view import View
from gputop.ui.panes.pane import Pane, Tabbed, quiet_key

_EVERY = 1_000_000  # more rows than any table has
_OTHER = "[/] another search, [Esc] all"
_WAITING = ("Waiting for the first frame ...",)


class TablePane(Pane, inherit_bindings=False):
    """A fixed heading and scrolling rows."""

    class Opened(Message):
        """Enter was pressed on the selected row."""

        def __init__(self, pane: TablePane) -> None:
            super().__init__()
            self.pane = pane

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "open", "Open", tooltip="a process: its calls; a call: its page; a line: its source"
        ),
        quiet_key("up,k", "cursor(-1)", "Up", "the row above"),
        quiet_key("down,j", "cursor(1)", "Down", "the row below"),
        quiet_key("pageup", "page(-1)", "Page up", "one page up"),
        quiet_key("pagedown", "page(1)", "Page down", "one page down"),
        quiet_key("home", "first", "First row", "the first row"),
        quiet_key("end", "last", "Last row", "the last row"),
        quiet_key("comma", "sort(-1)", "Sort left", "sort by the column to the left"),
        Binding("full_stop", "sort(1)", "Sort", key_display=", .", tooltip="sort by the column to the right"),
        Binding("r", "reverse", "Reverse", tooltip="reverse the order"),
        quiet_key("C", "columns", "Columns", "choose the columns and their order, and save them"),
        quiet_key("y", "copy", "Copy", "copy the row with all its columns, or marked text"),
    ]

    mark = False  # whether the selected row is marked without the focus

    def __init__(self, view: View, table: Table[Any], *, id: str, classes: str | None = None) -> None:
        super().__init__(view, id=id, classes=classes)
        self.table = table
        self._followed: tuple[int, int] = (-1, 0)  # the selected row's place, and lines, at the last update

    def context(self, frame: Frame) -> Context:
        """Return the context of the cells."""
        return call_table.call_context(frame, None, self.view.glyphs)

    @abstractmethod
    def nobody(self, frame: Frame) -> Sequence[str]:
        """Return why there are no rows."""

    def row_token(self, row: Any) -> str:
        """Return the token of a row's cells."""
        return ""

    def wanted(self, width: int) -> int:
        return 1 + len(self.table.rows) if self.table.rows else 4

    def more(self) -> str:
        above, page = round(self.scroll_y), self.scrollable_content_region.height - 1
        below = len(self.table.rows) - above - page
        parts = [f"{above} above"] if above else []
        parts += [f"+{below} row{'s' if below > 1 else ''}"] if below > 0 < page else []
        kept = ["frozen"] if self.table.frozen else ["order kept"] if self.table.unsorted else []
        return ", ".join([*parts, *kept])

    def show(self) -> None:
        """Update the rows; a selected row that was in sight stays in sight."""
        if self.is_attached and self.display:
            self.virtual_size = Size(0, len(self.table.rows) + 1)
            self._follow()
        super().show()

    def _follow(self) -> None:
        """Scroll so that the selected row stays in sight when its place or the pane's size changes."""
        page, place = self.scrollable_content_region.height - 1, self.table.index
        top = round(self.scroll_y)
        if page < 1 or place < 0:
            return
        before, lines_before = self._followed
        self._followed = place, page
        moved = place != before or page != lines_before
        seen = top <= before < top + lines_before
        if self.table.chosen and ((moved and seen) or self.table.held):
            self._into_sight(place, page)

    def _into_sight(self, place: int, page: int) -> None:
        top = round(self.scroll_y)
        wanted = max(min(top, place), place - page + 1, 0)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)

    def lines(self, width: int, height: int) -> Sequence[Line]:
        frame = self.view.frame
        if frame is None or not self.table.rows:
            texts = self.nobody(frame) if frame else _WAITING
            if self.table.left_out:
                texts = (
                    f"No row matches {escape_text(self.table.search)} ({self.table.left_out} hidden).",
                    _OTHER,
                )
            return [
                self.view.glyphs.line([(f" {line}", "dim")], width)
                for text in texts
                for line in wrap(text, max(width - 2, 1))
            ]
        return self.table.lines(
            self.context(frame),
            width,
            round(self.scroll_y),
            height - 1,
            focused=self.has_focus,
            mark=self.mark,
            row_token=self.row_token,
        )

    def sorted_out_of_sight(self) -> list[Span]:
        """Return the sort column for the title, if it does not fit into the table."""
        order = self.table.hidden_sort(self.view.glyphs) if self.table.rows else ""
        return [(f"  {order}", "faint")] if order else []

    # -- keys and mouse -----------------------------------------------------------------------

    def action_open(self) -> None:
        self.post_message(self.Opened(self))

    def action_cursor(self, by: int) -> None:
        self.table.move(by)
        self._into_sight(self.table.index, max(self.scrollable_content_region.height - 1, 1))
        self._listed()

    def action_page(self, by: int) -> None:
        self.action_cursor(by * max(self.scrollable_content_region.height - 2, 1))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable Home and End while they are for the time bar."""
        return self.view.live if action in ("first", "last") else True

    def action_first(self) -> None:
        self.action_cursor(-_EVERY)

    def action_last(self) -> None:
        self.action_cursor(_EVERY)

    def action_sort(self, by: int) -> None:
        self.table.shift_sort(by)
        self._listed()

    def action_columns(self) -> None:
        from gputop.ui.panes.column_dialog import ColumnDialog

        path = self.view.preferences_path
        self.app.prompt(ColumnDialog(str(self.id), self.table, path, self.view.glyphs))

    def action_reverse(self) -> None:
        self.table.reverse()
        self._listed()

    def _listed(self) -> None:
        self.view.list()
        self.changed()

    def action_copy(self) -> None:
        frame, row = self.view.frame, self.table.selected_row
        marked = self.screen.get_selected_text()
        if marked is None and (frame is None or row is None):
            self.app.show_message("no row is selected here: Tab goes to a table")
            return
        if marked is None and frame is not None:
            marked = row_text(self.table.columns, row, self.context(frame))
        self.app.copy(marked or "")

    def clicked(self, x: int, y: int) -> None:
        """Sort by the column of the heading, or select the row."""
        if not self.table.rows:
            return
        if y:
            self.table.select_place(round(self.scroll_y) + y - 1)
            self._listed()
        elif column := self.table.column_at(x):
            self.table.sort_or_reverse(column)
            self._listed()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show a column's meaning over its heading."""
        at = event.get_content_offset(self)
        column = self.table.column_at(at.x) if at is not None and not at.y and self.table.rows else None
        help_text = COLUMNS_HELP.get(column.title) if column else None
        if help_text != self.tooltip:
            self.tooltip = help_text


class DetailTable(Tabbed, TablePane):
    """A table about the selected process."""

    @property
    def searched(self) -> str:
        return self.table.search

    @searched.setter
    def searched(self, text: str) -> None:
        self.table.search = text
        self.table.resort()

    def about(self) -> list[Span]:
        return [*super().about(), *self.sorted_out_of_sight()]


class CallsPane(DetailTable):
    """The CUDA calls."""

    name_shown = "Calls"

    def context(self, frame: Frame) -> Context:
        return call_table.call_context(frame, self.view.selected, self.view.glyphs)

    def nobody(self, frame: Frame) -> Sequence[str]:
        if self.view.selected is None:
            return process_table.unselected(frame, "calls", self.view.outcome)
        if not frame.calls_observed:
            return call_table.NO_CALLS_KNOWN
        if not self.view.selected.watched:
            return call_table.UNWATCHED
        return call_table.NO_CUDA if without_cuda(self.view.selected) else call_table.NO_CALLS

    def about(self) -> list[Span]:
        frame = self.view.frame
        scale = call_table.histogram_scale(self.context(frame)) if frame and self.size.width >= 72 else ""
        return [*super().about(), *([(f"  {scale}", "faint")] if scale else [])]


class ThreadsPane(DetailTable):
    """The threads."""

    name_shown = "Threads"

    def nobody(self, frame: Frame) -> Sequence[str]:
        if self.view.selected is None:
            return process_table.unselected(frame, "threads", self.view.outcome)
        if not self.view.selected.watched:
            seen = frame.calls_observed
            return (f"Its threads are not watched{': no CUDA call of it was seen' if seen else ''}.",)
        return ("No thread ran in the last window.",)

    def row_token(self, row: Any) -> str:
        return call_table.thread_token(row)

    def about(self) -> list[Span]:
        row = self.view.selected
        if row is None or self.view.frame is None:
            return super().about()
        faults = call_table.faults_text(row, self.view.frame)
        return [
            *super().about(),
            (f"  {format_counted(len(row.threads), 'thread')}", "dim"),
            *([(f"  {faults}", "faint")] if faults else []),
        ]


class LinesPane(DetailTable):
    """The source lines that make calls."""

    name_shown = "Lines"

    def nobody(self, frame: Frame) -> Sequence[str]:
        return line_table.no_lines(frame, self.view.selected, self.view.mode)

    def about(self) -> list[Span]:
        row, spans = self.view.selected, super().about()
        if row and (row.lines or row.waits) and row.unknown_lines:
            spans.append((f"  and {format_counted(row.unknown_lines, 'call')} of unknown lines", "faint"))
        return spans
