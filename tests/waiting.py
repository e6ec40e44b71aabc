"""Waits for a condition, never for a time: however slow the machine is, a test goes on when it is true.

A figure of time is measured again while it is not good: a machine that is slow for some seconds does not stay
so, a fault does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = float(os.environ.get("GPUTOP_TEST_PATIENCE", "1"))  # of an emulated machine: scripts/old_kernel.sh
HANGS_S = 240 * PATIENCE  # what takes so long hangs: a machine may be ten times slower for minutes
hopeless = Event()  # set where a thread was refused what the test waits for (tests/quick.py)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 180, every: float = 0.01) -> None:
    """Waits for what another thread or process does; fails when it does not come.

    Args:
        condition: Is asked again and again.
        what: For the message of the failure: "a kept session".
        seconds: So long at most, of a machine of usual speed.
        every: Seconds between two looks.
    """
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert not hopeless.is_set(), f"{what} cannot come"
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(every)


def until_good(
    measure: Callable[[], Found], good: Callable[[Found], bool], seconds: float = 60, every: float = 1
) -> Found:
    """Measures until the figures are good and returns the last ones, good or not, for the test to judge.

    What must be right however slow the machine is belongs in `measure`, which then fails at once.

    Args:
        measure: Is called again and again.
        good: Says of what it returned whether it will do.
        seconds: Begins no further measurement after so long, of a machine of usual speed.
        every: Seconds between two measurements.
    """
    deadline = time.monotonic() + seconds * PATIENCE
    while not good(found := measure()) and time.monotonic() < deadline:
        time.sleep(every)
    return found
