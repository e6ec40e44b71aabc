"""What of the host's time goes with pieces of gaps: all that the thread did, not only what the GPU saw.

A gap begins when the GPU has run out of work. Where the host is ahead, a thread is at its work or in its
sleep before that already; when the cause goes, that part goes, too. It reaches from one CUDA call of the
process to the next at most: what lies beyond another call is something else.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Claim
from gputop.explain.chains.chain import State
from gputop.explain.evidence.ranges import Ints, subtract, union


def whole_pieces(claim: Claim) -> tuple[Ints, Ints]:
    """(begin, end) of the claim's pieces with what they are a part of, in order and disjoint.

    Of a wait that is the thread's stay off the CPU, with the time in which it was woken and had no CPU yet;
    of a wait for a CPU that; of work all between two calls. What other causes took of it is theirs.
    """
    scene, segments = claim.scene, claim.scene.segments
    rows = np.flatnonzero(claim.segments)
    begin, end = segments.begin[rows], segments.end[rows]
    low, high = _between_calls(claim, begin, end)
    free = segments.call[rows] < 0
    works = scene.own[rows] & (segments.state[rows] == State.RUN)
    queues = scene.own[rows] & (segments.state[rows] == State.QUEUED)
    from_, to = _stays(claim, rows, queued=queues)
    longer = free & (works | (to > from_))
    from_ = np.clip(np.where(works, low, from_), low, begin)
    to = np.clip(np.where(works, high, to), end, high)
    wide = union(from_[longer], to[longer])
    others = ~claim.segments & ~(scene.own & (segments.state == State.QUEUED))
    rest = subtract(wide, union(segments.begin[others], segments.end[others]))
    return union(np.append(begin, rest[0]), np.append(end, rest[1]))


def _between_calls(claim: Claim, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """How far each piece may reach: to the calls of its process before and after it."""
    calls = claim.scene.evidence.calls
    own = calls["pid"] == claim.pid
    first, last = union(calls["begin"][own], calls["end"][own])
    place = np.searchsorted(last, begin, side="right")
    low = np.where(place > 0, last[np.maximum(place - 1, 0)], begin)
    high = np.where(place < len(first), first[np.minimum(place, len(first) - 1)], end)
    return np.minimum(low, begin), np.maximum(high, end)


def _stays(claim: Claim, rows: Ints, *, queued: Ints) -> tuple[Ints, Ints]:
    """(begin, end) of the submitting thread's stay off the CPU around each piece; of the queued ones since
    they were. Empty where there is none.
    """
    scene, segments = claim.scene, claim.scene.segments
    evidence, slices = scene.evidence, scene.evidence.slices
    begin, end = segments.begin[rows], segments.end[rows]
    if not len(slices):
        return begin, begin
    thread = scene.gaps.thread[segments.gap[rows]]
    first = np.searchsorted(evidence.slice_ends, evidence.key(thread, begin), side="right")
    last = np.searchsorted(evidence.slice_begins, evidence.key(thread, end), side="left") - 1
    there = first <= last
    first, last = np.minimum(first, len(slices) - 1), np.maximum(last, 0)
    since = np.where(queued, slices["queued"][first], slices["begin"][first])
    return np.where(there, since, begin), np.where(there, slices["end"][last], begin)
