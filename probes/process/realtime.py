"""Threads that must be in time when every CPU is busy, and their waits: latches and descriptors."""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
from contextlib import suppress

NICE = -15


def hurry() -> None:
    """The calling thread goes before others, if it has the right."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


# A latch: set once, for good; by handlers of signals, too.


class Latch:
    """Is not set at first, and stays set; any thread may wait for it.

    A signal handler must not set a ``threading.Event``: a signal that hits its own thread between the end of
    a wait and the return from it finds the event's lock held by that thread, and waits for itself. On a busy
    machine, where a thread whose wait is over is queued for a CPU, that is where signals come.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        """Close the descriptor when no thread can wait any more."""
        with suppress(AttributeError, OSError):
            os.close(self._event)

    def set(self) -> None:
        """Sets it, and wakes waiting threads; safe wherever a signal hits."""
        self._is_set = True
        os.eventfd_write(self._event, 1)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Waits until it is set, or for a time, rounded up to a millisecond; true if it is set."""
        if not self._is_set:
            waiting = select.poll()  # one object must not be used by two threads at a time
            waiting.register(self._event, select.POLLIN)
            waiting.poll(math.ceil(max(timeout_s, 0.0) * 1e3))
        return self._is_set


# Waits for a descriptor, whatever its number: select(2) allows none beyond 1,023.


def readable(descriptor: int, seconds: float) -> bool:
    """True if there is something to read, or an end, within so many seconds."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(max(seconds, 0) * 1000))
