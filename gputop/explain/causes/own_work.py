"""What the submitting thread does by itself: between its calls, or inside one of its own."""

from __future__ import annotations

import numpy as np

from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait

_QUIET = (Group.OTHER, Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY, Group.DEVICE, Group.STREAM)
_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH)
LONG_NS = 1_000_000  # no call takes Python so long: between two launches the program does other work


def own_work(scene: Scene) -> Mask:
    """The submitting thread's own doing: on a CPU or asleep of its own will, not in an allocating call.

    What it waits for on a pipe or a terminal is somebody else's.
    """
    quiet = scene.inside(*_QUIET) | (scene.estimated & scene.in_refill & scene.inside(*_GIVING))
    return scene.own & scene.does(State.RUN, State.BLOCKED) & quiet & ~scene.waits(Wait.DATA)


def not_waited(scene: Scene) -> Mask:
    """Gaps that no wait opened: a query that succeeded, where none that found work came right before it."""
    drained_by = scene.gaps.drained_by
    calls, row = scene.evidence.calls, np.maximum(drained_by, 0)
    if not len(calls):
        return np.ones(len(drained_by), np.bool_)
    before = np.maximum(row - 1, 0)
    asked = scene.evidence.group_of(row) == Group.QUERY
    polled = (scene.evidence.group_of(before) == Group.QUERY) & (calls["ret"][before] != 0)
    polled &= (calls["row"][before] == calls["row"][row]) & (row > 0)
    free: Mask = (drained_by < 0) | (asked & ~polled)
    return free


def long_work(scene: Scene) -> Mask:
    """Gaps in which the submitting thread works for long between its calls."""
    works = own_work(scene) & scene.inside(Group.OTHER) & ~scene.unrecorded
    long: Mask = scene.gap_ns(works) >= LONG_NS
    return long


def in_own_call(scene: Scene, *groups: Group) -> Mask:
    """The submitter inside its own call of these groups, whatever it waits for there."""
    works = scene.does(State.RUN, State.BLOCKED, State.OUTSIDE, State.UNKNOWN)
    return works & scene.inside(*groups) & ~(scene.estimated & scene.in_refill)
