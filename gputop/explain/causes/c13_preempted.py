"""C13: the submitting thread is ready to run, and others have its CPU."""

from __future__ import annotations

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import occupants
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.locks import Futex
from gputop.explain.chains.peers import loader_helpers, others
from gputop.explain.chains.places import hottest
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask, union
from probes.code.source_files import is_library

MOSTLY = 0.5  # of the time, for those who had the CPU to be named


def _preempted(scene: Scene, free: Mask) -> Mask:
    """Also who has a lock that it waits for, and no CPU because of other threads of its process."""
    return free & scene.does(State.QUEUED) & (scene.own | crowded_out(scene))


def _line(claim: Claim) -> Line | None:
    """Where the threads of its own process run that have its CPU."""
    if own_threads(claim) is None:
        return None
    scene, segments = claim.scene, claim.scene.segments
    places, threads = scene.evidence.places, scene.evidence.threads
    rows = np.flatnonzero(claim.segments)
    taken = union(segments.begin[rows], segments.end[rows])
    if not len(places) or not len(taken[0]):
        return None
    takers = [tid for pid, tid in scene.thread_shares(claim.segments) if pid == claim.pid]
    at = np.searchsorted(taken[0], places["time"], side="right") - 1
    met = (at >= 0) & (places["time"] < taken[1][np.maximum(at, 0)]) & np.isin(places["tid"], takers)
    met &= ~np.isin(places["tid"], threads.tid[np.unique(scene.gaps.thread[claim.gaps])])
    hot = hottest(scene, *(column.tolist() for column in np.unique(places["stack"][met], return_counts=True)))
    return hot.line if hot is not None and not is_library(hot.line.file) else None


def crowded_out(scene: Scene) -> Mask:
    """Holders of locks of a process that mostly have no CPU, because other threads of it have it."""
    behind = others(scene) & scene.same_process & (scene.futex != Futex.UNKNOWN)
    queued = behind & scene.does(State.QUEUED)
    found = scene.mask()
    for pid in np.unique(scene.pid[queued]).tolist():
        held, mine = behind & (scene.pid == pid), queued & (scene.pid == pid)
        starved = scene.ns[mine].sum() > MOSTLY * scene.ns[held].sum()
        if starved and scene.occupant_shares(mine).get(pid, 0.0) > MOSTLY:
            found |= mine
    return found


def own_threads(claim: Claim) -> tuple[int, str] | None:
    """(how many threads of its own process had its CPU, the one that had it longest), if these mostly did."""
    scene = claim.scene
    shares = scene.thread_shares(claim.segments)
    own = {tid: part for (pid, tid), part in shares.items() if pid == claim.pid}
    if sum(own.values()) <= MOSTLY * sum(shares.values()):
        return None
    most = max(own, key=lambda tid: own[tid])
    return len(own), f"{scene.evidence.facts.thread_name(most)} ({most})"


def _title(claim: Claim) -> str:
    own = own_threads(claim)
    if own is None:
        return PREEMPTED.title
    count, most = own
    cpus = f" on {claim.scene.cpus} CPUs" if claim.scene.cpus else ""
    if count == 1:
        return f"thread {most} of its own process takes the submitting thread's CPU"
    return f"{count} threads of its own process{cpus} take the submitting thread's CPU, most {most}"


def _advise_preempted(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    if own_threads(claim) is not None:
        return (
            "its process has more threads that want a CPU than it has CPUs: a smaller pool (OMP_NUM_THREADS"
            f"{', torch.set_num_threads' if claim.torch else ''}, fewer threads), more CPUs, "
            "or that work in a process with CPUs of its own",
        )
    advice = f"{occupants(claim)}keep others off its CPU with taskset or nice"
    if len(loader_helpers(scene)):
        advice += ", or run fewer workers than CPUs (num_workers), with torch.set_num_threads(1) in each"
    return (advice,)


PREEMPTED = register(
    Cause(
        "C13",
        "the submitting thread is starved of CPU",
        _preempted,
        _advise_preempted,
        titled=_title,
        at=_line,
        kind=DiagnosisKind.CPU,
        family="P",
        rank=50,
    )
)
