"""Token-bucket rate limiter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_THREADS_CLOCK: Final = (
    6  # of the kernel's numbers of clocks: of one thread, CPU time as the scheduler counts it
)


def thread_cpu_s(thread: threading.Thread) -> float:
    """Return the CPU seconds of a thread; 0.0 before it begins and after its end."""
    if thread.native_id is None:
        return 0.0
    try:
        return time.clock_gettime(~thread.native_id << 3 | _THREADS_CLOCK)
    except OSError:
        return 0.0


class RateLimiter:
    """Token bucket that may be overdrawn. For one thread, or under a lock."""

    def __init__(self, a_second: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a full bucket.

        Args:
            a_second: Tokens a second.
            at_once: Size of the bucket.
            clock: Monotonic seconds.
        """
        self._a_second, self._lot_s, self._clock = a_second, at_once / a_second, clock
        self._paid_s = clock() - self._lot_s  # until when

    def spend(self, amount: float = 1.0) -> float:
        """Consume tokens; return the seconds until they are paid for."""
        self._paid_s = max(self._paid_s, self._clock() - self._lot_s) + amount / self._a_second
        return self.owed_s()

    def owed_s(self) -> float:
        """Return the seconds until all consumed tokens are paid for; 0.0: now."""
        return max(0.0, self._paid_s - self._clock())

    @property
    def is_rested(self) -> bool:
        """True if the bucket is full."""
        return self._paid_s <= self._clock() - self._lot_s
