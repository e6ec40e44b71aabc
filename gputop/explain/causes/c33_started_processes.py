"""C33 and C37: processes are started in the loop, and the GPU waits until they are ready or done.

Fork, exec, import and the first batch are one cause: what is to be changed is that they are started again.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.births import births_in_gaps, born_of, most_at_a_time
from gputop.explain.chains.chain import State
from gputop.explain.chains.code import gaps_in_code
from gputop.explain.chains.formwords import how_often
from gputop.explain.chains.lineage import in_loader
from gputop.explain.chains.pytorch import by_loader, by_start
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask

LEAST_GAPS = 3  # processes are started in at least so many: fewer are start-up
MOSTLY = 0.5  # of a gap that a start takes: then the rest of it belongs to it, too


def _starting(scene: Scene, free: Mask) -> Mask:
    """From the first birth of a gap until its last child was done or gave what was waited for."""
    births = births_in_gaps(scene)
    if np.count_nonzero(births.count) < LEAST_GAPS:
        return scene.mask()
    segments, gaps = scene.segments, scene.gaps
    gap = segments.gap
    child = np.isin(scene.pid, births.pids)
    last = np.zeros(len(gaps), np.int64)
    np.maximum.at(last, gap[child], segments.end[child])
    first = np.where(births.count > 0, births.first, gaps.end)
    first[gap[child]] = np.minimum(first[gap[child]], segments.begin[child])  # those of before end
    last = np.maximum(last, births.last)
    waits = (births.count > 0) & (last > births.first)
    whole = waits & (last - first >= MOSTLY * (gaps.end - gaps.begin))
    # a fork takes its time before the child is there, and the end of the children before as well
    whole |= (births.count > 0) & gaps_in_code(scene, by_start)
    within = (segments.begin >= births.first[gap]) & (segments.end <= last[gap])
    chosen = whole[gap] | (waits[gap] & (within | child))
    starved = scene.own & scene.does(State.QUEUED)
    return free & chosen & ~starved


def _of_loader(scene: Scene) -> Mask:
    """Pieces of gaps of processes that mostly start others where they wait for a DataLoader's next batch."""
    if not len(scene.gaps):
        return scene.mask()
    births = births_in_gaps(scene).count > 0
    loads = births & ((scene.gap_ns(in_loader(scene)) > 0) | gaps_in_code(scene, by_loader))
    owner = scene.evidence.threads.pid[scene.gaps.thread]
    pids, of_each = np.unique(owner, return_inverse=True)
    of_each = of_each.reshape(-1)
    mostly = 2 * np.bincount(of_each, weights=loads, minlength=len(pids)) > np.bincount(
        of_each, weights=births, minlength=len(pids)
    )
    chosen: Mask = mostly[of_each][scene.segments.gap]
    return chosen


def _workers(scene: Scene, free: Mask) -> Mask:
    return _starting(scene, free & _of_loader(scene))


def _title(claim: Claim) -> str:
    count = _at_a_time(claim)
    what = "a process is" if count == 1 else f"{count} processes are"
    return f"{what} started {how_often(claim.times)} and waited for"


def _at_a_time(claim: Claim) -> int:
    births = births_in_gaps(claim.scene)
    return max(most_at_a_time(claim.scene, born_of(claim.gaps, births)), 1)


def _advise(claim: Claim) -> tuple[str, ...]:
    return (
        f"a process is started {claim.per_step()}, and the GPU waits until it is ready or done: start it "
        "once before the loop and give it work through a pipe or queue, or do the work in the process itself",
    )


def _advise_workers(_claim: Claim) -> tuple[str, ...]:
    return (
        "each epoch starts the workers again, which import and load before their first batch: "
        "persistent_workers=True keeps them",
        "or let one loader go through several epochs, by a sampler that repeats",
    )


def _told(claim: Claim) -> tuple[str, ...]:
    births = births_in_gaps(claim.scene)
    count = int(births.count[claim.gaps].sum())
    return (f"{count} processes were born in {len(claim.gaps)} gaps, {_at_a_time(claim)} at a time",)


WORKERS = register(
    Cause(
        "C33",
        "DataLoader workers are started anew every epoch",
        _workers,
        _advise_workers,
        culprit="waiter",
        told=_told,
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=16,
    )
)
STARTED = register(
    Cause(
        "C37",
        "processes are started in the loop",
        _starting,
        _advise,
        culprit="waiter",
        titled=_title,
        told=_told,
        kind=DiagnosisKind.HOST,
        family="H",
        rank=18,
    )
)
