"""The screen on fake frames, through Textual's pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gputop.engine.frame import Frame
from gputop.ui.app import GputopApp
from gputop.ui.canvas import Canvas
from gputop.ui.model.look import plain
from tests import fake_frames as fake

Screen = tuple[GputopApp, fake.FakeFeed, Pilot[int]]


@asynccontextmanager
async def running(
    frame: Frame | None, size: tuple[int, int] = (120, 40), *, replay: bool = False, ascii: bool = False
) -> AsyncIterator[Screen]:
    """The program on fake frames; it polls only when a test says so."""
    feed = fake.FakeFeed(frame, fake.FakeTransport() if replay else None)
    app = GputopApp(feed, rate_hz=0.001, mode="replay" if replay else "live", ascii=ascii)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, feed, pilot


def text_of(app: GputopApp) -> str:
    """What the screen says."""
    return "\n".join(plain(line) for line in app.query_one(Canvas).lines)


def feed_frame(screen: Screen, frame: Frame) -> None:
    """A new frame arrives."""
    app, feed, _ = screen
    feed.newest = frame
    app.poll()
