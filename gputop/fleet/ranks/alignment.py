"""Aligns the clocks of several machines: a collective of all ranks ends for all at one moment.

The host sees that moment as the return of the call that waited for it. The difference of two clocks is
modelled as a line (offset and drift) plus a running median over the nearest collectives, which follows
changes of a clock's speed by a time server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.columns import FOREVER, Floats, Ints, Mask
from gputop.merging.clocks import FASTEST, slope_of

FEWEST: Final = 20  # collectives; fewer give no verdict
UNKNOWN: Final = -1  # an unobserved time
_NEAREST: Final = 31  # collectives whose median end gives the clocks' local difference
_LOOSER: Final = 2  # ends with slack up to this many times the twentieth best are used
_DEVIATION: Final = 1.4826  # standard deviation of normal numbers with a median absolute deviation of 1


@dataclass(frozen=True, slots=True)
class Alignment:
    """Conversion of each rank's clock to that of the first rank."""

    later_ns: Ints  # to be added to the times of each collective (rows) of each rank (columns)
    # error bound by rank: the spread of the ends used, and the time from call to wait, in which a GPU may
    # have become idle and got other work; 0: one clock
    error_ns: Ints
    drift: Floats  # share by which each rank's clock is slower than the first one's


def align(begin: Ints, end: Ints, slack: Ints, clock: npt.ArrayLike) -> Alignment | str:
    """Follow the differences between clocks over a run.

    Args:
        begin: Begin of each collective (rows) at each rank (columns), ns of its own clock; UNKNOWN:
            unobserved.
        end: When it had certainly ended, in the same form.
        slack: From the call to the one that waited for it, ns.
        clock: Number of each rank's clock; ranks of one clock need no end.

    Returns:
        The alignment; else why it is unknown, in words.
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
        tight = loose <= _LOOSER * np.partition(loose, FEWEST - 1)[FEWEST - 1]  # the best, and similar ones
        both, loose = both[tight], loose[tight]
        line = _line(own[both], first[both])
        if abs(line.slope) > FASTEST:
            return "two clocks drift apart faster than clocks do: these are not the same collectives"
        for rank in np.flatnonzero(mine).tolist():
            later[:, rank] = line.at(begin[:, rank])
        error[mine], drift[mine] = line.spread_ns + int(np.median(loose)), line.slope
    return Alignment(later, error, drift)


def _earliest(end: Ints, slack: Ints, ranks: Mask) -> tuple[Ints, Ints]:
    """The earliest observed end, which is nearest to the true one since hosts see it late, and its slack."""
    seen = np.where(end[:, ranks] >= 0, end[:, ranks], FOREVER)
    row, whose = np.arange(len(seen)), seen.argmin(axis=1)
    return seen[row, whose], slack[:, ranks][row, whose]


@dataclass(frozen=True, slots=True)
class _Line:
    """The correction of a clock by its own times, ascending."""

    base_ns: int
    offset_ns: int
    slope: float
    time: Floats
    beside: Floats
    spread_ns: int

    def at(self, times: Ints) -> Ints:
        """Return the correction at each of these times."""
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
