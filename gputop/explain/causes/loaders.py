"""C08 to C11: the input comes from other threads or processes, and they are slow."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Cause, Claim, Level
from gputop.explain.chain import State
from gputop.explain.ranges import Mask
from gputop.explain.scene import Scene
from gputop.explain.waits import Wait


def _others(scene: Scene) -> Mask:
    """Leaves on threads that are not the enqueuer."""
    watched: Mask = scene.leaves.thread >= 0
    return ~scene.own & watched


def _on_disk(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & scene.waits(Wait.DISK, Wait.READ)


def _faults(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & (scene.waits(Wait.FAULT, Wait.MEMORY) | scene.faulting())


def _fault_level(claim: Claim) -> Level:
    """What slept for a page is proved; which part of the CPU time faults took is an estimate."""
    asleep = int(claim.scene.ns[claim.leaves & claim.scene.does(State.BLOCKED)].sum())
    return Level.PROVED if asleep >= 0.9 * claim.ns else Level.STRONG


def _starved(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & scene.does(State.QUEUED)


def _computing(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & scene.does(State.RUN, State.BLOCKED)


def _workers(claim: Claim) -> int:
    return len(np.unique(claim.scene.pid[claim.leaves]))


def _advise_computing(claim: Claim) -> tuple[str, ...]:
    workers, cpus = _workers(claim), claim.scene.cpus
    advice = [
        "the loader computes for longer than the GPU: fetch whole batches (__getitems__), vectorise, or "
        "move transforms to the GPU"
    ]
    if cpus > workers + 1:
        advice.append(f"{cpus - 1 - workers} of {cpus} CPUs can take more workers: num_workers={cpus - 1}")
    return tuple(advice)


def _advise_starved(claim: Claim) -> tuple[str, ...]:
    workers, cpus = _workers(claim), claim.scene.cpus
    best = max(cpus - 1, 1)
    advice = []
    if workers > best:
        advice.append(f"{workers} workers share {cpus} CPUs with the trainer: num_workers={best}")
    advice.append("keep others off their CPUs (taskset, nice), and torch.set_num_threads(1) in the workers")
    return tuple(advice)


def _advise_disk(_claim: Claim) -> tuple[str, ...]:
    return (
        "the loader waits for the disk: keep the data in memory, read larger pieces, or prefetch more "
        "(prefetch_factor, more workers: they wait, they do not compute)",
    )


def _advise_faults(_claim: Claim) -> tuple[str, ...]:
    return (
        "the loader touches fresh memory for each batch: reuse its buffers, persistent_workers=True, or "
        "transparent huge pages; files that are mapped: read them once before, or keep them in memory",
    )


ON_DISK = Cause("C10", "the loader waits for the disk", _on_disk, _advise_disk)
FAULTS = Cause("C11", "the loader waits for fresh memory pages", _faults, _advise_faults, _fault_level)
STARVED = Cause("C09", "the loader gets no CPU", _starved, _advise_starved)
COMPUTING = Cause("C08", "the loader computes", _computing, _advise_computing)
