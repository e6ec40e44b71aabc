"""Closes many descriptors at once, each of which the kernel takes its time for."""

from __future__ import annotations

import _thread
import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress


def close_all(descriptors: Sequence[int]) -> None:
    """Returns when all are closed: in parallel as far as threads are to be had, else one after the other."""
    waiting = deque(descriptors)
    closed = threading.Semaphore(0)

    def work() -> None:
        with suppress(IndexError):
            while True:
                descriptor = waiting.popleft()
                with suppress(OSError):
                    os.close(descriptor)
                closed.release()

    # not threading.Thread: where memory is short its start waits for ever for a thread that has ended
    with suppress(RuntimeError, MemoryError):
        for _ in descriptors[1:]:
            _thread.start_new_thread(work, ())
    work()
    for _ in descriptors:
        closed.acquire()
