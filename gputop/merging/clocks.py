"""Offset and drift between the clocks of two recordings, from common events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gputop.analysis.evidence.columns import FOREVER, Floats, Ints
from gputop.merging.rank_collectives import Rank
from probes.samples import section

FASTEST: Final = 1e-3  # time servers change a clock by half of it at most


def slope_of(time: Floats, apart: Floats) -> float:
    """Return the share by which a difference grows: Theil and Sen's slope, of distant pairs.

    Args:
        time: Times of the differences, ascending, ns.
        apart: The differences, ns; a few may be wrong.
    """
    half = len(time) // 2
    run = time[half : 2 * half] - time[:half]
    rise = apart[half : 2 * half] - apart[:half]
    pairs = run > 0
    return float(np.median(rise[pairs] / run[pairs])) if pairs.any() else 0.0


FEWEST: Final = 3  # common collectives; fewer may match by chance
MOST_SHIFT: Final = 200  # first collectives that a recording may lack
_TRUST_NS: Final = 60_000_000_000  # synchronised wall clocks differ by less
_CLEAR: Final = 0.25  # the nearest fit must be this much nearer than the next one
_SAME_BOOT_NS: Final = (
    1_000_000_000  # for older files without a boot id: largest change of one machine's offset
)


@dataclass(frozen=True, slots=True)
class Clock:
    """Conversion of a part's clock to that of the whole."""

    later_ns: int  # to be added to its times, at ``base_ns``
    error_ns: int | None  # error bound; None: unknown
    how: str  # ``same``, ``collectives`` or ``wall``
    basis: str  # basis of the error, in words
    drift: float = 0.0  # further addition for each nanosecond since ``base_ns``: a share
    base_ns: int = 0  # a moment of the part's clock

    def at(self, ns: int) -> int:
        """Convert a moment of the part to the clock of the whole."""
        return ns + self.later_ns + round(self.drift * (ns - self.base_ns))

    def moved(self, ns: Ints) -> Ints:
        """Convert an array of moments."""
        if not self.drift:
            return ns + self.later_ns
        more: Ints = np.rint(self.drift * (ns - self.base_ns)).astype(np.int64)
        return ns + self.later_ns + more


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of the time to be added, by moments of the second clock."""

    least: tuple[Ints, Ints]  # (moment, lower bound)
    most: tuple[Ints, Ints]  # (moment, upper bound)
    middle: tuple[Ints, Ints]  # (moment, typical value), by moments
    count: int  # number of collectives


@dataclass(frozen=True, slots=True)
class _Line:
    """The time to be added: from ``low`` to ``high`` at ``base``, and ``drift`` more for each nanosecond."""

    base: int
    low: int
    high: int
    usual: int
    drift: float


def one_boot(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two headers are of one boot of one machine."""
    boots = [section(header, "machine").get("boot") for header in (first, other)]
    if None not in boots:
        return boots[0] == boots[1]
    if section(first, "machine") != section(other, "machine") or not section(first, "machine"):
        return False
    apart = [_ahead(header) for header in (first, other)]
    return apart[0] is not None and apart[1] is not None and abs(apart[0] - apart[1]) < _SAME_BOOT_NS


def _ahead(header: Mapping[str, Any]) -> int | None:
    """Offset of the wall clock from CLOCK_MONOTONIC."""
    clock = header.get("clock", {})
    if "realtime_ns" not in clock or "monotonic_ns" not in clock:
        return None
    return int(clock["realtime_ns"]) - int(clock["monotonic_ns"])


def by_wall(first: Mapping[str, Any], other: Mapping[str, Any]) -> Clock | None:
    """Return the conversion by the wall clocks of two headers; None if one has none."""
    ahead = [_ahead(header) for header in (first, other)]
    if ahead[0] is None or ahead[1] is None:
        return None
    return Clock(
        ahead[1] - ahead[0],
        None,
        "wall",
        "by their wall clocks: how well these agree is not known (with NTP, some milliseconds as a rule)",
    )


def by_collectives(first: Sequence[Rank], other: Sequence[Rank], wall_ns: int | None) -> Clock | str:
    """Return the conversion by the collectives that two recordings share; else why there is none, in words.

    Args:
        first: Of the recording whose clock counts.
        other: Of the one whose times are to be converted.
        wall_ns: Conversion by the wall clocks, to choose among several fits.
    """
    if not first or not other:
        return "they share no collectives"
    found, chosen = [], False
    for one in first:
        for two in other:
            fitting = [bounds for shift in _shifts(one, two) if (bounds := _bounds(one, two, shift))]
            known = [(line, bounds) for bounds in fitting if (line := _line(bounds))]
            if len(known) > 1:
                chosen, known = True, _nearest(known, wall_ns)
                if not known:
                    return (
                        "a recording began in the middle of their collectives, which fit in more than one way"
                    )
            found += [bounds for _, bounds in known]
    if not found:
        return "no collectives of one are those of the other"
    line = _line(_joined(found))
    if line is None:
        return "their collectives contradict each other: two jobs that do the same, or a clock that was set"
    if wall_ns is not None and not line.low - _TRUST_NS <= wall_ns <= line.high + _TRUST_NS:
        return "their collectives contradict their wall clocks by over a minute: they may be of two jobs"
    later = int(np.clip(line.usual, line.low, line.high))
    basis = f"by {sum(bounds.count for bounds in found)} collectives that both saw"
    if line.drift:
        basis += f", drifting by {1e6 * line.drift:+.2f} ppm"
    if chosen:
        basis += ", matched by their wall clocks"
    error = max(later - line.low, line.high - later)
    return Clock(later, error, "collectives", basis, line.drift, line.base)


def _nearest(known: list[tuple[_Line, _Bounds]], wall_ns: int | None) -> list[tuple[_Line, _Bounds]]:
    """The fit that the wall clocks clearly select, if any."""
    if wall_ns is None:
        return []
    far = [max(line.low - wall_ns, wall_ns - line.high, 0) for line, _bounds in known]
    order = sorted(range(len(known)), key=far.__getitem__)
    return [known[order[0]]] if far[order[0]] < _CLEAR * far[order[1]] else []


def _shifts(one: Rank, two: Rank) -> list[int]:
    """Candidate numbers of collectives by which the second is behind."""
    if one.whole and two.whole:
        return [0]
    most = min(MOST_SHIFT, max(len(one.what), len(two.what)) - FEWEST)
    return list(range(-most, most + 1))


def _bounds(one: Rank, two: Rank, shift: int) -> _Bounds | None:
    """Bounds for a shift; None if the collectives differ."""
    skip, other_skip = max(shift, 0), max(-shift, 0)
    count = min(len(one.what) - skip, len(two.what) - other_skip)
    here, there = slice(skip, skip + count), slice(other_skip, other_skip + count)
    if count < FEWEST or not np.array_equal(one.what[here], two.what[there]):
        return None
    begin, done = one.begin[here], one.done[here]
    other_begin, other_done = two.begin[there], two.done[there]
    waited, other_waited = done < FOREVER, other_done < FOREVER
    both = waited & other_waited
    if np.count_nonzero(both) < FEWEST:
        return None
    # begun here before it ended there, and the other way round
    return _Bounds(
        (other_done[other_waited], (begin - other_done)[other_waited]),
        (other_begin[waited], (done - other_begin)[waited]),
        (other_done[both], (done - other_done)[both]),
        count,
    )


def _joined(found: Sequence[_Bounds]) -> _Bounds:
    def both(pairs: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
        time, value = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1))
        order = np.argsort(time, kind="stable")
        return time[order], value[order]

    return _Bounds(
        both([one.least for one in found]),
        both([one.most for one in found]),
        both([one.middle for one in found]),
        sum(one.count for one in found),
    )


def _line(bounds: _Bounds) -> _Line | None:
    """A constant difference, else a linear one, within all bounds; None if there is none."""
    time, usual = bounds.middle
    base = int(time[0])
    for drift in (0.0, slope_of((time - base).astype(np.float64), (usual - usual[0]).astype(np.float64))):
        least, most, middle = (
            value - np.rint(drift * (at - base)).astype(np.int64)
            for at, value in (bounds.least, bounds.most, bounds.middle)
        )
        low, high = int(least.max()), int(most.min())
        if low <= high and abs(drift) <= FASTEST:
            return _Line(base, low, high, int(np.median(middle)), drift)
    return None
