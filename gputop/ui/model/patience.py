"""A limit on what work may take of a CPU that has no limit of its own: regular expressions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLongError(Exception):
    """The work took longer than it may, and was left."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends what is done inside when it has taken so many seconds of a CPU.

    By a signal, which Python handles in its main thread only: in any other thread there is no limit.

    Raises:
        TooLongError: It has.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, leave)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
