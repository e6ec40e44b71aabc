"""How far the clocks of two recordings are apart: by what both saw, with the error of it.

Within one boot of a machine CLOCK_MONOTONIC is one clock. Between hosts a collective of all ranks ends
nowhere before its last rank has begun it: so each one that both saw bounds the difference from both sides,
whatever the network does. Else wall clocks are compared, of which nobody knows how well they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints
from gputop.explain.proofs.completions import first_shown
from gputop.explain.proofs.gaps import GpuTime

FEWEST: Final = 3  # collectives that both saw; fewer may be alike by chance
MOST_SHIFT: Final = 200  # where a recording began in the middle, it may lack so many of the first ones
# of these none ends at one rank before all ranks have begun it
OF_ALL: Final = ("ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclAlltoAll")
_TRUST_NS: Final = 60_000_000_000  # wall clocks are off by more only where nobody sets them
_CLEAR: Final = 0.25  # so much nearer than the next one is what wall clocks mean
_SAME_BOOT_NS: Final = 1_000_000_000  # older files name no boot: so near did one machine's clocks stay

_Bounds = tuple[int, int, int, int]  # least, most and usual time to add, collectives


@dataclass(frozen=True, slots=True)
class Clock:
    """What leads from a part's clock to that of the whole.

    Attributes:
        later_ns: What is added to its times.
        error_ns: How far that may be off at most; None: nobody knows.
        how: ``same``, ``collectives`` or ``wall``.
        told: By what, in words.
    """

    later_ns: int
    error_ns: int | None
    how: str
    told: str


@dataclass(frozen=True, slots=True)
class Rank:
    """The collectives of one process in one communicator, in order.

    Attributes:
        what: Function and bytes of each.
        begin: When its call began.
        done: When it had ended for certain.
        whole: The first one is the first that the process made.
    """

    what: tuple[tuple[int, int], ...]
    begin: Ints
    done: Ints
    whole: bool


def one_boot(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two headers are of one boot of one machine."""
    boots = [_machine(header).get("boot") for header in (first, other)]
    if None not in boots:
        return boots[0] == boots[1]
    if _machine(first) != _machine(other) or not _machine(first):
        return False
    apart = [_ahead(header) for header in (first, other)]
    return apart[0] is not None and apart[1] is not None and abs(apart[0] - apart[1]) < _SAME_BOOT_NS


def _machine(header: Mapping[str, Any]) -> Mapping[str, Any]:
    machine = header.get("machine")
    return machine if isinstance(machine, Mapping) else {}


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


def ranks_of(evidence: Evidence) -> list[Rank]:
    """The collectives that a recording holds."""
    calls = evidence.calls
    ops = [op for op, row in enumerate(evidence.apis.names) if row in OF_ALL]
    rows = np.flatnonzero(np.isin(calls["op"], ops) & (calls["ret"] == 0) & ~calls["abandoned"])
    if not len(rows):
        return []
    done = _done(evidence, rows)
    made = sorted(
        {(int(pid), int(comm)) for pid, comm in zip(calls["pid"][rows], calls["aux"][rows], strict=True)}
    )
    names = {op: place for place, name in enumerate(OF_ALL) for op in ops if evidence.apis.names[op] == name}
    found = []
    for pid, comm in made:
        own = (calls["pid"][rows] == pid) & (calls["aux"][rows] == np.uint64(comm))
        order = np.flatnonzero(own)[np.argsort(calls["begin"][rows[own]], kind="stable")]
        mine = rows[order]
        what = tuple(
            (names[op], size)
            for op, size in zip(calls["op"][mine].tolist(), calls["bytes"][mine].tolist(), strict=True)
        )
        whole = pid in evidence.complete and not evidence.lost_events
        found.append(Rank(what, calls["begin"][mine], done[order], whole))
    return found


def _done(evidence: Evidence, rows: Ints) -> Ints:
    """When what each of these calls gave its stream had ended for certain; FOREVER where nobody waited."""
    shown = first_shown(GpuTime(evidence), rows)
    return np.where(shown >= 0, evidence.calls["end"][shown], FOREVER)


def by_collectives(first: Sequence[Rank], other: Sequence[Rank], wall_ns: int | None) -> Clock | str:
    """By the collectives that two recordings share; else why not, in words.

    Args:
        first: Of the recording whose clock counts.
        other: Of the one whose times are to be moved.
        wall_ns: What the wall clocks say is to be added to those: it chooses where more than one fits.
    """
    if not first or not other:
        return "they share no collectives"
    low, high, middles, count, chosen = -FOREVER, FOREVER, [], 0, False
    for one in first:
        for two in other:
            fitting = [_bounds(one, two, shift) for shift in _shifts(one, two)]
            known = [row for row in fitting if row is not None]
            if len(known) > 1:
                chosen, known = True, _nearest(known, wall_ns)
                if not known:
                    return (
                        "a recording began in the middle of their collectives, which fit in more than one way"
                    )
            for bounds in known:
                low, high = max(low, bounds[0]), min(high, bounds[1])
                middles.append(bounds[2])
                count += bounds[3]
    if not middles:
        return "no collectives of one are those of the other"
    if low > high:
        return (
            "their collectives contradict each other: two jobs that do the same, or clocks that drift apart"
        )
    if wall_ns is not None and not low - _TRUST_NS <= wall_ns <= high + _TRUST_NS:
        return "what their collectives say is a minute off their wall clocks: they may be those of two jobs"
    later = int(np.clip(np.median(middles), low, high))
    how = "; which are the same their wall clocks say" if chosen else ""
    return Clock(
        later, max(later - low, high - later), "collectives", f"by {count} collectives that both saw{how}"
    )


def _nearest(known: list[_Bounds], wall_ns: int | None) -> list[_Bounds]:
    """Of several ways in which collectives fit that one which wall clocks clearly mean; none without it."""
    if wall_ns is None:
        return []
    far = sorted((max(row[0] - wall_ns, wall_ns - row[1], 0), row) for row in known)
    return [far[0][1]] if far[0][0] < _CLEAR * far[1][0] else []


def _shifts(one: Rank, two: Rank) -> list[int]:
    """By how many collectives the second may be behind."""
    if one.whole and two.whole:
        return [0]
    most = min(MOST_SHIFT, max(len(one.what), len(two.what)) - FEWEST)
    return list(range(-most, most + 1))


def _bounds(one: Rank, two: Rank, shift: int) -> _Bounds | None:
    """(least, most, usual time to add to the second's times, collectives) if they are the same; else None."""
    skip, other_skip = max(shift, 0), max(-shift, 0)
    count = min(len(one.what) - skip, len(two.what) - other_skip)
    if count < FEWEST or one.what[skip : skip + count] != two.what[other_skip : other_skip + count]:
        return None
    begin, done = one.begin[skip : skip + count], one.done[skip : skip + count]
    other_begin, other_done = (
        two.begin[other_skip : other_skip + count],
        two.done[other_skip : other_skip + count],
    )
    waited, other_waited = done < FOREVER, other_done < FOREVER
    both = waited & other_waited
    if np.count_nonzero(both) < FEWEST:
        return None
    # begun there before it ended here, and the other way round
    low = int((begin - other_done)[other_waited].max())
    high = int((done - other_begin)[waited].min())
    if low > high:
        return None
    return low, high, int(np.median((done - other_done)[both])), count
