"""C08 to C11: the input comes from other threads or processes, and they are slow."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.chain import State
from gputop.explain.evidence import Column
from gputop.explain.scene import Scene
from gputop.explain.waits import Wait


def _others(scene: Scene) -> Column:
    """Leaves on threads that are not the enqueuer."""
    return ~scene.own & (scene.leaves.thread >= 0)


def _on_disk(scene: Scene, free: Column) -> Column:
    waits = np.isin(scene.wait, [Wait.DISK, Wait.READ]) & (scene.leaves.state == State.BLOCKED)
    return free & _others(scene) & waits


def _faults(scene: Scene, free: Column) -> Column:
    asleep = (scene.leaves.state == State.BLOCKED) & np.isin(scene.wait, [Wait.FAULT, Wait.MEMORY])
    return free & _others(scene) & asleep


def _starved(scene: Scene, free: Column) -> Column:
    return free & _others(scene) & (scene.leaves.state == State.QUEUED)


def _computing(scene: Scene, free: Column) -> Column:
    works = np.isin(scene.leaves.state, [State.RUN, State.BLOCKED])
    return free & _others(scene) & works


def _workers(claim: Claim) -> int:
    return len(np.unique(claim.scene.pid[claim.leaves]))


def _cpus(claim: Claim) -> int:
    machine = claim.scene.evidence.header.get("machine")
    return int(machine.get("cpus") or 0) if isinstance(machine, dict) else 0


def _advise_computing(claim: Claim) -> tuple[str, ...]:
    workers, cpus = _workers(claim), _cpus(claim)
    advice = [
        "the loader computes for longer than the GPU: fetch whole batches (__getitems__), vectorise, or move transforms to the GPU"
    ]
    if cpus > workers + 1:
        advice.append(f"{cpus - 1 - workers} of {cpus} CPUs can take more workers: num_workers={cpus - 1}")
    return tuple(advice)


def _advise_starved(claim: Claim) -> tuple[str, ...]:
    workers, cpus = _workers(claim), _cpus(claim)
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
FAULTS = Cause("C11", "the loader waits for fresh memory pages", _faults, _advise_faults)
STARVED = Cause("C09", "the loader gets no CPU", _starved, _advise_starved)
COMPUTING = Cause("C08", "the loader computes", _computing, _advise_computing)
