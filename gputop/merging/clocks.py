"""How far the clocks of two recordings are apart and how fast they drift, by what both saw."""

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
    """The share by which a difference grows: Theil and Sen's slope, of pairs that are far apart.

    Args:
        time: When the difference was seen, ascending, ns.
        apart: The difference then, ns; a few may be wrong.
    """
    half = len(time) // 2
    run = time[half : 2 * half] - time[:half]
    rise = apart[half : 2 * half] - apart[:half]
    pairs = run > 0
    return float(np.median(rise[pairs] / run[pairs])) if pairs.any() else 0.0


FEWEST: Final = 3  # collectives that both saw; fewer may be alike by chance
MOST_SHIFT: Final = 200  # where a recording began in the middle, it may lack so many of the first ones
_TRUST_NS: Final = 60_000_000_000  # wall clocks are off by more only where they are not synchronised
_CLEAR: Final = 0.25  # so much nearer than the next one is what wall clocks mean
_SAME_BOOT_NS: Final = 1_000_000_000  # older files name no boot: so near did one machine's clocks stay


@dataclass(frozen=True, slots=True)
class Clock:
    """What leads from a part's clock to that of the whole.

    Attributes:
        later_ns: What is added to its times, at ``base_ns``.
        error_ns: How far that may be off at most; None: unknown.
        how: ``same``, ``collectives`` or ``wall``.
        basis: What the error was derived from, in words.
        drift: By how much more is added with each nanosecond since then: a share.
        base_ns: A moment by the part's clock.
    """

    later_ns: int
    error_ns: int | None
    how: str
    basis: str
    drift: float = 0.0
    base_ns: int = 0

    def at(self, ns: int) -> int:
        """A moment of the part by the clock of the whole."""
        return ns + self.later_ns + round(self.drift * (ns - self.base_ns))

    def moved(self, ns: Ints) -> Ints:
        """The same of many."""
        if not self.drift:
            return ns + self.later_ns
        more: Ints = np.rint(self.drift * (ns - self.base_ns)).astype(np.int64)
        return ns + self.later_ns + more


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What must hold of the time that is added, by moments of the second clock.

    Attributes:
        least: (moment, what is to be added at least).
        most: (moment, what is to be added at most).
        middle: (moment, what was usual), by moments.
        count: Collectives that say so.
    """

    least: tuple[Ints, Ints]
    most: tuple[Ints, Ints]
    middle: tuple[Ints, Ints]
    count: int


@dataclass(frozen=True, slots=True)
class _Line:
    """What is added: from ``low`` to ``high`` at a moment, and ``drift`` more for each nanosecond."""

    base: int
    low: int
    high: int
    usual: int
    drift: float


def one_boot(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two headers are of one boot of one machine."""
    boots = [section(header, "machine").get("boot") for header in (first, other)]
    if None not in boots:
        return boots[0] == boots[1]
    if section(first, "machine") != section(other, "machine") or not section(first, "machine"):
        return False
    apart = [_ahead(header) for header in (first, other)]
    return apart[0] is not None and apart[1] is not None and abs(apart[0] - apart[1]) < _SAME_BOOT_NS


def _ahead(header: Mapping[str, Any]) -> int | None:
    """How far the wall clock was ahead of CLOCK_MONOTONIC."""
    clock = header.get("clock", {})
    if "realtime_ns" not in clock or "monotonic_ns" not in clock:
        return None
    return int(clock["realtime_ns"]) - int(clock["monotonic_ns"])


def by_wall(first: Mapping[str, Any], other: Mapping[str, Any]) -> Clock | None:
    """By the wall clocks of two headers; None where one tells none."""
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
    """By the collectives that two recordings share; else why not, in words.

    Args:
        first: Of the recording whose clock counts.
        other: Of the one whose times are to be moved.
        wall_ns: What the wall clocks say is to be added to those: it chooses where more than one fits.
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
        return "what their collectives say is a minute off their wall clocks: they may be those of two jobs"
    later = int(np.clip(line.usual, line.low, line.high))
    basis = f"by {sum(bounds.count for bounds in found)} collectives that both saw"
    if line.drift:
        basis += f", drifting by {1e6 * line.drift:+.2f} ppm"
    if chosen:
        basis += "; which are the same their wall clocks say"
    error = max(later - line.low, line.high - later)
    return Clock(later, error, "collectives", basis, line.drift, line.base)


def _nearest(known: list[tuple[_Line, _Bounds]], wall_ns: int | None) -> list[tuple[_Line, _Bounds]]:
    """Of several ways in which collectives fit that one which wall clocks clearly mean; none without it."""
    if wall_ns is None:
        return []
    far = [max(line.low - wall_ns, wall_ns - line.high, 0) for line, _bounds in known]
    order = sorted(range(len(known)), key=far.__getitem__)
    return [known[order[0]]] if far[order[0]] < _CLEAR * far[order[1]] else []


def _shifts(one: Rank, two: Rank) -> list[int]:
    """By how many collectives the second may be behind."""
    if one.whole and two.whole:
        return [0]
    most = min(MOST_SHIFT, max(len(one.what), len(two.what)) - FEWEST)
    return list(range(-most, most + 1))


def _bounds(one: Rank, two: Rank, shift: int) -> _Bounds | None:
    """What two ranks say if so many are missing of the second; None where they are not the same."""
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
    """The one difference, else the one that grows evenly, that keeps all bounds; None: there is none."""
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
