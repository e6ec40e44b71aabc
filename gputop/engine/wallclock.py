"""The wall clock relative to the monotonic one: it may be set, and files have their times by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SLEWED_NS = 1_000_000_000  # smaller changes are corrections of a running clock


@dataclass(frozen=True, slots=True)
class WallClock:
    """Its least and greatest observed lead over the monotonic clock, ns."""

    least_ns: int
    most_ns: int

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> WallClock | None:
        """Return the lead at the start of a recording; None where that is not recorded."""
        clock = header.get("clock")
        if not isinstance(clock, Mapping) or "realtime_ns" not in clock:
            return None
        ahead = int(clock["realtime_ns"]) - int(clock.get("monotonic_ns", 0))
        return cls(ahead, ahead)

    def seen(self, time_ns: int, wall_ns: int) -> WallClock:
        """Return the lead with one more reading of both clocks."""
        ahead = wall_ns - time_ns
        if self.least_ns <= ahead <= self.most_ns:
            return self
        return WallClock(min(self.least_ns, ahead), max(self.most_ns, ahead))

    def joined(self, other: WallClock | None) -> WallClock:
        """Return the range of both."""
        if other is None:
            return self
        return WallClock(min(self.least_ns, other.least_ns), max(self.most_ns, other.most_ns))

    def is_after(self, wall_ns: int, time_ns: int) -> bool | None:
        """Return True if a wall clock time is after a moment; None: it depends on when the clock was set.

        Args:
            wall_ns: Of a file, ns since the epoch.
            time_ns: The moment, by the monotonic clock.
        """
        ahead = wall_ns - time_ns
        if ahead > self.most_ns:
            return True
        if ahead <= self.least_ns or self.most_ns - self.least_ns < SLEWED_NS:
            return False
        return None
