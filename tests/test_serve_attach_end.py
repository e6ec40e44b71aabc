"""Quitting ``gputop attach`` waits for nothing that goes on."""

from __future__ import annotations

import logging
import threading
from typing import cast

import pytest

from gputop.commands.daemon.attach import end_soon
from gputop.playback.feeds import LiveFeed


class _Closing:
    """A feed whose end waits for something."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def close(self) -> None:
        self.go.wait()


def test_an_explanation_that_goes_on_does_not_hold_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    feed = _Closing()
    with caplog.at_level(logging.WARNING):
        end_soon(cast("LiveFeed", feed), 0.05)
    feed.go.set()
    assert "did not end within 0.05 s" in caplog.text
    caplog.clear()
    end_soon(cast("LiveFeed", feed))
    assert not caplog.text
