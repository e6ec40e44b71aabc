"""The clock of the day beside the one that only goes on: it may be set, and files have their times by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SLEWED_NS = 1_000_000_000  # less than this is a clock that is kept right, not one that was set


@dataclass(frozen=True, slots=True)
class WallClock:
    """How far it was ahead of the other one: ns, the least and the most that was seen."""

    least_ns: int
    most_ns: int

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> WallClock | None:
        """As a recording began; None where that is not reported."""
        clock = header.get("clock")
        if not isinstance(clock, Mapping) or "realtime_ns" not in clock:
            return None
        ahead = int(clock["realtime_ns"]) - int(clock.get("monotonic_ns", 0))
        return cls(ahead, ahead)

    def seen(self, time_ns: int, wall_ns: int) -> WallClock:
        """With what both showed at one more moment."""
        ahead = wall_ns - time_ns
        if self.least_ns <= ahead <= self.most_ns:
            return self
        return WallClock(min(self.least_ns, ahead), max(self.most_ns, ahead))

    def joined(self, other: WallClock | None) -> WallClock:
        """With what another one has seen."""
        if other is None:
            return self
        return WallClock(min(self.least_ns, other.least_ns), max(self.most_ns, other.most_ns))

    def is_after(self, wall_ns: int, time_ns: int) -> bool | None:
        """Whether a time of the day lies behind a moment; None: that depends on when the clock was set.

        Args:
            wall_ns: As a file has it, ns since the epoch.
            time_ns: The moment, by the clock that only goes on.
        """
        ahead = wall_ns - time_ns
        if ahead > self.most_ns:
            return True
        if ahead <= self.least_ns or self.most_ns - self.least_ns < SLEWED_NS:
            return False
        return None
