"""Finds the rank that the others wait for: the one that waits least in each collective. Pure arithmetic.

A collective ends for all ranks at once, so the last rank waits least in it. Wall time of steps shows nothing,
since collectives make it equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.analysis.evidence.columns import Floats, Ints, Mask
from gputop.fleet.ranks.alignment import FEWEST, UNKNOWN, Alignment, align

USUALLY: Final = 0.75  # a rank that comes last this often is late
COVERS: Final = 0.8  # causes must cover this much of the time
_WORTH: Final = 0.1  # of the time, for a cause to be named
_UNUSUAL: Final = 3.0  # values beyond this factor are outliers
LEAST_SHARE: Final = 0.02  # of the time between two collectives: less is not reported
_HIDES: Final = 0.05  # the same: a clock error above it could hide a late rank
_BLURRED: Final = "the error of the clocks exceeds the lateness"
_AGAINST: Final = 0.05  # of collectives that begin at one rank after they ended at another


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Collectives (rows) of one communicator's ranks (columns); times of each rank's own clock."""

    begin: Ints  # the host's call, ns; UNKNOWN: unobserved
    end: Ints  # when it had certainly ended there, ns; UNKNOWN: no wait for it
    slack: Ints  # from its call to the one that waited for it, ns
    idle: Ints  # idle time of the rank's GPU since the wait before it, ns
    drained: Mask  # whether the GPU is proved empty when the call began
    clock: Ints  # number of each rank's clock
    period_ns: float  # time between two waits for collectives


@dataclass(frozen=True, slots=True)
class LatenessVerdict:
    """The late rank, or why none is named."""

    used: int  # collectives that all ranks were seen to begin
    late: int | None = None  # column of the rank; None: see ``why``
    late_ns: int = 0  # median time by which it comes after the median of the others
    last: float = 0.0  # share of the collectives in which it comes last
    share: float = 0.0  # ``late_ns`` as a share of the time between two waits for collectives
    error_ns: int = 0  # error bound of the clocks
    healthy: bool = False  # no rank is late; else it is unknown whether one is
    why: str = ""  # why no rank is named, in words


def judge(meetings: CollectiveTimes) -> LatenessVerdict:
    """Find the rank that the others wait for.

    It usually comes last, by more than the error of the clocks, and its GPU waits for its host: a slow host
    whose GPU has work delays no rank.
    """
    all_seen = (meetings.begin != UNKNOWN).all(axis=1)
    used = int(np.count_nonzero(all_seen))
    if meetings.begin.shape[1] < 2:
        return LatenessVerdict(used, why="only one of its ranks was recorded")
    if used < FEWEST:
        return LatenessVerdict(
            used, why=f"{used} collectives with all ranks were recorded, {FEWEST} are needed"
        )
    aligned = align(meetings.begin, meetings.end, meetings.slack, meetings.clock)
    if isinstance(aligned, str):
        return LatenessVerdict(used, why=aligned)
    error = int(aligned.error_ns.max())
    if _contradicted(meetings, aligned, all_seen) > _AGAINST:
        why = "collectives would end before all ranks began them: these are not the same ones"
        return LatenessVerdict(used, error_ns=error, why=why)
    arrived = (meetings.begin + aligned.later_ns)[all_seen]
    comes_last = np.bincount(arrived.argmax(axis=1), minlength=arrived.shape[1])
    late = int(comes_last.argmax())
    last = float(comes_last[late] / used)
    apart = int(np.median(behind(arrived, late)))
    period = _period(np.median(arrived, axis=1), apart, meetings.period_ns)
    share = apart / period if period > 0 else 0.0
    found = LatenessVerdict(used, late, apart, last, share, error)
    if last < USUALLY or share < LEAST_SHARE:
        if error > _HIDES * period:
            return LatenessVerdict(used, error_ns=error, why=_BLURRED)
        return LatenessVerdict(used, error_ns=error, healthy=True, why="no rank is usually late")
    if apart <= error:
        return LatenessVerdict(used, error_ns=error, why=_BLURRED)
    if not _keeps_waiting(meetings, all_seen, late, apart):
        why = "a rank calls late while its GPU has work: whether the others wait for it is not known"
        return LatenessVerdict(used, error_ns=error, why=why)
    return found


def _period(times: Floats, apart: int, waits_ns: float) -> float:
    """The time between two waits, in which a rank is late once.

    Collectives in a burst, each waited for, are late together: distances below the lateness count as one.
    """
    at = np.sort(times)
    bursts = 1 + int(np.count_nonzero(np.diff(at) > apart))
    return max(waits_ns, float(at[-1] - at[0]) / max(bursts - 1, 1))


def behind(values: Ints, rank: int) -> Floats:
    """Return by how much each row of one column exceeds the median of the others."""
    others = np.median(np.delete(values, rank, axis=1), axis=1)
    found: Floats = values[:, rank] - others
    return found


def blamed(causes: Mapping[str, Ints], late: int, late_ns: int) -> list[tuple[str, float]]:
    """Return the causes of a rank's lateness with their shares, the largest first.

    Only the excess over the median of the other ranks counts. Empty if all causes together cover too little
    of the lateness.

    Args:
        causes: For each cause, the idle time of each rank's GPU (columns) before each collective (rows), ns.
        late: Column of the rank.
        late_ns: Its lateness.
    """
    excess = {cause: behind(times, late) for cause, times in causes.items()}
    if not excess or late_ns <= 0:
        return []
    together = np.sum(list(excess.values()), axis=0)
    if np.median(together) < COVERS * late_ns:
        return []
    usual = (together > late_ns / _UNUSUAL) & (
        together < late_ns * _UNUSUAL
    )  # excludes outliers such as the first
    whole_ns = max(late_ns, float(np.mean(together[usual])))  # a rank late in bursts is idle for longer
    shares = {cause: float(np.mean(times[usual])) / whole_ns for cause, times in excess.items()}
    named = [(cause, share) for cause, share in shares.items() if share >= _WORTH]
    return sorted(named, key=lambda one: -one[1])


def _contradicted(meetings: CollectiveTimes, aligned: Alignment, rows: Mask) -> float:
    """Share of the collectives that begin somewhere after they have ended elsewhere."""
    begin = (meetings.begin + aligned.later_ns)[rows]
    end = np.where(meetings.end == UNKNOWN, np.iinfo(np.int64).max, meetings.end + aligned.later_ns)[rows]
    slack = 2 * aligned.error_ns.max()
    return float(np.mean(begin.max(axis=1) - slack > end.min(axis=1)))


def _keeps_waiting(meetings: CollectiveTimes, rows: Mask, late: int, late_ns: int) -> bool:
    if np.mean(meetings.drained[rows, late]) >= USUALLY:
        return True
    return float(np.median(behind(meetings.idle[rows], late))) >= COVERS * late_ns
