"""Waits for a condition, never for a time: however slow the machine is, a test goes on when it is true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE = float(os.environ.get("GPUTOP_TEST_PATIENCE", "1"))  # of an emulated machine: scripts/old_kernel.sh


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
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(every)
