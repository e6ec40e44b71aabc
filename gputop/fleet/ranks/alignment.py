"""Clocks of several machines as one: a collective of all ranks ends for all of them at one moment.

That moment is seen from the host as the return of the call that waited for it. Between two clocks the
difference is followed as a line (offset and drift) and what a running median of the nearest collectives
finds beside it, as where a time server changes a clock's speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.columns import FOREVER, Floats, Ints, Mask
from gputop.merging.clocks import FASTEST, slope_of

FEWEST: Final = 20  # collectives; of fewer no sentence
UNKNOWN: Final = -1  # an unobserved time
_NEAREST: Final = 31  # collectives whose ends say together what two clocks differ by just then
_LOOSER: Final = 2  # so many times the slack of the twentieth best end is good enough
_DEVIATION: Final = 1.4826  # standard deviation of normal numbers with a median absolute deviation of 1


@dataclass(frozen=True, slots=True)
class Alignment:
    """What leads from each rank's clock to that of the first rank.

    Attributes:
        later_ns: What is added to the times of each collective (rows) of each rank (columns).
        error_ns: How far that may be off, by rank: the spread of the ends that it rests on, and the time from
            call to wait, in which a GPU may have become idle and got other work; 0: one clock.
        drift: By how much each rank's clock is slower than the first one's, a share.
    """

    later_ns: Ints
    error_ns: Ints
    drift: Floats


def align(begin: Ints, end: Ints, slack: Ints, clock: npt.ArrayLike) -> Alignment | str:
    """Follows the differences between clocks over a run.

    Args:
        begin: When each rank (columns) began each collective (rows), ns of its own clock; UNKNOWN: not seen.
        end: When it had ended for certain, the same way.
        slack: From the call to the one that waited for it, ns.
        clock: The clock of each rank, a number; ranks of one clock need no end.

    Returns:
        The differences; else why they are not known, in words.
    """
    clocks = np.asarray(clock)
    later, error, drift = (
        np.zeros(begin.shape, np.int64),
        np.zeros(len(clocks), np.int64),
        np.zeros(len(clocks)),
    )
    first, first_slack = _earliest(end, slack, clocks == clocks[0])
    for other in np.unique(clocks[clocks != clocks[0]]).tolist():
        mine = clocks == other
        own, own_slack = _earliest(end, slack, mine)
        both = np.flatnonzero((own < FOREVER) & (first < FOREVER))
        if len(both) < FEWEST:
            return f"{len(both)} collectives have waits on two hosts, {FEWEST} are needed to align clocks"
        loose = np.maximum(own_slack, first_slack)[both]
        tight = (
            loose <= _LOOSER * np.partition(loose, FEWEST - 1)[FEWEST - 1]
        )  # the best ones, and as good ones
        both, loose = both[tight], loose[tight]
        line = _line(own[both], first[both])
        if abs(line.slope) > FASTEST:
            return "two clocks drift apart faster than clocks do: these are not the same collectives"
        for rank in np.flatnonzero(mine).tolist():
            later[:, rank] = line.at(begin[:, rank])
        error[mine], drift[mine] = line.spread_ns + int(np.median(loose)), line.slope
    return Alignment(later, error, drift)


def _earliest(end: Ints, slack: Ints, ranks: Mask) -> tuple[Ints, Ints]:
    """The nearest to the true end that any of them saw, and its slack: a host sees it late, never early."""
    seen = np.where(end[:, ranks] >= 0, end[:, ranks], FOREVER)
    row, whose = np.arange(len(seen)), seen.argmin(axis=1)
    return seen[row, whose], slack[:, ranks][row, whose]


@dataclass(frozen=True, slots=True)
class _Line:
    """What is to be added to a clock's times, by its own times, ascending."""

    base_ns: int
    offset_ns: int
    slope: float
    time: Floats
    beside: Floats
    spread_ns: int

    def at(self, times: Ints) -> Ints:
        """What is to be added to each of these times."""
        place = (times - self.base_ns).astype(np.float64)
        found = self.offset_ns + np.rint(self.slope * place + np.interp(place, self.time, self.beside))
        return found.astype(np.int64)


def _line(own: Ints, other: Ints) -> _Line:
    order = np.argsort(own, kind="stable")
    own, other = own[order], other[order]
    base, offset = int(own[0]), int(np.median(other - own))
    time = (own - base).astype(np.float64)
    apart = (other - own - offset).astype(np.float64)
    slope = slope_of(time, apart)
    rest = apart - slope * time
    beside = _running_median(rest)
    spread = _DEVIATION * float(np.median(np.abs(rest - beside)))
    return _Line(base, offset, slope, time, beside, int(np.ceil(spread)))


def _running_median(values: Floats) -> Floats:
    width = min(_NEAREST, len(values) - 1 + len(values) % 2)
    padded = np.pad(values, width // 2, mode="reflect")
    found: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    return found
