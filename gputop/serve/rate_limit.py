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
    """CPU seconds that a thread has taken until now; 0.0 of one that has not begun, or has ended."""
    if thread.native_id is None:
        return 0.0
    try:
        return time.clock_gettime(~thread.native_id << 3 | _THREADS_CLOCK)
    except OSError:
        return 0.0


class RateLimiter:
    """Consumes tokens; returns the seconds until they are paid for. For one thread, or under a lock."""

    def __init__(self, a_second: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with the whole first lot.

        Args:
            a_second: What may be used up in a second.
            at_once: The first lot, which comes back while nothing is used up.
            clock: Seconds that only grow.
        """
        self._a_second, self._lot_s, self._clock = a_second, at_once / a_second, clock
        self._paid_s = clock() - self._lot_s  # until when

    def spend(self, amount: float = 1.0) -> float:
        """Uses something up; seconds until it is paid for."""
        self._paid_s = max(self._paid_s, self._clock() - self._lot_s) + amount / self._a_second
        return self.owed_s()

    def owed_s(self) -> float:
        """Seconds until all that was used up is paid for; 0.0: now."""
        return max(0.0, self._paid_s - self._clock())

    @property
    def is_rested(self) -> bool:
        """Whether the first lot is there again, as at the start."""
        return self._paid_s <= self._clock() - self._lot_s
