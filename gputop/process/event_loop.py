"""What a Textual program needs: one-shot timers that always fire, garbage collected between two frames."""

from __future__ import annotations

import gc

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


# Runs the garbage collector between two frames of the screen; it is off until the first frame.

_NEVER = 1 << 30


def leave_old() -> None:
    """What exists stays, and Python itself looks at nothing that is older than a moment."""
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    gc.enable()


def collect_old() -> None:
    """Restores what ``leave_old`` left; where that was not called, Python does so itself."""
    if gc.get_threshold()[2] == _NEVER:
        gc.collect()
