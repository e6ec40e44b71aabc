"""The Textual program: polls the feed, hands frames and actions to the presenter, shows its lines."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gputop.playback.feed import Feed
from gputop.ui.canvas import Canvas
from gputop.ui.driver import QuickDriver
from gputop.ui.model.actions import ACTIONS, actions_of, why_not
from gputop.ui.model.config import Preferences
from gputop.ui.model.presenter import Presenter
from gputop.ui.native_log import NativeLog
from gputop.ui.outlets import Outlets, OwnSender
from gputop.ui.palette import color_system_of, palette_for
from gputop.ui.time_keys import TimeKeys

FIRST_POLL_S = 0.03
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


class GputopApp(TimeKeys, Outlets):
    """The screen of gputop."""

    # The sign in front of the palette's line is an emoji. Its cursor is told by colour alone, and Textual
    # leaves "reverse" out of the style of options: where there are no colours of our own it is underlined.
    CSS = """
    CommandPalette SearchIcon { display: none; }
    CommandPalette:ansi #--input, CommandList:ansi { border: none; }
    CommandList:ansi > .option-list--option { text-style: none; }
    CommandList:ansi > .option-list--option-highlighted {
        text-style: bold underline; color: ansi_default; background: ansi_default;
    }
    CommandPalette:ansi > .command-palette--highlight { text-style: bold; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), f"act('{action.name}')", action.help, show=False, priority=True)
        for action in ACTIONS
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        rate_hz: float = 4.0,
        mode: str = "live",
        ascii: bool = False,
        selected_pid: int | None = None,
        title: str = "",
        native_log: NativeLog | None = None,
        preferences: Preferences | None = None,
        readonly: bool = False,
    ) -> None:
        """Make the program.

        Args:
            feed: Where frames come from.
            rate_hz: How often the newest frame is looked for.
            mode: ``live`` or ``replay``.
            ascii: Whether to draw with ASCII only.
            selected_pid: The process selected at first.
            title: What is watched, for the header.
            native_log: What native libraries wrote to the terminal's descriptors.
            preferences: What the user prefers.
            readonly: Whether other processes are to be left alone.
        """
        self.preferences = preferences or Preferences()
        self.color_system = color_system_of(os.environ)
        self.palette = palette_for(
            self.preferences.theme, no_color="NO_COLOR" in os.environ, color_system=self.color_system
        )
        super().__init__(
            driver_class=None if os.environ.get("TEXTUAL_DRIVER") else QuickDriver,
            ansi_color=self.palette.native,  # decides how Textual takes the colours away for NO_COLOR
        )
        self.feed = feed
        self.readonly = readonly
        self.presenter = Presenter(mode, ascii_only=ascii, selected_pid=selected_pid, title=title)
        self.presenter.prefer(self.preferences)
        if mode == "live" and not readonly:
            self.presenter.sender = OwnSender(self.tell_outcome)
        self.crash: Exception | None = None
        self._rate_hz = rate_hz
        self._native_log = native_log
        self._allowed = {action.name for action in actions_of(mode, readonly=readonly)}
        self._log_index = 0
        self._shown_number: int | None = None
        self._chrome: tuple[Any, ...] = ()

    def compose(self) -> ComposeResult:
        """One widget."""
        yield Canvas()

    def on_mount(self) -> None:
        """Start to poll."""
        self.wear(self.palette)
        self._first_poll()
        # after ctrl+z and fg the terminal is blank, also where a line is as it was
        self.app_resume_signal.subscribe(self, lambda _: self.screen_stack[0].query_one(Canvas).refresh())
        if not self.is_headless:
            self._heed_signals(asyncio.get_running_loop())

    def _first_poll(self) -> None:
        """Look often until there is a first frame, then at the rate of frames."""
        self.poll()
        if self._shown_number is None:
            self.set_timer(FIRST_POLL_S, self._first_poll)
        else:
            self.set_interval(1 / self._rate_hz, self.poll)

    def _heed_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends in order by such a signal: Textual leaves the terminal raw when one ends the process.

        The loop's own handlers would give way to the default action at its end, before all is closed.
        """

        def heed(number: int, _frame: FrameType | None) -> None:
            with suppress(RuntimeError):  # the loop has ended: so does the screen
                loop.call_soon_threadsafe(self._ended_by, number)

        for number in ENDING:
            signal.signal(number, heed)

    def _ended_by(self, number: int) -> None:
        self.exit(128 + number, return_code=128 + number)

    def poll(self) -> None:
        """Look for a newer frame and paint when there is something new to see."""
        frame = self.feed.latest()
        fresh = frame is not None and frame.number != self._shown_number
        if frame is not None and fresh:
            self.presenter.show(frame)
            self._shown_number = frame.number
        chrome = self._poll_chrome()
        if fresh or chrome != self._chrome:
            self._chrome = chrome
            self.paint()

    def _poll_chrome(self) -> tuple[Any, ...]:
        """Take what changes without a frame; the result differs when the screen has to."""
        presenter, feed = self.presenter, self.feed
        presenter.failure = feed.failure()
        presenter.recording = state = feed.recording()
        if self._native_log is not None:
            presenter.native_lines = self._native_log.count()
        self._log_index, lines = feed.log_lines(self._log_index)
        if lines:
            presenter.add_log(lines)
        presenter.explain(feed.explained())
        presenter.transport = self.transport_view()
        live = presenter.mode == "live"
        presenter.paused = live and presenter.transport is not None
        presenter.behind_ns = feed.transport.end_ns - feed.transport.position_ns if presenter.paused else 0
        if feed.recorder is not None:
            presenter.notice = feed.recorder.take_notice() or presenter.notice
        # Whole seconds: the screen is never painted for a clock alone.
        elapsed = int(state.elapsed_s) if state else -1
        log = self._log_index if presenter.log_shown else 0
        behind = presenter.behind_ns // 1_000_000_000
        explained = presenter.explained
        return (
            presenter.failure,
            elapsed,
            presenter.native_lines,
            log,
            presenter.transport,
            behind,
            explained,
            presenter.notice,
        )

    def paint(self) -> None:
        """Show what the presenter has to say in the size of now."""
        if not self._running:
            return
        canvas = self.screen_stack[0].query_one(Canvas)
        width, height = canvas.size
        if width and height:
            canvas.set_lines(self.presenter.paint(width, height))

    def on_canvas_resized(self) -> None:
        """The terminal has another size."""
        self.paint()

    def on_canvas_clicked(self, event: Canvas.Clicked) -> None:
        """A click."""
        action = self.presenter.key_at(event.x, event.y)
        if action:
            self.action_act(action)
            return
        if self.bar_clicked(event.x, event.y):
            self.poll()
            return
        self.presenter.notice = ""
        self.presenter.click(event.x, event.y)
        self.paint()

    def on_canvas_wheel_turned(self, event: Canvas.WheelTurned) -> None:
        """The wheel."""
        self.presenter.wheel(event.x, event.y, event.by)
        self.paint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question or the palette is open, keys type instead of acting; ctrl+c still quits."""
        typing = self.presenter.prompt is not None or len(self.screen_stack) > 1
        return not typing or action != "act" or parameters == ("quit_now",)

    def on_key(self, event: events.Key) -> None:
        """A key for the question that is open."""
        if self.presenter.prompt is not None:
            event.prevent_default()
            self.presenter.prompt_key(event.key, event.character)
            self.poll()
            self.paint()

    def on_paste(self, event: events.Paste) -> None:
        """A paste into the question that is open."""
        self.presenter.prompt_paste(event.text)
        self.paint()

    def action_act(self, name: str) -> None:
        """Do an action of the table.

        Args:
            name: The action's name.
        """
        if name not in self._allowed:
            self.presenter.notice = why_not(name, self.presenter.mode)
            self.paint()
            return
        self.presenter.notice = ""
        own = getattr(self, f"do_{name}", None)
        if own is not None:
            own()
            self.poll()
        else:
            self.presenter.act(name)
        self.paint()

    def run_named(self, name: str) -> None:
        """Do an action of the table, once the palette has closed."""
        self.action_act(name)

    def do_quit(self) -> None:
        """Close the page that is open, else quit."""
        if self.presenter.overlay:
            self.presenter.act("back")
        else:
            self.exit(0)

    def do_quit_now(self) -> None:
        """Quit."""
        self.exit(0)

    def do_suspend(self) -> None:
        """Stop as a job of the shell; what is lost meanwhile is counted."""
        self.action_suspend_process()

    def do_open(self) -> None:
        """In the chain: to the moment that its cursor is on. Else open what is selected."""
        moment = self.presenter.moment_ns()
        self.presenter.act("open")
        if moment is not None:
            self.go_to_moment(moment)

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual would print a traceback over the user's terminal; run_app says one sentence instead.
        self._close_messages_no_wait()
