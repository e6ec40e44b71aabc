"""The menu of signals: which one, to whom, and the question before it is sent."""

from __future__ import annotations

from typing import Protocol

from gputop.engine.frame import ProcessRow
from gputop.format import clip, escape_text
from gputop.process.signals import OFFERED
from gputop.ui.model.list_controls import ListControls
from gputop.ui.model.look import Glyphs, Line, fit_line
from gputop.ui.model.prompt import Prompt

_FIRST = 3  # the line of the first signal


class Sender(Protocol):
    """Who sends signals; the screen itself does not."""

    def refusal(self, row: ProcessRow) -> str:
        """Why no signal can be sent to a process, "" when one can."""

    def send(self, row: ProcessRow, index: int) -> str:
        """Send one of ``OFFERED``; says what came of it."""


class SignalMenu:
    """The signals that can be sent to one process.

    Attributes:
        row: The process.
        index: The selected signal.
    """

    def __init__(self, row: ProcessRow) -> None:
        """Start with the gentlest."""
        self.row = row
        self.index = 0

    def move(self, by: int) -> None:
        """Move the cursor by lines."""
        self.index = min(max(self.index + by, 0), len(OFFERED) - 1)

    def click(self, y: int) -> None:
        """A click on a line of the page."""
        if 0 <= y - _FIRST < len(OFFERED):
            self.index = y - _FIRST

    def lines(self, width: int, glyphs: Glyphs) -> list[Line]:
        """The page."""
        row = self.row
        name = escape_text(row.name, ascii_only=glyphs.ascii)
        command = clip(escape_text(row.command, ascii_only=glyphs.ascii), max(width - 4, 1), glyphs.ellipsis)
        out: list[Line] = [
            ((f" to {row.pid} {name}", "value"), (f"  user {escape_text(row.user)}", "dim")),
            ((f"   {command}", "dim"),),
            ((" ", ""),),
        ]
        for place, (number, meaning) in enumerate(OFFERED):
            chosen = place == self.index
            suffix = "+select" if chosen else ""
            sign = glyphs.cursor if chosen else " "
            line = ((f" {sign} {number.name:<9}", "key" + suffix), (meaning, suffix))
            out.append(fit_line(line, width, token=suffix, ellipsis=glyphs.ellipsis))
        return [*out, ((" ", ""),), ((" Enter asks once more before it is sent", "dim"),)]

    @property
    def question(self) -> str:
        """What is asked before the signal is sent."""
        return f"send {OFFERED[self.index][0].name} to {self.row.pid} {escape_text(self.row.name)}?"


class SignalControls(ListControls):
    """The actions of the menu.

    Attributes:
        menu: The menu that is open, None when none is.
        sender: Who sends, None where nothing may be sent (a replay, ``--readonly``).
    """

    menu: SignalMenu | None = None
    sender: Sender | None = None

    def do_signal(self) -> None:
        """Open the menu for the selected process."""
        row = self.selected
        if self.sender is None or row is None:
            return
        if row.exited_ns is not None:
            self.notice = f"{row.pid} {escape_text(row.name)} has ended already"
            return
        self.notice = self.sender.refusal(row)
        if not self.notice:
            self.menu, self.overlay = SignalMenu(row), "signals"

    def choose_signal(self) -> None:
        """Ask whether the selected signal is to be sent."""
        menu = self.menu
        if menu is None:
            return

        def answered(text: str) -> str:
            if text.strip().lower() not in ("y", "yes"):
                self.notice = "nothing was sent"
            elif self.sender is not None:
                self.notice = self.sender.send(menu.row, menu.index)
            self.overlay = ""
            return ""

        self.ask(Prompt(menu.question, "", "y sends it"), answered)
