"""One-shot timers that always fire: Textual drops one whose process is preempted as it starts."""

from __future__ import annotations

from textual.app import App
from textual.timer import Timer, TimerCallback


class SureTimers(App[int]):
    """An app whose one-shot timers fire, however late.

    A timer of Textual 8.2 skips the ticks that are already due when it starts; a one-shot timer has no other.
    The timer that applies a resize is such a timer: once it was lost, no later resize was applied.
    """

    def set_timer(
        self,
        delay: float,
        callback: TimerCallback | None = None,
        *,
        name: str | None = None,
        pause: bool = False,
    ) -> Timer:
        """Like ``App.set_timer``, but never dropped."""
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        timer._skip = False
        return timer
