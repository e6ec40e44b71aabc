"""Questions over the screen: a line of text, one of several, the filter with its suggestions, an action."""

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
    """The lines of the screen below as they were painted there: Textual would style each sign anew."""
    stack: list[Screen[Any]] = list(screen.app.screen_stack)
    below = stack[stack.index(screen) - 1]
    lines = below._compositor.render_strips()[crop.y : crop.bottom]
    return [line.crop(crop.x, crop.right) for line in lines]


class Actions(CommandPalette):
    """Finds an action by its name."""

    render_lines = lines_below


MOST_CHARACTERS = 4096
_ENDS = "Enter, Esc"


class Question(ModalScreen[None]):
    """Dialog for a line of text; a wrong answer leaves it open and shows why."""

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
        """Ask.

        Args:
            answered: Takes the text after Enter and returns "", or what is wrong with it. It may ask the
                next question.
            text: What stands there at first.
            changed: Takes the text after every key.
            cancelled: Is called after Escape.
            suggester: What may follow, shown behind what is typed; Right takes it.
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
        """Ask.

        Args:
            title: What is requested, in lines that are escaped.
            choices: What there is, escaped.
            chosen: Takes the place of the one that was chosen.
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
    """Dialog for yes or no; y and n answer at once, Escape is no answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n", "answer(False)", show=False),
    ]

    def __init__(self, title: str, no: str, yes: str, answered: Callable[[bool], None]) -> None:
        """Ask.

        Args:
            no: What "no" does, escaped; the cursor stands there.
            yes: What "yes" does.
        """
        super().__init__(title, (f"n  {no}", f"y  {yes}"), lambda place: answered(place == 1))

    def action_answer(self, yes: bool) -> None:
        self._chosen(int(yes))
        self.dismiss()


class FilterSuggester(Suggester):
    """Completes the last word of a filter: fields, states, and names that are there."""

    def __init__(self, words: Iterable[str]) -> None:
        """Store the choices.

        Args:
            words: Fields with their colon, and whole words like ``user:alice``.
        """
        super().__init__(use_cache=False, case_sensitive=True)
        self._words = sorted(words)

    async def get_suggestion(self, value: str) -> str | None:
        before, space, last = value.rpartition(" ")
        found = next((word for word in self._words if last and word.startswith(last) and word != last), None)
        return f"{before}{space}{found}" if found else None
