"""Quitting ``gputop attach`` waits for nothing that goes on."""

from __future__ import annotations

import threading
from typing import cast

from gputop.commands.daemon.attach import end_soon
from gputop.playback.feeds import LiveFeed
from tests.waiting import wait_until


class _Closing:
    """A feed whose end waits for something."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.closed = False

    def close(self) -> None:
        self.go.wait()
        self.closed = True


def test_an_explanation_that_goes_on_does_not_hold_the_terminal() -> None:
    feed = _Closing()
    end_soon(cast("LiveFeed", feed), 0.05)
    assert not feed.closed
    feed.go.set()
    wait_until(lambda: feed.closed, "its end, later")
    feed.closed = False
    end_soon(cast("LiveFeed", feed), 60.0)
    assert feed.closed
