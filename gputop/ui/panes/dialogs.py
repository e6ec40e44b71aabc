"""Dialogs: a line of text, a menu, a confirmation, the palette of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from gputop.ui.panes.pane import quiet_key


def lines_below(screen: Screen[Any], crop: Region) -> list[Strip]:
    """Return the lines of the screen below as they were painted: Textual would style them again."""
    stack: list[Screen[Any]] = list(screen.app.screen_stack)
    below = stack[stack.index(screen) - 1]
    lines = below._compositor.render_strips()[crop.y : crop.bottom]
    return [line.crop(crop.x, crop.right) for line in lines]


class Actions(CommandPalette):
    """The palette of actions."""

    render_lines = lines_below


MOST_CHARACTERS = 4096
_ENDS = "Enter, Esc"


class Question(ModalScreen[None]):
    """Dialog for a line of text; an invalid text leaves it open and shows the error."""

    render_lines = lines_below
    BINDINGS: ClassVar[list[BindingType]] = [quiet_key("escape", "cancel", "Cancel")]

    def __init__(
        self,
        title: str,
        answered: Callable[[str], str],
        text: str = "",
        *,
        hint: str = "",
        changed: Callable[[str], object] = lambda text: None,
        cancelled: Callable[[], None] = lambda: None,
        suggester: Suggester | None = None,
    ) -> None:
        """Open the dialog.

        Args:
            title: The title.
            answered: Called with the text after Enter; returns "" or an error. It may open another dialog.
            text: The initial text.
            hint: The hint below.
            changed: Called with the text after every key.
            cancelled: Called after Escape.
            suggester: Suggests a completion, which Right accepts.
        """
        super().__init__()
        self._title, self._text, self._hint = title, text, hint
        self._answered, self._changed, self._cancelled = answered, changed, cancelled
        self._suggester = suggester

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Label(self._title, markup=False, id="asked")
            yield Input(
                self._text,
                max_length=MOST_CHARACTERS,
                suggester=self._suggester,
                select_on_focus=False,
                compact=True,
            )
            yield Label(f"{self._hint}  {_ENDS}".strip(), markup=False, id="hint")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show(f"{self._hint}  {_ENDS}".strip(), wrong=False)
        self._changed(event.input.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        wrong = self._answered(event.value)
        if wrong:
            self._show(wrong, wrong=True)
        else:
            self.dismiss()

    def _show(self, text: str, *, wrong: bool) -> None:
        hint = self.query_one("#hint", Label)
        hint.set_class(wrong, "-wrong")
        hint.update(text)

    def action_cancel(self) -> None:
        self._cancelled()
        self.dismiss()


class Menu(ModalScreen[None]):
    """Dialog for one of several choices."""

    render_lines = lines_below
    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("escape,q", "dismiss", "Cancel"),
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[str], chosen: Callable[[int], None]) -> None:
        """Open the dialog.

        Args:
            title: The title, escaped, of one or more lines.
            choices: The choices, escaped.
            chosen: Called with the index of the choice.
        """
        super().__init__()
        self._title, self._choices, self._chosen = title, choices, chosen

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Label(self._title, markup=False, id="asked")
            yield OptionList(*(Option(choice) for choice in self._choices), markup=False, compact=True)

    async def action_move(self, action: str) -> None:
        await self.query_one(OptionList).run_action(action)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._chosen(event.option_index)
        self.dismiss()


class Confirm(Menu):
    """Dialog for yes or no, by the keys y and n; Escape is neither."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n", "answer(False)", show=False),
    ]

    def __init__(self, title: str, no: str, yes: str, answered: Callable[[bool], None]) -> None:
        """Open the dialog.

        Args:
            title: The title, escaped.
            no: The effect of "no", escaped; the cursor starts there.
            yes: The effect of "yes", escaped.
            answered: Called with True for "yes".
        """
        super().__init__(title, (f"n  {no}", f"y  {yes}"), lambda place: answered(place == 1))

    def action_answer(self, yes: bool) -> None:
        self._chosen(int(yes))
        self.dismiss()


class FilterSuggester(Suggester):
    """Completes the last word of a filter: fields, states, and current names."""

    def __init__(self, words: Iterable[str]) -> None:
        """Create a suggester of ``words``: fields with their colon, and words like ``user:alice``."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._words = sorted(words)

    async def get_suggestion(self, value: str) -> str | None:
        before, space, last = value.rpartition(" ")
        found = next((word for word in self._words if last and word.startswith(last) and word != last), None)
        return f"{before}{space}{found}" if found else None
