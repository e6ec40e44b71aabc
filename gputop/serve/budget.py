"""What observing may cost, in the daemon and in the programs, and what is given up where it costs more."""

from __future__ import annotations

from collections import deque
from typing import Final

from probes.ebpf.degradation import Reach

WINDOW_S: Final = 10.0  # what the cost is that of
SETTLE_S: Final = 12.0  # between two steps down: the window knows what the first one has saved
CHEAP: Final = 0.5  # of the budget: below it more may be observed again
UP_S: Final = 60.0  # so long it has to stay there
FAILED_S: Final = 120.0  # a step up that had to be taken back so soon makes the next one come later
MOST_UP_S: Final = 3600.0


class Budget:
    """Adds up what observing costs, and says how much may be observed. Its clock is a parameter.

    Attributes:
        reach: How much is observed.
        share: The cost in the newest window, as a part of all CPUs; None while it is not known.
    """

    def __init__(self, most: float, call_ns: float, cpus: int) -> None:
        """Start with everything observed.

        Args:
            most: The part of all CPUs' time that it may take.
            call_ns: What a traced call costs the program.
            cpus: How many there are.
        """
        self.reach = Reach.ALL
        self.share: float | None = None
        self._most, self._call_ns, self._cpus = most, call_ns, cpus
        self._window: deque[tuple[float, float, int]] = deque()
        self._changed_s = 0.0
        self._cheap_since_s: float | None = None
        self._up_s = UP_S
        self._went_up_s = float("-inf")

    def consume(self, now_s: float, own_cpu_s: float, calls: int) -> bool:
        """Updates what has been spent since the start; True if ``reach`` has changed.

        Args:
            now_s: A clock that only grows.
            own_cpu_s: CPU time of the daemon.
            calls: Calls that were traced, nested ones too.
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
            return now_s - self._changed_s >= SETTLE_S and self._down(now_s)
        cheap = self._cheap_since_s is not None and now_s - self._cheap_since_s >= self._up_s
        return cheap and self.reach > Reach.ALL and self._up(now_s)

    def _down(self, now_s: float) -> bool:
        if now_s - self._went_up_s <= FAILED_S:
            self._up_s = min(2 * self._up_s, MOST_UP_S)
        self.reach = Reach(self.reach + 1)
        return self._change(now_s)

    def _up(self, now_s: float) -> bool:
        self.reach = Reach(self.reach - 1)
        self._went_up_s = now_s
        return self._change(now_s)

    def _change(self, now_s: float) -> bool:
        self._changed_s, self._cheap_since_s = now_s, None
        self._window.clear()
        return True

    def sentence(self) -> str:
        """What is given up, and why; "" where nothing is."""
        if not self.reach.missing:
            return ""
        return (
            f"to keep its overhead within {100 * self._most:g} % of this machine's CPUs, gputop does "
            f"not look at {self.reach.missing}"
        )
