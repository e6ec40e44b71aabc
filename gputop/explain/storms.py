"""Storms of context switches, and the GPU time that each has cost: which may be none."""

from __future__ import annotations

import numpy as np

from gputop.explain.chain import State
from gputop.explain.report import StormCost
from gputop.explain.scene import Scene
from gputop.rows import STORM_INVOLUNTARY_PER_S, STORM_RUNNABLE_PERCENT
from probes.schema import OffFlag


def storms(scene: Scene) -> tuple[StormCost, ...]:
    """Threads in a storm, as the screen judges it, and the idle time in which they wanted a CPU."""
    evidence = scene.evidence
    slices, threads = evidence.slices, evidence.threads
    if not len(slices):
        return ()
    low, high = scene.analysis.gpu.stretch
    within = (slices["end"] > low) & (slices["end"] <= high)
    forced = within & ((slices["flags"] & OffFlag.INVOLUNTARY) != 0)
    size = len(threads.tid)
    switches = np.bincount(slices["row"][forced], minlength=size)
    spent = np.minimum(slices["end"], high) - np.maximum(slices["queued"], low)
    waited = np.bincount(slices["row"], weights=np.maximum(spent, 0), minlength=size)
    life = np.maximum(np.minimum(threads.ended, high) - np.maximum(threads.known, low), 1_000_000)
    rate = switches * 1e9 / life
    queued = scene.leaves.state == State.QUEUED
    cost = np.bincount(
        np.maximum(scene.leaves.thread[queued], 0), weights=scene.ns[queued], minlength=size
    ).astype(np.int64)
    # at least a second's worth: a start-up has many switches in little time
    rows = np.flatnonzero(
        (np.minimum(rate, switches) >= STORM_INVOLUNTARY_PER_S)
        & (100 * waited >= STORM_RUNNABLE_PERCENT * life)
    )
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
