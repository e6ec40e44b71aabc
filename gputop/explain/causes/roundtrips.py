"""Loops that read from the device again and again: what lies between two of their reads belongs to them."""

from __future__ import annotations

import numpy as np

from gputop.explain.ranges import Ints
from gputop.explain.scene import Scene

MANY_READS = 4  # a step: fewer are a loss and a metric
NEAR = 0.25  # of a step: reads that are further apart are not of one loop


def read_between(scene: Scene) -> Ints:
    """For each gap the bytes of the read before it, where it lies between two reads of one loop; else -1.

    A read drains the stream, so that each launch, copy and allocation up to the next read finds the GPU idle:
    with the reads the loop goes, and all of that with it.
    """
    found: Ints = scene.once("read between", lambda: _find(scene))
    return found


def _find(scene: Scene) -> Ints:
    gaps, facts = scene.gaps, scene.gap_facts
    found: Ints = facts.read_bytes.copy()
    opened = np.flatnonzero(facts.read_bytes >= 0)
    pids = scene.evidence.threads.pid
    for thread in np.unique(gaps.thread[opened]).tolist():
        steps = scene.steps_of(int(pids[thread]))
        reads = opened[gaps.thread[opened] == thread]
        if steps is None or len(reads) < MANY_READS * steps.count:
            continue
        begin, size = gaps.begin[reads], facts.read_bytes[reads]
        mine = np.flatnonzero((gaps.thread == thread) & (facts.read_bytes < 0))
        place = np.searchsorted(begin, gaps.begin[mine], side="right")
        inside = (place > 0) & (place < len(begin))
        before, after = np.maximum(place - 1, 0), np.minimum(place, len(begin) - 1)
        inside &= begin[after] - begin[before] <= NEAR * steps.median_ns
        found[mine[inside]] = size[before[inside]]
    return found
