"""The Textual program: polls the feed, and updates the panes when there is something new."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen

from gputop.engine.frame import Frame
from gputop.playback.bookmarks import MARKED
from gputop.playback.feed import Explained, Feed
from gputop.process.textual_app import collect_old_objects
from gputop.ui.main_screen import MainScreen
from gputop.ui.model.config import USUAL, Startup
from gputop.ui.model.time.timebar import TransportView
from gputop.ui.model.view import View
from gputop.ui.panes.detail_panes import Details
from gputop.ui.panes.dialogs import Actions
from gputop.ui.panes.flame_pane import FlamePane
from gputop.ui.panes.gpu_panes import Gpus
from gputop.ui.panes.pane import Host, PaneScreen, quiet_key
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.timeline_pane import TimelinePane
from gputop.ui.panes.why_pane import WhyPane
from gputop.ui.terminal.native_log import NativeLog
from gputop.ui.terminal.palette import PALETTES, Palette, color_system_of, following, palette_for
from gputop.ui.terminal.terminal_driver import QuickDriver

_LOG = logging.getLogger(__name__)
FIRST_POLL_S = 0.03
SOON_S, SOON_TRIES = 0.015, 40  # after a key that moves in time
GARBAGE_S = 10.0  # between two garbage collections (run.py)
# from a screen opened, closed or restyled, which make most garbage, to a collection
CLOSED_S = 0.3
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
ALERT_S = 60.0  # an alert stays on the screen
OUTCOME_S = 1.0  # from a signal to the report about its process
_FETCHED_FONT = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)


class GputopApp(Host):
    """The screen of gputop."""

    CSS_PATH = "gputop.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "Help", key_display="?", tooltip="this page"),
        Binding("q", "close", "Quit", tooltip="close the page, or quit"),
        quiet_key("exclamation_mark", "problems", "Problems", "missing data and its reasons, in full"),
        quiet_key("x", "export", "Export", "save the frame as JSON in this directory"),
        quiet_key(
            "i", "summary", "Summary", "the selected process: run time, steps, idle time, causes, energy"
        ),
        quiet_key("S", "picture", "Picture", "save the screen as SVG in this directory"),
        quiet_key("T", "theme", "Theme", "next theme"),
        quiet_key("ctrl+p", "command_palette", "palette", "find an action by its name"),
        quiet_key("ctrl+z", "suspend_process", "Suspend", "suspend; fg in the shell brings it back"),
        Binding(
            "ctrl+c,ctrl+q",
            "quit_now",
            "Quit now",
            show=False,
            priority=True,
            tooltip="copy marked text, else quit",
        ),
    ]

    def __init__(
        self,
        feed: Feed,
        startup: Startup = USUAL,
        *,
        native_log: NativeLog | None = None,
        seen: Callable[[], None] = lambda: None,
        ease: Callable[[int], None] = lambda slower: None,
    ) -> None:
        """Create the program.

        Args:
            feed: The source of frames.
            startup: The screen's settings.
            native_log: The output of native libraries to the terminal.
            seen: Called once the first frame is on the screen.
            ease: Has WHY updated so many times less often.
        """
        self.preferences = startup.preferences
        self.color_system = color_system_of(os.environ)
        self.palette = palette_for(
            self.preferences.theme, no_color="NO_COLOR" in os.environ, color_system=self.color_system
        )
        super().__init__(
            driver_class=None if os.environ.get("TEXTUAL_DRIVER") else QuickDriver,
            ansi_color=self.palette.native,  # decides how Textual removes colours for NO_COLOR
        )
        for palette in PALETTES.values():
            self.register_theme(palette.theme())
        # without its watcher, which would parse all styles a second time before anything is painted
        self.set_reactive(App.theme, self.palette.name)
        self.stylesheet.set_variables(self.get_css_variables())
        self.set_class(startup.ascii, "-ascii")
        self.feed = feed
        self.view = View(startup)
        if startup.mode == "live" and not startup.readonly:
            from gputop.ui.sender import OwnSender

            self.sender = OwnSender(lambda: self.set_timer(OUTCOME_S, self.show_outcome))
        self.crash: Exception | None = None
        self._rate_hz = startup.rate_hz
        self._native_log = native_log
        self._log_index = 0
        self._seen = seen
        self._ease = ease
        self._next_draw_s = 0.0
        self._shown_number: int | None = None
        self._unseen = False  # there is something new that was not drawn
        self._chrome: tuple[Any, ...] = ()
        self._summarised = False

    def get_default_screen(self) -> Screen[Any]:
        return MainScreen(self.view)

    def get_key_display(self, binding: Binding) -> str:
        """Return how a key is written; in ASCII with ``--ascii``."""
        shown = super().get_key_display(binding)
        return shown if shown.isascii() or not self.view.glyphs.ascii else binding.key.capitalize()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return defaults for Textual's own themes."""
        return PALETTES["dark"].theme().variables

    def on_mount(self) -> None:
        self._first_poll()
        # after ctrl+z and fg the terminal is blank, even where lines have not changed
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh(layout=True))
        if not self.is_headless:
            self._heed_signals(asyncio.get_running_loop())

    def _first_poll(self) -> None:
        """Poll often until the first frame, then at the rate of frames."""
        self.poll()
        if self._shown_number is None:
            self.set_timer(FIRST_POLL_S, self._first_poll)
        else:
            self.set_interval(1 / self._rate_hz, self.poll)
            self.set_interval(GARBAGE_S, collect_old_objects)
            self.screen_change_signal.subscribe(self, lambda _: self.set_timer(CLOSED_S, collect_old_objects))
            self.call_after_refresh(self._seen)

    def _heed_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Exit cleanly on signals: Textual would leave the terminal raw.

        Not by handlers of the loop, which are removed at its end, before everything is closed.
        """

        def heed(number: int, _frame: FrameType | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(partial(self.exit, 128 + number, return_code=128 + number))

        for number in ENDING:
            signal.signal(number, heed)

    async def on_event(self, event: events.Event) -> None:
        """Keep rows in their places while the user uses keys or the mouse."""
        if isinstance(event, events.InputEvent):
            self.view.touch()
        await super().on_event(event)

    def poll_soon(self, tries: int = SOON_TRIES) -> None:
        shown = self._shown_number
        self.poll()
        if self._shown_number == shown and tries:
            self.set_timer(SOON_S, partial(self.poll_soon, tries - 1))

    def poll(self) -> None:
        view, frame = self.view, self.feed.latest()
        if (present := self.feed.present()) is not None:
            view.observe(present[0])
        fresh = frame is not None and frame.number != self._shown_number
        if frame is not None and fresh:
            farewell = view.show(frame)
            if farewell:
                self.show_message(farewell)
            self._shown_number = frame.number
        chrome = self._poll_chrome()
        seen = present or ((frame, view.explained) if frame is not None else None)
        if seen is not None:
            view.runs.consume(*seen)
            self._summarise()
        self._alert(seen)
        self._unseen = view.settle() or fresh or chrome != self._chrome or self._unseen
        self._chrome = chrome
        if view.own_cost.consume(view.clock(), time.process_time()):
            self._ease(view.own_cost.slower)
        if self._unseen and self._draws_now():
            self.show()

    def _draws_now(self) -> bool:
        """True if this frame is drawn; not each one while gputop is over its budget, live."""
        now_s, cost = self.view.clock(), self.view.own_cost
        if self.view.live and cost.slower > 1 and now_s < self._next_draw_s:
            return False
        # half a frame early, since frames have a clock of their own
        self._next_draw_s = now_s + 1 / cost.drawn_hz(self._rate_hz) - 0.5 / self._rate_hz
        return True

    def _summarise(self) -> None:
        """Open the summary once the started command has ended, unless another page is being read."""
        run = self.view.runs.last_ended()
        if (
            run is None
            or not self.view.outcome
            or self._summarised
            or not isinstance(self.screen, MainScreen)
        ):
            return
        if self.view.explained.ended is None and self.view.explained.report is not None:
            return  # the last explanation is still to come
        self._summarised = True
        self.action_summary(run.row.pid)

    def action_summary(self, pid: int | None = None) -> None:
        from gputop.ui.page_screens import SummaryPage

        row = self.view.selected
        if pid is None and row is not None:
            pid = row.pid
        if pid is None:
            self.show_message("no process is selected")
        else:
            self.push_screen(SummaryPage(self.view, pid))

    def _alert(self, seen: tuple[Frame, Explained] | None) -> None:
        """Report rules that fire: by the bell, a message, a marker and a line in the log."""
        if seen is None:
            return
        for text, time_ns in self.view.alert(*seen):
            _LOG.warning("alert: %s", text)
            self.feed.transport.mark(f"alert: {text}", time_ns)
            self.bell()
            self.notify(text, title="alert", severity="warning", timeout=ALERT_S, markup=False)

    def _poll_chrome(self) -> tuple[Any, ...]:
        """Update everything that changes without a frame; a different result means a redraw."""
        view, feed, transport = self.view, self.feed, self.feed.transport
        view.failure, view.outcome = feed.failure(), feed.outcome()
        view.recording = state = feed.recording()
        view.recorded = state.path if state is not None else view.recorded
        if self._native_log is not None:
            view.native_lines = self._native_log.count()
        self._log_index, lines = feed.log_lines(self._log_index)
        if lines:
            view.add_log(lines)
        view.explain(feed.explained())
        view.transport = None
        landmarks = transport.landmarks()
        view.marked_ns = tuple(one.time_ns for one in landmarks if one.kind == MARKED)
        if not transport.live:
            view.transport = TransportView(
                transport.playing,
                transport.speed,
                transport.position_ns,
                transport.start_ns,
                transport.end_ns,
                tuple((landmark.time_ns, landmark.kind) for landmark in landmarks),
            )
        if feed.recorder is not None and (notice := feed.recorder.pop_notice()):
            self.show_message(notice)
        # Whole seconds: the screen is never painted for a clock alone.
        elapsed = int(state.elapsed_s) if state else -1
        log = self._log_index if view.log_shown else 0
        behind = view.status.behind_ns // 1_000_000_000
        return (
            view.failure,
            view.outcome,
            elapsed,
            view.native_lines,
            log,
            view.transport,
            behind,
            view.explained,
            view.marked_ns,
        )

    def show(self) -> None:
        """Update all visible panes: those of the screen, and of the screens below a dialog."""
        self._unseen = False
        for screen in reversed(self.screen_stack):
            if isinstance(screen, PaneScreen) and screen.is_mounted:
                screen.show()
            if not screen.is_modal:
                return

    # -- pages --------------------------------------------------------------------------------

    def action_help(self) -> None:
        from gputop.ui.page_screens import HelpPage

        main = self.screen_stack[0]
        places: list[tuple[str, Any]] = [
            ("Verdict", main.query_one(WhyPane)),
            ("Tables", main.query_one(Processes)),
            ("Calls, lines, threads", main.query_one(Details)),
            ("Flame", main.query_one(FlamePane)),
            ("GPUs", main.query_one(Gpus)),
            ("Timeline", main.query_one(TimelinePane)),
            ("Everywhere", main),
            ("Session", self),
        ]
        self.push_screen(HelpPage(self.view, places))

    def action_problems(self) -> None:
        from gputop.ui.page_screens import ProblemsPage

        self.push_screen(ProblemsPage(self.view))

    def action_close(self) -> None:
        if isinstance(self.screen, MainScreen):
            self.exit(0)
        else:
            self.screen.dismiss()

    def action_quit_now(self) -> None:
        marked = self.screen.get_selected_text()
        if marked:
            self.copy(marked)
            self.screen.clear_selection()
        else:
            self.exit(0)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Actions):
            self.push_screen(Actions())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the keys' actions by name, and the themes."""
        listed = {"command_palette"}  # of several keys for an action, the first
        for active in screen.active_bindings.values():
            binding = active.binding
            if active.enabled and binding.tooltip and binding.action not in listed:
                listed.add(binding.action)
                name = f"{binding.description.lower()}: {binding.tooltip}"
                run = partial(self.run_action, binding.action, active.node)
                yield SystemCommand(name, f"key {self.get_key_display(binding)}", run)
        for name in self._themes():
            yield SystemCommand(f"theme {name}", "colours of the screen", partial(self.wear, PALETTES[name]))

    # -- themes -------------------------------------------------------------------------------

    def _themes(self) -> list[str]:
        if self.no_color or self.color_system is None:
            return []
        return [name for name, one in PALETTES.items() if one.native or self.color_system != "standard"]

    def wear(self, palette: Palette) -> None:
        self.palette = palette
        self.ansi_color = palette.native
        self.theme = palette.name
        self.show_message(
            f'theme {palette.name}; to keep it: theme = "{palette.name}" in {self.preferences.path}'
        )

    async def refresh_css(self, animate: bool = True) -> None:  # type: ignore[override]
        """Apply the theme's styles piece by piece, so that keys need not wait for all of it."""
        sheet, old = Stylesheet(variables=self.get_css_variables()), self.stylesheet
        while source := next((one for one in old.source if one not in sheet.source), None):
            css, is_default, tie_breaker, scope = old.source[source]
            sheet.add_source(css, source, is_default, tie_breaker, scope)
            sheet.parse()
            await asyncio.sleep(0)
        self.stylesheet = sheet
        with self.batch_update():
            for root in (self, *self._background_screens):
                for node in list(root.walk_children(with_self=True)):
                    sheet.update_nodes([node], animate=animate)
                    await asyncio.sleep(0)
        self.show()
        self.screen.refresh(layout=True)
        self.set_timer(CLOSED_S, collect_old_objects)

    def action_theme(self) -> None:
        if self.no_color or self.color_system is None:
            why = "NO_COLOR is set" if self.no_color else "this terminal has no colours"
            self.show_message(f"no other theme: {why}")
            return
        self.wear(following(self.palette.name, self.color_system))

    # -- files and signals --------------------------------------------------------------------

    async def action_export(self) -> None:
        """Save the frame and its verdict as JSON, in a thread: hundreds of processes take long."""
        frame, report = self.view.frame, self.view.explained.report
        if frame is None:
            self.show_message("there is no frame yet")
            return
        from gputop.documents.fields import document
        from gputop.engine.frame_json import frame_to_json

        def made() -> str:
            return json.dumps(frame_to_json(frame) | {"verdict": document(report) if report else None})

        self._save("json", await asyncio.to_thread(made) + "\n")

    def action_picture(self) -> None:
        # without Rich's fonts, which a viewer would fetch from the network
        self._save("svg", _FETCHED_FONT.sub("", self.export_screenshot(title="gputop")))

    def _save(self, ending: str, text: str) -> None:
        from gputop.ui.exports import ExportError, save, stamped

        frame = self.view.frame
        wall_ns, offset_s = (frame.wall_ns, frame.utc_offset_s) if frame else (time.time_ns(), 0)
        try:
            self.show_message(f"saved: {save(stamped(wall_ns, offset_s, ending), text)}")
        except ExportError as error:
            self.show_message(str(error))

    def show_outcome(self) -> None:
        """Show what became of the process that a signal was sent to."""
        if self.sender is not None and (outcome := self.sender.outcome()):
            self.show_message(outcome)

    # -- the end ------------------------------------------------------------------------------

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # run_app prints one sentence in place of Textual's traceback
        self._close_messages_no_wait()
