"""Signals that end gputop, handled at once in any code.

numpy drops a KeyboardInterrupt that is raised while it looks for an attribute, so the exception alone is not
enough: the first signal is also reported to a callback, and code without resources to release exits directly.
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
    """Return the ending signals that are not ignored (as by nohup, or in a background job)."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def heeding(notify: Callable[[int], None]) -> Iterator[None]:
    """Context manager: report the signal, then raise, at the latest at the end of the block.

    Args:
        notify: Called with the first signal's number; must make the block end soon.

    Raises:
        Interrupted: A signal came.
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
    """Context manager: report the first signal and raise it only at the end, so that the block completes.

    Args:
        notify: Called with the first signal's number; may make the block end soon.

    Raises:
        Interrupted: A signal came; raised on the spot for the second one.
    """
    with answering(notify) as came:
        yield
    if came:
        raise Interrupted(came[0])


@contextmanager
def answering(notify: Callable[[int], None], numbers: Collection[int] | None = None) -> Iterator[list[int]]:
    """Like ``finishing``, but nothing is raised at the end: the work done until then is a result.

    Args:
        notify: As of ``finishing``.
        numbers: The signals; None: those of ``heeded``.

    Yields:
        A list, which holds the signal's number once one came.

    Raises:
        Interrupted: A second signal came.
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
    """Context manager: install a handler for these signals, and restore the previous ones."""
    chosen = heeded() if numbers is None else numbers
    previous = {number: signal.signal(number, handle) for number in chosen}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_at_once() -> None:
    """Make an interrupt end gputop at once from now on: no resources need a release."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, _frame: os._exit(128 + number))


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Like ``end_at_once``, within a block."""
    before = signal.getsignal(signal.SIGINT)
    end_at_once()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
