"""The threads and processes that prepare a submitter's input, and how they wait for each other."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Claim
from gputop.explain.chains.births import most_at_a_time
from gputop.explain.chains.chain import State
from gputop.explain.chains.peers import of_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask, covered, union


def behind_workers(scene: Scene) -> Mask:
    """Leaves that wait for a CPU on which mostly other workers of the same loader run.

    Those compute the batches after this one: fewer workers would not make them less, so such a wait is the
    loader's own computing, more of it than the CPUs can take.
    """
    segments, on_cpu = scene.segments, scene.evidence.on_cpu
    behind = np.zeros(scene.size, np.bool_)
    queued = np.flatnonzero(of_loader(scene) & scene.does(State.QUEUED) & (segments.slice >= 0))
    cpu = scene.evidence.slices["queue_cpu"][segments.slice[queued]]
    for number in np.unique(cpu).tolist():
        rows = queued[cpu == number]
        here = on_cpu[(on_cpu["cpu"] == number) & np.isin(on_cpu["pid"], scene.helpers())]
        taken = covered(union(here["begin"], here["end"]), segments.begin[rows], segments.end[rows])
        behind[rows] = 2 * taken > scene.ns[rows]
    return behind


def workers_of(claim: Claim) -> int:
    """How many workers at a time had a part in it; a thread of the trainer (pin_memory) is none beside them.

    Workers that are started anew for every epoch are others each time.
    """
    scene = claim.scene
    rows = scene.segments.thread[claim.segments]
    pids = np.unique(scene.evidence.threads.pid[rows])
    others = np.setdiff1d(pids, [claim.pid])
    return most_at_a_time(scene, others) if len(others) else len(np.unique(rows))
