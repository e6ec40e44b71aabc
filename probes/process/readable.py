"""Waits for a descriptor, whatever its number: select(2) takes none beyond 1,023."""

from __future__ import annotations

import select


def readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or an end, within so many seconds."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(max(seconds, 0) * 1000))
