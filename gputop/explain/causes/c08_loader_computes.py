"""C08: the workers of the loader compute for longer than the GPU."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.loaders import behind_workers, workers_of
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.peers import of_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask, covered, intersect, union

LARGE = 0.2  # part of the time that workers wait for each other (docs/causes/C08.md)


def _computing(scene: Scene, free: Mask) -> Mask:
    works = scene.does(State.RUN, State.BLOCKED) | behind_workers(scene)
    return free & of_loader(scene) & works


def _cpu_taken(claim: Claim) -> int:
    """Time for which workers had the CPU that the submitting thread waited for.

    Only where the GPU had or may have had nothing to do: a loader that computes less gives that back, too.
    """
    scene = claim.scene
    slices, on_cpu = scene.evidence.slices, scene.evidence.on_cpu
    rows = np.flatnonzero(np.isin(slices["row"], scene.gaps.thread[claim.gaps]))
    rows = rows[slices["end"][rows] > slices["queued"][rows]]
    late = scene.analysis.gpu.delays.intervals
    idle = union(np.append(scene.gaps.begin, late[0]), np.append(scene.gaps.end, late[1]))
    taken = 0
    for number in np.unique(slices["queue_cpu"][rows]).tolist():
        mine = rows[slices["queue_cpu"][rows] == number]
        waits = union(slices["queued"][mine], slices["end"][mine])
        here = on_cpu[(on_cpu["cpu"] == number) & np.isin(on_cpu["pid"], scene.helpers())]
        begin, end = intersect(waits, idle)
        taken += int(covered(union(here["begin"], here["end"]), begin, end).sum())
    return taken


def _advise_computing(claim: Claim) -> tuple[str, ...]:
    workers, cpus = workers_of(claim), claim.scene.cpus
    advice = [
        "the workers compute for longer than the GPU: fetch whole batches (__getitems__), vectorise, or "
        "move transforms to the GPU"
    ]
    queued = claim.segments & (claim.scene.segments.state == State.QUEUED)
    waited = int(claim.scene.ns[queued].sum())
    if waited > LARGE * claim.ns:
        several = f"{workers} workers" if workers > 1 else "workers"  # of the others none had a part in it
        advice.append(
            f"{several} share {cpus} CPUs and wait for each other for "
            f"{100 * waited / claim.ns:.0f} % of this time: more of them will not help"
        )
    elif cpus > workers + 1:
        advice.append(f"{cpus - 1 - workers} of {cpus} CPUs can take more workers: num_workers={cpus - 1}")
    return tuple(advice)


COMPUTING = register(
    Cause(
        "C08",
        "DataLoader is CPU-bound",
        _computing,
        _advise_computing,
        more=_cpu_taken,
        culprit="end",
        crowded=True,
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=130,
    )
)
