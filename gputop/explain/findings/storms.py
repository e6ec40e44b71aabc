"""Storms of context switches, and the GPU time that each has cost: which may be none."""

from __future__ import annotations

import numpy as np

from gputop.engine.rows import STORM_INVOLUNTARY_PER_S
from gputop.explain.answer.report import StormCost
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from probes.schema import OffFlag


def storms(scene: Scene) -> tuple[StormCost, ...]:
    """Threads that are preempted as often as in a storm on the screen, and the idle time that this cost.

    How long they waited makes no difference here: the cost is what tells a storm that matters.
    """
    evidence = scene.evidence
    slices, threads = evidence.slices, evidence.threads
    if not len(slices):
        return ()
    low, high = scene.analysis.gpu.stretch
    within = (slices["end"] > low) & (slices["end"] <= high)
    forced = within & ((slices["flags"] & OffFlag.INVOLUNTARY) != 0)
    size = len(threads.tid)
    switches = np.bincount(slices["row"][forced], minlength=size)
    life = np.maximum(np.minimum(threads.ended, high) - np.maximum(threads.known, low), 1_000_000)
    rate = switches * 1e9 / life
    queued = scene.segments.state == State.QUEUED
    cost = np.bincount(
        np.maximum(scene.segments.thread[queued], 0), weights=scene.ns[queued], minlength=size
    ).astype(np.int64)
    # both, as a start-up has many switches in little time
    rows = np.flatnonzero(np.minimum(rate, switches) >= STORM_INVOLUNTARY_PER_S)
    return tuple(
        StormCost(
            int(threads.pid[row]),
            int(threads.tid[row]),
            evidence.facts.thread_name(int(threads.tid[row])),
            int(switches[row]),
            float(rate[row]),
            int(cost[row]),
        )
        for row in rows[np.argsort(rate[rows])[::-1]].tolist()
    )
