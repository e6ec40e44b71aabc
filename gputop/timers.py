"""Timers that come: Textual drops one whose process is preempted as it begins."""

from __future__ import annotations

from textual.app import App
from textual.timer import Timer, TimerCallback


class SureTimers(App[int]):
    """A program whose timers of once come however late.

    Textual 8.2 leaves out what a timer should have done already when it begins, which is all that one of once
    does. Its own timer for a resize is one of these: without it no further resize was ever heeded.
    """

    def set_timer(
        self,
        delay: float,
        callback: TimerCallback | None = None,
        *,
        name: str | None = None,
        pause: bool = False,
    ) -> Timer:
        """As Textual's, and it comes."""
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False
        return timer
