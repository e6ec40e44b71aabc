"""Runs the garbage collector between two frames of the screen; it is off until the first frame."""

from __future__ import annotations

import gc

_NEVER = 1 << 30


def leave_old() -> None:
    """What exists stays, and Python itself looks at nothing that is older than a moment."""
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    gc.enable()


def collect_old() -> None:
    """Looks at what ``leave_old`` left; where that was not called, Python does so itself."""
    if gc.get_threshold()[2] == _NEVER:
        gc.collect()
