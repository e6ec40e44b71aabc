"""What leads out of the screen: clipboard, files, signals, themes and the command palette."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import partial

from textual.app import App
from textual.markup import escape

from gputop.engine.frame import ProcessRow
from gputop.engine.frame_json import frame_to_json
from gputop.explain.answer.output import report_to_json
from gputop.process.signals import OFFERED, Aim, SignalError, Target
from gputop.ui.canvas import Canvas
from gputop.ui.exports import ExportError, save, stamped
from gputop.ui.model.actions import actions_of
from gputop.ui.model.config import Preferences
from gputop.ui.model.presenter import Presenter
from gputop.ui.palette import Palette, following

_FETCHED_FONT = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)
OUTCOME_S = 1.0  # after a signal, until it is told what has become of the process


class OwnSender:
    """Sends signals from this process, with its rights."""

    def __init__(self, sent: Callable[[], object]) -> None:
        """Aim at nobody.

        Args:
            sent: Called after a signal, to look later what has become of the process.
        """
        self.aim: Aim | None = None
        self._sent = sent

    def refusal(self, row: ProcessRow) -> str:
        """Why no signal can be sent to a process, "" when one can."""
        self.let_go()
        try:
            self.aim = Aim(Target(row.pid, row.name, row.user, row.start_ns))
        except SignalError as error:
            return str(error)
        return ""

    def send(self, row: ProcessRow, index: int) -> str:
        """Send one of ``OFFERED``; says what came of it."""
        if self.aim is None:
            return "nothing was sent"
        try:
            said = self.aim.send(OFFERED[index][0])
        except SignalError as error:
            return str(error)
        self._sent()
        return said

    def let_go(self) -> None:
        """Aim at nobody any more."""
        if self.aim is not None:
            self.aim.close()
        self.aim = None


class Outlets(App[int]):
    """The part of the program that acts on the world outside of the screen.

    Attributes:
        presenter: The screen without a terminal.
        preferences: What the user prefers.
        color_system: How many colours the terminal has, in the words of Rich; None for none.
    """

    presenter: Presenter
    preferences: Preferences
    color_system: str | None
    readonly: bool
    palette: Palette

    def paint(self) -> None:
        """Show what the presenter has to say."""
        raise NotImplementedError

    # -- themes -------------------------------------------------------------------------------

    def wear(self, palette: Palette) -> None:
        """Put on a theme."""
        self.palette = palette
        self.ansi_color = palette.native
        self.theme = "ansi-dark" if palette.native else "textual-light" if palette.light else "textual-dark"
        screen = self.screen_stack[0]  # below the command palette
        screen.query_one(Canvas).dress(palette)
        screen.styles.background = palette.background

    def do_theme(self) -> None:
        """The next theme."""
        presenter = self.presenter
        if self.no_color or self.color_system is None:
            why = "NO_COLOR is set" if self.no_color else "this terminal has no colours"
            presenter.notice = f"no other theme: {why}"
            return
        self.wear(following(self.palette.name, self.color_system))
        name = self.palette.name
        presenter.notice = f'theme {name}; to keep it: theme = "{name}" in {self.preferences.path}'

    # -- clipboard and files ------------------------------------------------------------------

    def do_copy(self) -> None:
        """The selected row, or the page that is open, to the terminal's clipboard."""
        text = self.presenter.copied()
        if not text:
            self.presenter.notice = "no row is selected here: Tab goes to a table"
            return
        self.copy_to_clipboard(text)
        self.presenter.notice = f"copied, where the terminal allows it: {text.splitlines()[0]}"

    def do_export(self) -> None:
        """The frame and its verdict as JSON."""
        frame = self.presenter.frame
        if frame is None:
            self.presenter.notice = "there is no frame yet"
            return
        report = self.presenter.explained.report
        made = frame_to_json(frame) | {"verdict": report_to_json(report) if report else None}
        self._save("json", json.dumps(made) + "\n")

    def do_screenshot(self) -> None:
        """The screen as a picture."""
        # Rich names fonts to be fetched from the network; whoever opens a picture should not call anybody.
        self._save("svg", _FETCHED_FONT.sub("", self.export_screenshot(title="gputop")))

    def _save(self, ending: str, text: str) -> None:
        frame = self.presenter.frame
        wall_ns, offset_s = (frame.wall_ns, frame.utc_offset_s) if frame else (time.time_ns(), 0)
        try:
            self.presenter.notice = f"written: {save(stamped(wall_ns, offset_s, ending), text)}"
        except ExportError as error:
            self.presenter.notice = str(error)

    # -- signals ------------------------------------------------------------------------------

    def tell_outcome(self) -> None:
        """Look, a moment after a signal was sent, what has become of the process."""
        self.set_timer(OUTCOME_S, self._outcome)

    def _outcome(self) -> None:
        sender = self.presenter.sender
        if isinstance(sender, OwnSender) and sender.aim is not None:
            self.presenter.notice = sender.aim.outcome()
            sender.let_go()
            self.paint()

    # -- the command palette ------------------------------------------------------------------

    def do_palette(self) -> None:
        """All actions by name."""
        mode = self.presenter.mode
        self.search_commands(
            [
                # Textual reads markup in both texts
                (
                    f"{action.name.replace('_', ' ')}: {escape(action.help)}",
                    partial(self.run_named, action.name),
                    f"key {escape(action.shown)}",
                )
                for action in actions_of(mode, readonly=self.readonly)
                if action.name != "palette"
            ],
            placeholder="What to do",
        )

    def run_named(self, name: str) -> None:
        """Do an action of the table."""
        raise NotImplementedError
