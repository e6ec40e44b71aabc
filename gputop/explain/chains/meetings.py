"""Ranks on this machine: threads that make the same collectives; which calls of theirs are one collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group, Role
from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.completions import first_shown

FEWEST: Final = 3  # collectives; of fewer nothing is said
ALIKE: Final = 0.9  # two threads whose collectives agree this far are ranks of one job
_REACH: Final = 16  # collectives by which ranks may be apart where a stretch begins
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Meetings:
    """The collectives that all ranks were seen to call.

    Attributes:
        rows: Rows of calls; a row a rank, a column a collective.
        matched: Which calls are one collective is known: they were counted from the first one on, or they
            end at one moment. Else it is the order in which they were seen.
    """

    rows: Ints
    matched: bool


def meetings(scene: Scene) -> Meetings | None:
    """The collectives of a job of several ranks on this machine; None where there is no such job.

    A stretch may begin between the calls of two ranks: the first call of one is then the second of the other.
    A collective ends for all ranks at one moment, so the calls are joined by when their work was seen done.
    Only where all calls of all ranks were seen from their first one on is their order enough.
    """
    evidence = scene.evidence
    calls = evidence.calls
    low, high = scene.analysis.gpu.stretch
    rows = np.flatnonzero(evidence.group(calls) == Group.COLLECTIVE)
    if len(rows) < 2 * FEWEST:
        return None
    inside = (calls["begin"][rows] >= low) & (calls["end"][rows] <= high) & (calls["ret"][rows] == 0)
    rows = rows[inside & (evidence.role(calls)[rows] != Role.BRACKET)]
    threads = [rows[calls["row"][rows] == thread] for thread in np.unique(calls["row"][rows]).tolist()]
    threads.sort(key=len, reverse=True)
    if len(threads) < 2:
        return None
    whole = low <= int(evidence.header.get("start_ns", evidence.start_ns))
    pids = {int(evidence.calls["pid"][own[0]]) for own in threads}
    counted = whole and pids <= evidence.complete and not evidence.lost_events
    done = np.full(len(calls["row"]), _UNKNOWN, np.int64)
    if not counted:
        shown = first_shown(scene.analysis.gpu, rows)
        done[rows] = np.where(shown >= 0, calls["end"][shown], _UNKNOWN)
    shifts, matched = [0], True
    ranks = [threads[0]]
    for own in threads[1:]:
        found = _shift(scene, ranks[0], own, done, reach=0 if counted else _REACH)
        if found is None:
            continue
        ranks.append(own)
        shifts.append(found[0])
        matched = matched and (counted or found[1])
    if len(ranks) < 2:
        return None
    return Meetings(_columns(ranks, shifts), matched)


def _shift(scene: Scene, first: Ints, own: Ints, done: Ints, *, reach: int) -> tuple[int, bool] | None:
    """(by how many collectives ``own`` begins later than ``first``, whether their ends say so).

    None where the two make other collectives. Without ends the smallest shift at which they are alike.
    """
    calls = scene.evidence.calls
    best: tuple[int, bool] | None = None
    apart = np.inf
    for shift in sorted(range(-reach, reach + 1), key=abs):
        ours, theirs = first[max(shift, 0) :], own[max(-shift, 0) :]
        size = min(len(ours), len(theirs))
        if size < max(ALIKE * len(first) - abs(shift), 1):
            continue
        ours, theirs = ours[:size], theirs[:size]
        same = calls["op"][ours] == calls["op"][theirs]
        same &= calls["bytes"][ours] == calls["bytes"][theirs]
        if same.mean() < ALIKE:
            continue
        known = (done[ours] != _UNKNOWN) & (done[theirs] != _UNKNOWN)
        if np.count_nonzero(known) >= FEWEST:
            # the mean: of ten collectives that are waited for together only one tells of a shift by one
            ends = float(np.abs(done[ours] - done[theirs])[known].mean())
            if ends < apart:
                best, apart = (shift, True), ends
        elif best is None:
            best = shift, False
    return best


def _columns(ranks: Sequence[Ints], shifts: Sequence[int]) -> Ints:
    """The same collectives of all ranks, one below the other."""
    # rank r's call i is the first rank's call i + shift
    low = max(shifts)
    ends = [len(own) + shift for own, shift in zip(ranks, shifts, strict=True)]
    high = max(min(ends), low)
    return np.stack([own[low - shift : high - shift] for own, shift in zip(ranks, shifts, strict=True)])
