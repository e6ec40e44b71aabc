"""The longest turn of an event loop: for how long nothing else could happen there."""

from __future__ import annotations

import asyncio
import time


class Turns:
    """Measures every turn of this process's loops from now on.

    Args:
        after_s: What comes sooner does not count: a start imports what it needs and draws everything.
    """

    def __init__(self, after_s: float) -> None:
        self.longest_ms = 0.0
        self.begin()
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.events.Handle) -> None:
            began = time.thread_time()
            run(handle)
            if time.monotonic() - self._begun > after_s:
                self.longest_ms = max(self.longest_ms, 1e3 * (time.thread_time() - began))

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]

    def begin(self) -> None:
        """Counts from now on what comes ``after_s`` later."""
        self._begun = time.monotonic()
