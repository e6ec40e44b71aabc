"""The screen on fake frames, through Textual's pilot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any
from unittest.mock import patch

from textual import events
from textual.app import App, ScreenStackError
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import ModalScreen

from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.ui.app import GputopApp
from gputop.ui.model.config import Preferences, Startup
from gputop.ui.model.view import View
from gputop.ui.panes.pane import Pane
from tests import fake_frames as fake

Screen = tuple[GputopApp, fake.FakeFeed, Pilot[int]]
Work = Callable[[], Awaitable[Any]]


_WAITS = "Pilot._wait_for_screen"  # the callbacks with which it asks each widget


class Handled:
    """How many messages widgets have begun to handle, but for the clock's and the pilot's own."""

    def __init__(self) -> None:
        """None so far."""
        self.number = 0

    def __call__(self, message: Message) -> None:
        """A message arrives at a widget."""
        callback = getattr(message.callback, "func", None) if isinstance(message, events.Callback) else None
        if not getattr(callback, "__qualname__", "").startswith(_WAITS) and not isinstance(
            message, events.Timer
        ):
            self.number += 1


class PatientPilot(Pilot[Any]):
    """Textual's pilot, on a machine that is as busy as it likes.

    Textual's takes a process that uses no CPU for 20 ms as done, which one that gets none is as well; then it
    waits for what lies before each widget, while a key passes several of them, and what is drawn comes later.
    This one waits for no time, so that a test which needs more than what it waits for fails at once.
    """

    def __init__(self, app: App[Any], handled: Handled) -> None:
        """Of a program whose messages are counted."""
        super().__init__(app)
        self._handled = handled
        self._pressing = False

    async def press(self, *keys: str) -> None:
        """Keys, each when the one before it has done what it does."""
        for key in keys:
            self._pressing = True  # its own wait costs as much again
            await super().press(key)
            self._pressing = False
            await self._at_rest()

    async def pause(self, delay: float | None = None) -> None:
        """Until all is done and drawn."""
        if delay is not None:
            await super().pause(delay)
        await self._at_rest()

    async def _at_rest(self) -> None:
        await self.app._animator.wait_until_complete()
        while self.app._resize_timer is not None and not self.app._exit:
            await asyncio.sleep(0.005)
        await self._wait_for_screen()

    async def _wait_for_screen(self, timeout: float = 60.0) -> bool:
        """Until no widget has anything to do, or after fifty rounds: some screens never rest."""
        for _round in range(0 if self._pressing else 50):
            await self._emptied()
            before = self._handled.number
            if not await super()._wait_for_screen(timeout):
                return False
            screen = self.app.screen
            drawn = not (screen._layout_required or screen._repaint_required or screen._dirty_widgets)
            if not drawn or screen._scroll_required or screen._callbacks:
                screen._on_timer_update()
            elif self._handled.number == before and all(
                widget._message_queue.empty() for widget in (self.app, *screen.walk_children(with_self=True))
            ):
                break
        return True

    async def _emptied(self) -> None:
        """What is queued is begun, which costs less than a round that asks each widget."""
        for _turn in range(50):
            await asyncio.sleep(0)
            try:
                widgets = self.app.screen.walk_children(with_self=True)
            except ScreenStackError:  # it has ended
                return
            if all(widget._message_queue.empty() for widget in (self.app, *widgets)):
                return


async def _no_matter(*_times: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def patient(app: App[Any], size: tuple[int, int], **options: Any) -> AsyncIterator[PatientPilot]:
    """A program without a terminal, as ``App.run_test`` has it."""
    handled = Handled()
    with patch("textual.app.wait_for_idle", _no_matter), patch("textual.pilot.wait_for_idle", _no_matter):
        async with app.run_test(size=size, message_hook=handled, **options):
            pilot = PatientPilot(app, handled)
            await pilot.pause()
            yield pilot


@asynccontextmanager
async def running(
    frame: Frame | None,
    size: tuple[int, int] = (120, 40),
    *,
    replay: bool = False,
    ascii: bool = False,
    preferences: Preferences | None = None,
    **options: Any,
) -> AsyncIterator[Screen]:
    """The program on fake frames; it polls only when a test says so."""
    feed = fake.FakeFeed(frame, fake.FakeTransport() if replay else None)
    mode = "replay" if replay else "live"
    preferences = preferences or Preferences()
    app = GputopApp(feed, Startup(mode, 0.001, ascii=ascii, preferences=preferences, **options))
    app.NOTIFICATION_TIMEOUT = 3600  # no message goes since the machine was busy
    async with patient(app, size, notifications=True) as pilot:
        yield app, feed, pilot


def text_of(app: GputopApp) -> str:
    """What the terminal shows."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    return "\n".join("".join(segment.text for segment in strip) for strip in update.strips)  # type: ignore[union-attr]


async def until(
    pilot: Pilot[int], condition: Callable[[], object], what: str, seconds: float = 180.0
) -> None:
    """Waits for a condition, however slow the machine is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {seconds:g} s"
        await pilot.pause()


def said(app: GputopApp) -> str:
    """What the newest message on the screen says; "" without one."""
    return next((note.message for note in reversed(list(app._notifications))), "")


def tokens_of(pane: Pane) -> list[tuple[str, str]]:
    """What a pane shows: texts with the names of their meanings."""
    return [span for line in pane.shown_lines for span in line]


async def feed_frame(screen: Screen, frame: Frame) -> None:
    """A new frame arrives."""
    app, feed, pilot = screen
    feed.newest = frame
    app.poll()
    await pilot.pause()


_OPEN: list[Shown] = []


def close_all() -> None:
    """Ends the programs that tests have left running."""
    while _OPEN:
        _OPEN[-1].close()


class Shown:
    """The same for tests that do not wait: each step is done when the call returns."""

    def __init__(
        self, frame: Frame | None = None, *keys: str, size: tuple[int, int] = (120, 40), **options: Any
    ) -> None:
        """Start the program.

        Args:
            frame: What is shown.
            keys: What is pressed then.
            size: Columns and lines.
            options: Of ``running``.
        """
        self._loop = asyncio.new_event_loop()
        self._orders: asyncio.Queue[tuple[Work, asyncio.Future[Any]] | None] = asyncio.Queue()
        started: asyncio.Future[Screen] = self._loop.create_future()
        self._life = self._loop.create_task(self._live(started, frame, size, options))
        self._loop.run_until_complete(asyncio.wait([started, self._life], return_when="FIRST_COMPLETED"))
        if self._life.done():
            self._life.result()
        self.app, self.feed, self.pilot = started.result()
        self._size = size
        _OPEN.append(self)
        if keys:
            self.press(*keys)

    async def _live(
        self,
        started: asyncio.Future[Screen],
        frame: Frame | None,
        size: tuple[int, int],
        options: dict[str, Any],
    ) -> None:
        """All of its life is one task: what Textual knows of the running program belongs to a task."""
        async with running(frame, size, **options) as made:
            started.set_result(made)
            while (order := await self._orders.get()) is not None:
                work, done = order
                done.set_result(await work())

    def do(self, work: Work) -> Any:
        """Work of the program's own task, done when this returns."""
        done = self._loop.create_future()
        self._orders.put_nowait((work, done))
        self._loop.run_until_complete(asyncio.wait([done, self._life], return_when="FIRST_COMPLETED"))
        if self._life.done():
            self._life.result()
        return done.result()

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program, and let go of it: a fuzz run starts thousands."""
        if self in _OPEN:
            _OPEN.remove(self)
        if not self._loop.is_closed():
            self._orders.put_nowait(None)
            try:
                self._loop.run_until_complete(self._life)
            finally:
                self._loop.close()

    @property
    def view(self) -> View:
        """What is shown and chosen."""
        return self.app.view

    def press(self, *keys: str) -> None:
        """Keys, one after another."""
        self.do(lambda: self.pilot.press(*keys))
        self.do(self.pilot.pause)

    def type(self, text: str) -> None:
        """Characters, into the question that is open."""
        self.press(*text)

    def show(self, frame: Frame) -> None:
        """A new frame arrives."""
        self.feed.newest = frame
        self.poll()

    def explain(self, explained: Explained) -> None:
        """A new explanation arrives."""
        self.feed.why = explained
        self.poll()

    def poll(self) -> None:
        """The program looks for something new."""

        async def look() -> None:
            self.app.poll()
            await self.pilot.pause()

        self.do(look)

    def ask(self, question: ModalScreen[None]) -> None:
        """A question opens."""
        self.do(lambda: self.app.push_screen(question))
        self.do(self.pilot.pause)

    def click(self, x: int, y: int) -> None:
        """A click on a cell."""
        self.do(lambda: self.pilot.click(offset=(x, y)))
        self.do(self.pilot.pause)

    def text(self, width: int = 0, height: int = 0) -> str:
        """What the terminal shows, in this size from now on.

        Args:
            width: Columns; 0: as before.
            height: Lines.
        """
        size = (width or self._size[0], height or self._size[1])
        if size != self._size:
            self._size = size
            self.do(lambda: self.pilot.resize_terminal(*size))
            self.do(self.pilot.pause)
        self.do(self.pilot.pause)
        return text_of(self.app)

    @property
    def said(self) -> str:
        """What the newest message says."""
        return said(self.app)
