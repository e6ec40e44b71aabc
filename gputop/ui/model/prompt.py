"""A question in the last line of the screen: a small line editor, and who gets the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from gputop.format import clip, escape_text, width_of
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, line_width

MOST_CHARACTERS = 4096
Outcome = Literal["open", "done", "cancelled"]


class Prompt:
    """One line of text being typed.

    Attributes:
        title: What is asked for, shown before the text.
        text: What has been typed.
        cursor: Where the next character goes, 0 to ``len(text)``.
        hint: What may be typed, shown behind the text.
        error: What is wrong with the text, shown instead of the hint; the next key clears it.
    """

    def __init__(self, title: str, text: str = "", hint: str = "") -> None:
        """Start with a default, the cursor behind it."""
        self.title = title
        self.text = text
        self.hint = hint
        self.cursor = len(text)
        self.error = ""

    def key(self, name: str, character: str | None) -> Outcome:
        """Take a key.

        Args:
            name: Textual's name of the key.
            character: What it types, None when it is no character.

        Returns:
            ``done`` after Enter, ``cancelled`` after Escape, else ``open``.
        """
        if name == "enter":
            return "done"
        if name == "escape":
            return "cancelled"
        self.error = ""
        edit = self._EDITS.get(name)
        if edit is not None:
            edit(self)
        elif character is not None:
            self.insert(character)
        return "open"

    def insert(self, text: str) -> None:
        """Type or paste; what cannot be shown (line ends, escapes) is left out."""
        fresh = "".join(c for c in text if c.isprintable())[: MOST_CHARACTERS - len(self.text)]
        self.text = self.text[: self.cursor] + fresh + self.text[self.cursor :]
        self.cursor += len(fresh)

    def line(self, width: int, glyphs: Glyphs) -> Line:
        """The question in ``width`` columns; a long text is moved so that the cursor stays in sight."""
        head: list[Span] = [(f" {self.title} ", "chrome")]
        tail: list[Span] = []
        if self.error:
            tail = [(f"  {glyphs.warning} {clip(self.error, max(width // 2, 1), glyphs.ellipsis)}", "warn")]
        cells = [escape_text(c, ascii_only=glyphs.ascii) for c in self.text] + [" "]
        room = max(width - line_width(head) - line_width(tail), 8)
        first, shown = 0, self.cursor + 1
        while first < self.cursor and sum(map(width_of, cells[first:shown])) > room:
            first += 1
        before, at, after = cells[first : self.cursor], cells[self.cursor], cells[self.cursor + 1 :]
        spans = [*head, ("".join(before), "value"), (at, "badge.live"), ("".join(after), "value"), *tail]
        hint: list[Span] = [(f"  {self.hint}  Enter, Esc", "dim")]
        if not tail and line_width(spans) + line_width(hint) <= width:
            spans += hint
        return fit_line(spans, width, ellipsis=glyphs.ellipsis)

    # -- editing ------------------------------------------------------------------------------

    def _left(self) -> None:
        self.cursor = max(self.cursor - 1, 0)

    def _right(self) -> None:
        self.cursor = min(self.cursor + 1, len(self.text))

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _backspace(self) -> None:
        self._cut(max(self.cursor - 1, 0), self.cursor)

    def _delete(self) -> None:
        self._cut(self.cursor, self.cursor + 1)

    def _delete_word(self) -> None:
        kept = self.text[: self.cursor].rstrip()
        self._cut(max(kept.rfind(" "), kept.rfind("/")) + 1, self.cursor)

    def _delete_to_start(self) -> None:
        self._cut(0, self.cursor)

    def _delete_to_end(self) -> None:
        self._cut(self.cursor, len(self.text))

    _EDITS: ClassVar[dict[str, Callable[[Prompt], None]]] = {
        "left": _left,
        "right": _right,
        "home": _home,
        "end": _end,
        "ctrl+a": _home,
        "ctrl+e": _end,
        "backspace": _backspace,
        "ctrl+h": _backspace,
        "delete": _delete,
        "ctrl+w": _delete_word,
        "ctrl+u": _delete_to_start,
        "ctrl+k": _delete_to_end,
    }


class Letter(Prompt):
    """A question whose answer is one letter: what is typed takes the place of the letter that is there."""

    def insert(self, text: str) -> None:
        """Type a letter; of several the last one counts."""
        self._cut(0, len(self.text))
        super().insert(text[-1:])


class Prompting:
    """The part of the view that asks: at most one question at a time.

    Attributes:
        prompt: The question that is open; it stands in place of the footer and gets all keys.
    """

    def __init__(self) -> None:
        """Ask nothing yet."""
        self.prompt: Prompt | None = None
        self._answered: Callable[[str], str] = lambda text: ""
        self._changed: Callable[[str], None] = lambda text: None
        self._cancelled: Callable[[], None] = lambda: None

    def ask(
        self,
        prompt: Prompt,
        answered: Callable[[str], str],
        *,
        changed: Callable[[str], None] = lambda text: None,
        cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a question; one that is open already is forgotten.

        Args:
            prompt: The question.
            answered: Takes the text after Enter and returns "", or what is wrong with it: then the
                question stays open and says so. It may ask the next question.
            changed: Takes the text after every key.
            cancelled: Is called after Escape.
        """
        self.prompt, self._answered, self._changed, self._cancelled = prompt, answered, changed, cancelled

    def prompt_key(self, name: str, character: str | None) -> None:
        """Give the open question a key (see ``Prompt.key``)."""
        prompt = self.prompt
        if prompt is None:
            return
        outcome = prompt.key(name, character)
        if outcome == "open":
            self._changed(prompt.text)
        elif outcome == "cancelled":
            self.prompt = None
            self._cancelled()
        else:
            prompt.error = self._answered(prompt.text)
            if not prompt.error and self.prompt is prompt:
                self.prompt = None

    def prompt_paste(self, text: str) -> None:
        """Paste into the open question."""
        if self.prompt is not None:
            self.prompt.insert(text)
            self._changed(self.prompt.text)
