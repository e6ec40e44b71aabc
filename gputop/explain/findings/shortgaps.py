"""Which cause gets the time of estimated gaps that are too short to be followed one by one."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes import CATALOGUE
from gputop.explain.causes.drains import reads_of_short
from gputop.explain.chains.scene import Scene
from gputop.explain.estimates.estimate import Small
from gputop.explain.evidence.apiclass import H2D, Group
from gputop.explain.evidence.ranges import Ints, Mask

# rows of the catalogue
_ROWS = {cause.short: row for row, cause in enumerate(CATALOGUE)}
LAUNCH, COPY = _ROWS["launch"], _ROWS["copy"]


def short_gaps(scene: Scene, owner: Ints) -> dict[tuple[int, int], int]:
    """(row of the catalogue, process) -> ns.

    What comes before a launch is the launching thread's overhead, but for a loop of reads, of which it is a
    part. What comes before a copy to the device goes where the longer gaps before such copies of that process
    went.

    Args:
        scene: Everything.
        owner: The catalogue's row of the cause that took each segment, -1 for none.
    """
    found: dict[tuple[int, int], int] = {}
    for estimate in scene.analysis.estimates:
        small = estimate.small
        length, sends = small.end - small.begin, ends_with_copy(scene, small)
        pids, taken = scene.evidence.threads.pid[small.thread], _of_reads(scene, owner, small)
        for pid in np.unique(pids).tolist():
            mine = pids == pid
            for cause in np.unique(taken[mine & (taken >= 0)]).tolist():
                _add(found, cause, pid, int(length[mine & (taken == cause)].sum()))
            mine &= taken < 0
            _add(found, LAUNCH, pid, int(length[mine & ~sends].sum()))
            rest = int(length[mine & sends].sum())
            for cause, share in _shares(scene, owner, pid, COPY):
                _add(found, cause, pid, int(rest * share))
    return found


def causes_of_short(scene: Scene, owner: Ints, small: Small) -> Ints:
    """The catalogue's row of the cause that each short gap belongs to, or mostly does."""
    cause = np.full(len(small.begin), LAUNCH, np.int64)
    sends, pids = ends_with_copy(scene, small), scene.evidence.threads.pid[small.thread]
    for pid in np.unique(pids[sends]).tolist():
        shares = _shares(scene, owner, pid, COPY)
        cause[sends & (pids == pid)] = max(shares, key=lambda one: one[1])[0]
    taken = _of_reads(scene, owner, small)
    return np.where(taken >= 0, taken, cause)


def _of_reads(scene: Scene, owner: Ints, small: Small) -> Ints:
    """The catalogue's row of the cause whose loop of reads each short gap lies in; -1 for none."""
    read = reads_of_short(scene, small.begin, small.thread)
    of_gap = np.full(len(scene.gaps) + 1, -1, np.int64)  # the last: of no gap
    order = np.argsort(scene.ns, kind="stable")  # the longest piece of a gap is written last
    of_gap[scene.segments.gap[order]] = owner[order]
    return of_gap[read]


def _add(found: dict[tuple[int, int], int], cause: int, pid: int, ns: int) -> None:
    if ns:
        found[cause, pid] = found.get((cause, pid), 0) + ns


def ends_with_copy(scene: Scene, small: Small) -> Mask:
    """Which of them end with a copy to the device."""
    calls = scene.evidence.calls
    if not len(calls):
        return np.zeros(len(small.begin), np.bool_)
    row = np.maximum(small.refilled_by, 0)
    copies = scene.evidence.group_of(row) == Group.COPY
    sends: Mask = (small.refilled_by >= 0) & copies & (calls["direction"][row] == H2D)
    return sends


def _shares(scene: Scene, owner: Ints, pid: int, otherwise: int) -> list[tuple[int, float]]:
    """(cause, share) of the process's followed gaps that end with a copy to the device."""
    gap = scene.segments.gap
    mine = (scene.gap_facts.sent_bytes[gap] >= 0) & (owner >= 0)
    mine &= scene.evidence.threads.pid[scene.gaps.thread[gap]] == pid
    taken = np.bincount(owner[mine], weights=scene.ns[mine])
    if not taken.sum():
        return [(otherwise, 1.0)]
    return [(int(row), float(taken[row] / taken.sum())) for row in np.flatnonzero(taken)]
