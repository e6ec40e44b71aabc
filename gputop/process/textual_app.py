"""Base of the Textual programs: timers that always fire, garbage collection between two frames."""

from __future__ import annotations

import gc

from textual.app import App
from textual.timer import Timer, TimerCallback

_NEVER = 1 << 30


class SureTimers(App[int]):
    """An app whose one-shot timers fire, however late.

    A timer of Textual 8.2 skips ticks that are already due when it starts, and a one-shot timer has no other
    tick. The resize timer is one of these: after a lost tick, no later resize was applied.
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


def freeze_old_objects() -> None:
    """Exempt all existing objects from garbage collection, and stop collecting the oldest generation."""
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    gc.enable()


def collect_old_objects() -> None:
    """Collect the oldest generation if ``freeze_old_objects`` has turned its automatic collection off."""
    if gc.get_threshold()[2] == _NEVER:
        gc.collect()
