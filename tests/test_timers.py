"""A one-shot timer fires, however long the process had to wait for a CPU."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator

import pytest
from textual import events
from textual.geometry import Size

from gputop.process.textual_app import SureTimers


@pytest.fixture
def preempted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second passes between any two looks at the clock of a one-shot timer: the process was preempted."""
    lost = itertools.count()

    def clock() -> float:
        one_shot = sys._getframe(1).f_locals.get("_repeat") == 0
        return time.monotonic() + (next(lost) if one_shot else 0)

    monkeypatch.setattr("textual._time.get_time", clock)
    yield
    assert next(lost) > 0, "no timer looked"


async def test_a_one_shot_timer_fires_when_the_process_was_preempted_as_it_started(preempted: None) -> None:
    app = SureTimers()
    async with app.run_test():
        fired = asyncio.Event()
        app.set_timer(0.01, fired.set)
        await asyncio.wait_for(fired.wait(), 60)


async def drawn(app: SureTimers, size: Size) -> None:
    """Waits until the screen is drawn in a size."""
    while app.screen._compositor.size != size:
        await asyncio.sleep(0.01)


async def test_a_resize_is_drawn_when_the_process_was_preempted_as_its_timer_started(preempted: None) -> None:
    app = SureTimers()
    async with app.run_test():
        for size in (Size(50, 12), Size(60, 14)):
            app.post_message(events.Resize(size, size))
            await asyncio.wait_for(drawn(app, size), 60)
