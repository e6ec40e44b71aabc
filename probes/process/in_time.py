"""Threads that must be in time when every CPU is taken. They sleep most of the time.

One thread alone would gain little: it waits for whichever holds the interpreter's lock. And where the kernel
groups tasks by session, a session's share of a CPU follows the weight of its threads there, so that a light
one of ours would get next to nothing beside a watched program that takes all CPUs.
"""

from __future__ import annotations

import contextlib
import os
import threading

NICE = -15


def hurry() -> None:
    """The calling thread goes before others, if we may say so."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
