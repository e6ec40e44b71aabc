"""Signals that end gputop: heeded at once, whatever code they meet.

An interrupt is an exception in Python, and numpy drops those that are raised while it looks for an attribute.
So none is relied on: what is told first ends the work, and who holds nothing ends on the spot.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

# timeout(1) sends its signal to the process and then to its group: within so long two are one
ONE_S = 0.2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Interrupted(KeyboardInterrupt):
    """A signal has ended gputop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number  # the exit status, as a shell has it


def heeded() -> list[signal.Signals]:
    """Those of them that whoever started us does not want to be ignored (nohup, a background job)."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def heeding(notify: Callable[[int], None]) -> Iterator[None]:
    """Meanwhile such a signal is reported, then raised, at the latest at the end of the block.

    Args:
        notify: Gets the first one's number; must make the block end soon.

    Raises:
        Interrupted: One came.
    """
    came: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            notify(number)
        raise Interrupted(number)

    with _handled_by(handle):
        yield
    if came:
        raise Interrupted(came[0])


@contextmanager
def finishing(notify: Callable[[int], None] = lambda number: None) -> Iterator[None]:
    """Meanwhile the first such signal is told and waits for the end of the block: what it does is done whole.

    Args:
        notify: Gets the first one's number; may make the block end soon.

    Raises:
        Interrupted: One came: at the end, or on the spot when it was the second one.
    """
    with answering(notify) as came:
        yield
    if came:
        raise Interrupted(came[0])


@contextmanager
def answering(notify: Callable[[int], None], numbers: Collection[int] | None = None) -> Iterator[list[int]]:
    """As ``finishing``, but the end of the block raises nothing: what was done until then is an answer.

    Args:
        notify: As of ``finishing``.
        numbers: The signals; None: those that are heeded.

    Yields:
        The number of the signal that came.

    Raises:
        Interrupted: A second one came.
    """
    came: list[int] = []
    first = 0.0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if not came:
            first = time.monotonic()
            came.append(number)
            notify(number)
        elif time.monotonic() - first > ONE_S:
            raise Interrupted(number)

    with _handled_by(handle, numbers):
        yield came


@contextmanager
def _handled_by(
    handle: Callable[[int, FrameType | None], None], numbers: Collection[int] | None = None
) -> Iterator[None]:
    """Meanwhile these signals have this handler; afterwards what they had before."""
    chosen = heeded() if numbers is None else numbers
    previous = {number: signal.signal(number, handle) for number in chosen}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_at_once() -> None:
    """From now on an interrupt ends gputop where it is: nothing is held that has to be given back."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, _frame: os._exit(128 + number))


@contextmanager
def ending_at_once() -> Iterator[None]:
    """As ``end_at_once``, for a while."""
    before = signal.getsignal(signal.SIGINT)
    end_at_once()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
