"""The CPU budget of observation, in the daemon and in the observed programs, and its reduction above that."""

from __future__ import annotations

from collections import deque
from typing import Final

from probes.ebpf.degradation import Reach

WINDOW_S: Final = 10.0  # in which the cost is measured
SETTLE_S: Final = 12.0  # between two steps down: the window then shows what the first one has saved
CHEAP: Final = 0.5  # share of the budget: below it more may be observed again
UP_S: Final = 60.0  # for this long
FAILED_S: Final = 120.0  # a step up that was reverted within this time delays the next one
MOST_UP_S: Final = 3600.0


class Budget:
    """Sums the cost of observation, and decides how much is observed. Its clock is a parameter."""

    def __init__(self, most: float, call_ns: float, cpus: int) -> None:
        """Start with everything observed.

        Args:
            most: The budget, as a share of all CPUs' time.
            call_ns: Cost of a traced call in the program.
            cpus: Number of CPUs.
        """
        self.reach = Reach.ALL  # what is observed
        # cost in the newest window as a share of all CPUs; None while unknown
        self.share: float | None = None
        self._most, self._call_ns, self._cpus = most, call_ns, cpus
        self._window: deque[tuple[float, float, int]] = deque()
        self._changed_s = 0.0
        self._cheap_since_s: float | None = None
        self._up_s = UP_S
        self._went_up_s = float("-inf")

    def consume(self, now_s: float, own_cpu_s: float, calls: int) -> bool:
        """Add the cost so far; True if ``reach`` has changed.

        Args:
            now_s: A monotonic clock.
            own_cpu_s: CPU time of the daemon.
            calls: Traced calls, including nested ones.
        """
        self._window.append((now_s, own_cpu_s, calls))
        while now_s - self._window[0][0] > WINDOW_S and now_s - self._window[1][0] >= WINDOW_S:
            self._window.popleft()
        began_s, cpu_s, count = self._window[0]
        if now_s - began_s < WINDOW_S * 0.8:
            return False
        spent_s = own_cpu_s - cpu_s + (calls - count) * self._call_ns / 1e9
        self.share = spent_s / ((now_s - began_s) * self._cpus)
        if self.share > self._most * CHEAP:
            self._cheap_since_s = None
        elif self._cheap_since_s is None:
            self._cheap_since_s = now_s
        if self.share > self._most and self.reach < Reach.NOTHING:
            if now_s - self._changed_s < SETTLE_S:
                return False
            if now_s - self._went_up_s <= FAILED_S:
                self._up_s = min(2 * self._up_s, MOST_UP_S)
            self.reach = Reach(self.reach + 1)
        elif self._cheap_since_s is None or now_s - self._cheap_since_s < self._up_s:
            return False
        elif self.reach > Reach.ALL:
            self.reach = Reach(self.reach - 1)
            self._went_up_s = now_s
        else:
            return False
        self._changed_s, self._cheap_since_s = now_s, None
        self._window.clear()
        return True

    def sentence(self) -> str:
        """Return what is not observed, and why; "" if everything is."""
        if not self.reach.missing:
            return ""
        return (
            f"to keep its overhead within {100 * self._most:g} % of this machine's CPUs, gputop does "
            f"not observe {self.reach.missing}"
        )
