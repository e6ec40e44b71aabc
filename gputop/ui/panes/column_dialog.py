"""The dialog for a table's columns and their order, which are saved in the preferences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from gputop.format import fit
from gputop.ui.kept import NotKeptError, keep_columns
from gputop.ui.model.look import Glyphs
from gputop.ui.model.pages import COLUMNS_HELP
from gputop.ui.model.table import Column, Table
from gputop.ui.panes.dialogs import lines_below
from gputop.ui.panes.pane import Host, quiet_key

_HINT = "space: show or hide, < >: move, d: defaults, Enter: save, Esc: cancel"
_WIDTH = 72  # of a line


class ColumnDialog(ModalScreen[None]):
    """Lists all columns of a table, visible ones first; changes are shown at once."""

    app: Host
    render_lines = lines_below
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("escape,q", "cancel", "Cancel"),
        quiet_key("j", "cursor(1)", "Down"),
        quiet_key("k", "cursor(-1)", "Up"),
        quiet_key("space", "show_or_hide", "Show"),
        quiet_key("less_than_sign,left", "move(-1)", "Earlier"),
        quiet_key("greater_than_sign,right", "move(1)", "Later"),
        quiet_key("d", "usual", "Usual"),
    ]

    def __init__(self, name: str, table: Table[Any], path: str, glyphs: Glyphs) -> None:
        """Open the dialog.

        Args:
            name: The table's name in the preferences.
            table: The table.
            path: The preferences file, or "".
            glyphs: The screen's glyphs.
        """
        super().__init__()
        self._table_name, self._table, self._path = name, table, path
        self._glyphs = glyphs
        self._before = table.picked_columns
        self._fill(table.columns)

    def _fill(self, shown: tuple[Column[Any], ...]) -> None:
        self._order = [*shown, *(column for column in self._table.every if column not in shown)]
        self._shown = {column.key for column in shown}

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Label(f"columns of the {self._table_name}", markup=False, id="asked")
            yield OptionList(*self._options(), markup=False, compact=True)
            yield Label(_HINT, markup=False, id="hint")

    def _options(self) -> list[Option]:
        return [Option(self._text(column), id=column.key) for column in self._order]

    def _text(self, column: Column[Any]) -> str:
        mark = "x" if column.key in self._shown else " "
        meaning = COLUMNS_HELP.get(column.title, "")
        return self._glyphs.clip(f"[{mark}] {fit(column.title, 11)} {meaning}".rstrip(), _WIDTH)

    def _again(self, place: int) -> None:
        """Update the list, with the cursor at ``place``, and the table."""
        chosen = self.query_one(OptionList)
        chosen.set_options(self._options())
        chosen.highlighted = place
        self._try([column.key for column in self._order if column.key in self._shown])

    def _try(self, keys: list[str]) -> None:
        self._table.pick_columns(keys)
        self.app.show()

    def _place(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    def action_cursor(self, by: int) -> None:
        chosen = self.query_one(OptionList)
        (chosen.action_cursor_down if by > 0 else chosen.action_cursor_up)()

    def action_show_or_hide(self) -> None:
        place = self._place()
        key = self._order[place].key
        if key in self._shown and len(self._shown) > 1:
            self._shown.discard(key)
        else:
            self._shown.add(key)
        self._again(place)

    def action_move(self, by: int) -> None:
        place = self._place()
        to = min(max(place + by, 0), len(self._order) - 1)
        self._order.insert(to, self._order.pop(place))
        self._again(to)

    def action_usual(self) -> None:
        self._fill(self._table.every)
        self._again(0)
        self._try([])

    def action_cancel(self) -> None:
        self._try(list(self._before))
        self.dismiss()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Save the columns."""
        event.stop()
        keys = list(self._table.picked_columns)
        self.dismiss()
        if not self._path:
            self.app.show_message("not saved: there is no home directory for the preferences")
            return
        try:
            keep_columns(Path(self._path), self._table_name, keys)
        except NotKeptError as error:
            self.app.show_message(str(error))
        else:
            self.app.show_message(f"columns saved in {self._path}")
