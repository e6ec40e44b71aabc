"""C08 to C11: the input comes from other threads or processes, and they are slow."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask, covered, intersect, union
from gputop.explain.evidence.waits import Wait

LARGE = 0.2  # part of the time that workers wait for each other (causes.md C08)


def _others(scene: Scene) -> Mask:
    """Segments on threads that are not the submitter."""
    watched: Mask = scene.segments.thread >= 0
    return ~scene.own & watched


def _on_disk(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & scene.waits(Wait.DISK, Wait.READ)


def _faults(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & (scene.waits(Wait.FAULT, Wait.MEMORY) | scene.faulting())


def _fault_level(claim: Claim) -> Level:
    """What slept for a page is proved; which part of the CPU time faults took is an estimate."""
    asleep = int(claim.scene.ns[claim.segments & claim.scene.does(State.BLOCKED)].sum())
    return Level.PROVED if asleep >= 0.9 * claim.ns else Level.STRONG


def _behind_workers(scene: Scene) -> Mask:
    """Leaves that wait for a CPU on which mostly other workers of the same loader run.

    Those compute the batches after this one: fewer workers would not make them less, so such a wait is the
    loader's own computing, more of it than the CPUs can take.
    """
    segments, on_cpu = scene.segments, scene.evidence.on_cpu
    behind = np.zeros(scene.size, np.bool_)
    queued = np.flatnonzero(_others(scene) & scene.does(State.QUEUED) & (segments.slice >= 0))
    cpu = scene.evidence.slices["queue_cpu"][segments.slice[queued]]
    for number in np.unique(cpu).tolist():
        rows = queued[cpu == number]
        here = on_cpu[(on_cpu["cpu"] == number) & np.isin(on_cpu["pid"], scene.helpers())]
        taken = covered(union(here["begin"], here["end"]), segments.begin[rows], segments.end[rows])
        behind[rows] = 2 * taken > scene.ns[rows]
    return behind


def _starved(scene: Scene, free: Mask) -> Mask:
    return free & _others(scene) & scene.does(State.QUEUED) & ~_behind_workers(scene)


def _computing(scene: Scene, free: Mask) -> Mask:
    works = scene.does(State.RUN, State.BLOCKED) | _behind_workers(scene)
    return free & _others(scene) & works


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


def _workers(claim: Claim) -> int:
    """How many workers had a part in it; a thread of the trainer (pin_memory) is none where processes are."""
    scene = claim.scene
    rows = scene.segments.thread[claim.segments]
    pids = np.unique(scene.evidence.threads.pid[rows])
    others = np.setdiff1d(pids, [claim.pid])
    return len(others) or len(np.unique(rows))


def _advise_computing(claim: Claim) -> tuple[str, ...]:
    workers, cpus = _workers(claim), claim.scene.cpus
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
            f"{waited / claim.ns:.0%} of this time: more of them will not help"
        )
    elif cpus > workers + 1:
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
        "the workers wait for the disk: keep the data in memory, read larger pieces, or prefetch more "
        "(prefetch_factor, more workers: they wait, they do not compute)",
    )


def _advise_faults(_claim: Claim) -> tuple[str, ...]:
    return (
        "the workers touch fresh memory for each batch: reuse its buffers, persistent_workers=True, or "
        "transparent huge pages; files that are mapped: read them once before, or keep them in memory",
    )


ON_DISK = register(
    Cause(
        "C10",
        "DataLoader waits for the disk",
        _on_disk,
        _advise_disk,
        culprit="waiter",
        family="D",
        rank=100,
    )
)
FAULTS = register(
    Cause(
        "C11",
        "DataLoader waits for memory pages",
        _faults,
        _advise_faults,
        _fault_level,
        culprit="waiter",
        family="D",
        rank=110,
    )
)
STARVED = register(
    Cause(
        "C09",
        "DataLoader is starved of CPU",
        _starved,
        _advise_starved,
        culprit="waiter",
        family="D",
        rank=120,
    )
)
COMPUTING = register(
    Cause(
        "C08",
        "DataLoader is CPU-bound",
        _computing,
        _advise_computing,
        more=_cpu_taken,
        culprit="waiter",
        crowded=True,
        family="D",
        rank=130,
    )
)
