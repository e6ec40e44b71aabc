"""Whose the time may be in which a GPU was perhaps idle already, before a call proved it.

A thread that is kept from its wait (it waits for a lock between its launch and its synchronisation) finds the
GPU idle for it does not know how long. None of that time is certain, so it adds to the upper bounds only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.chains.analysis import Analysis, walk
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints
from gputop.explain.findings.attribution import owners
from gputop.explain.proofs.gaps import Gaps

LEAST_NS = 100_000  # shorter times between two calls are nobody's, and not worth a chain


@dataclass(frozen=True, slots=True)
class Possible:
    """Time before gaps in which the GPU may have been idle.

    Attributes:
        by_cause: (row of the catalogue, process) -> ns that went to what the cause is about.
        left_ns: For each gap what is not in ``by_cause``.
    """

    by_cause: dict[tuple[int, int], int]
    left_ns: Ints


def possible(scene: Scene) -> Possible:
    """What the thread of each gap's draining call did before that call, since it gave the GPU work."""
    gaps, calls = scene.gaps, scene.evidence.calls
    slack = scene.gap_facts.slack_ns.copy()
    drained_by = np.maximum(gaps.drained_by, 0)
    begin = gaps.begin - slack
    end = np.minimum(gaps.begin, calls["begin"][drained_by]) if len(calls) else begin
    rows = np.flatnonzero((gaps.drained_by >= 0) & (end - begin >= LEAST_NS))
    if not len(rows):
        return Possible({}, slack)
    drained_by = drained_by[rows]
    thread = calls["row"][drained_by].astype(np.int64)
    before = np.maximum(drained_by - 1, 0)
    before = np.where(calls["row"][before] == thread, before, -1)
    never = np.zeros(len(rows), np.bool_)
    early = Gaps(begin[rows], end[rows], gaps.device[rows], before, drained_by, thread, never, never)
    walked = walk(scene.evidence, early, scene.analysis.polls)
    other = Scene(Analysis(scene.evidence, scene.analysis.gpu, early, *walked), steps_of=scene)
    owner = owners(other)
    claimed = owner >= 0
    pids = scene.evidence.threads.pid[thread[other.segments.gap]]
    by_cause: dict[tuple[int, int], int] = {}
    for number, pid, ns in zip(
        owner[claimed].tolist(), pids[claimed].tolist(), other.ns[claimed].tolist(), strict=True
    ):
        by_cause[number, pid] = by_cause.get((number, pid), 0) + ns
    slack[rows] -= other.gap_ns(claimed)
    return Possible(by_cause, slack)
