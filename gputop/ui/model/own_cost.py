"""gputop's own CPU time, how much less often the screen is drawn above its budget, and notices of both."""

from __future__ import annotations

from collections import deque
from typing import Final

from gputop.engine.own_memory import BUDGET_BYTES
from gputop.format import NS_PER_S

BUDGET_PERCENT: Final = 6.0  # of one CPU
PERIOD_S: Final = 5.0  # of a measurement
MEAN_S: Final = 30.0  # of the header's mean: an explanation takes 0.3 s every 20 to 40 s
FIRST_S: Final = 10.0  # not measured: libraries are loaded and probes attached
SLOWEST: Final = 4  # times less often
CHEAP: Final = 0.4  # of the budget: below it, drawing twice as often is affordable
_LEAST_HZ = 1.0
UP_S, MOST_UP_S = 30.0, 1_800.0  # below ``CHEAP`` before drawing more often; doubled after each failure


class OwnCost:
    """Compares CPU time with a budget."""

    def __init__(self, budget_percent: float = BUDGET_PERCENT) -> None:
        """Start at full speed; ``budget_percent`` of one CPU, 0 for no limit."""
        self.slower = 1  # how many times less often the screen is drawn and WHY is updated: 1, 2 or 4
        self._budget = budget_percent
        self._from: tuple[float, float] | None = None
        self._spent: deque[tuple[float, float]] = deque()  # (time, CPU time), one a second
        self._cheap_s = 0.0
        self._up_s = UP_S
        self._went_up_s = float("-inf")

    def consume(self, now_s: float, cpu_s: float) -> bool:
        """Update the CPU time ``cpu_s`` since the start; return True if ``slower`` has changed.

        Args:
            now_s: A monotonic time.
            cpu_s: The CPU time of this process.
        """
        if not self._spent or now_s - self._spent[-1][0] >= 1:
            self._spent.append((now_s, cpu_s))
        while len(self._spent) > 1 and self._spent[1][0] <= now_s - MEAN_S:
            self._spent.popleft()
        if self._from is None:
            self._from = now_s + FIRST_S - PERIOD_S, -1.0
        began_s, before_s = self._from
        if now_s < began_s or not self._budget:
            return False
        if before_s < 0:
            self._from = now_s, cpu_s
            return False
        if now_s - began_s < PERIOD_S:
            return False
        percent = 100 * (cpu_s - before_s) / (now_s - began_s)
        self._from = now_s, cpu_s
        if percent > self._budget and self.slower < SLOWEST:
            if now_s - self._went_up_s < UP_S:  # drawing more often was too much
                self._up_s = min(2 * self._up_s, MOST_UP_S)
            self.slower, self._cheap_s = 2 * self.slower, 0.0
            return True
        self._cheap_s = self._cheap_s + PERIOD_S if percent < CHEAP * self._budget else 0.0
        if self.slower > 1 and self._cheap_s >= self._up_s:
            self.slower, self._cheap_s, self._went_up_s = self.slower // 2, 0.0, now_s
            return True
        return False

    @property
    def mean(self) -> tuple[float, int] | None:
        """(percent of one CPU, seconds measured), over MEAN_S at most; None in the first PERIOD_S."""
        if not self._spent:
            return None
        (began_s, before_s), (now_s, cpu_s) = self._spent[0], self._spent[-1]
        seconds = now_s - began_s
        return (100 * (cpu_s - before_s) / seconds, round(seconds)) if seconds >= PERIOD_S else None

    def drawn_hz(self, rate_hz: float) -> float:
        """Return how often the screen is drawn: once a second at least."""
        return max(rate_hz / self.slower, min(rate_hz, _LEAST_HZ))

    def short(self, rate_hz: float) -> str:
        """Return a short notice for the first line, or ""."""
        return f"over {self._budget:g}%: drawn at {self.drawn_hz(rate_hz):g}Hz" if self.slower > 1 else ""

    def sentence(self, rate_hz: float) -> str:
        """Return the notice in full, or ""."""
        if self.slower == 1:
            return ""
        return (
            f"gputop used more than {self._budget:g} % of a CPU: the screen is drawn "
            f"{self.drawn_hz(rate_hz):g} instead of {rate_hz:g} times a second, and WHY is updated "
            f"{self.slower} times less often. Counts, histories and recordings are complete. The limit is "
            "budget in the preferences"
        )


_BUDGET_MB: Final = BUDGET_BYTES // 1_000_000


def shortened(length_ns: int) -> str:
    """Return a short notice of shorter explanations; "" for 0, where they are as long as usual."""
    return f"over {_BUDGET_MB}MB: WHY of {length_ns / NS_PER_S:g}s" if length_ns else ""


def shortened_sentence(length_ns: int) -> str:
    """Return the notice in full, or ""."""
    if not length_ns:
        return ""
    return (
        f"gputop used more than {_BUDGET_MB} MB of memory: WHY explains the last {length_ns / NS_PER_S:g} "
        "seconds instead of 10, which takes less of it. Counts, histories and recordings are complete"
    )
