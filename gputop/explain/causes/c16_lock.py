"""C16: another thread of the process holds a lock that the submitting thread waits for."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.c13_preempted import crowded_out
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.peer_causes import share, who
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.locks import Futex
from gputop.explain.chains.peers import others
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask, covered, union
from gputop.explain.evidence.waits import WORDS, Wait

KEPT = 0.9  # of the time in which it is held, for which others must wait for it


def _lock(scene: Scene, free: Mask) -> Mask:
    locked = scene.same_process & (scene.futex != Futex.UNKNOWN)
    behind: Mask = others(scene) & locked & scene.does(State.RUN, State.QUEUED, State.BLOCKED)
    return free & ((behind & ~crowded_out(scene)) | _keeps_it(scene))


def _keeps_it(scene: Scene) -> Mask:
    """The submitter holds a lock for which others wait: it sleeps with it, or runs Python with the GIL.

    What others wait for is the lock that it lets go when they are woken. Those count that give the GPU work,
    too: without the lock they would do so meanwhile.
    """
    segments, slices, threads = scene.segments, scene.evidence.slices, scene.evidence.threads
    asleep = scene.own & scene.waits(Wait.SLEEP)
    runs = scene.own & scene.does(State.RUN, State.QUEUED) & scene.inside(Group.OTHER)
    found = scene.mask()
    submitters = np.unique(scene.gaps.thread)
    giving = np.isin(slices["row"], submitters)
    locks = np.flatnonzero(giving & (scene.locks == Futex.LOCK))
    gil = np.flatnonzero(giving & (scene.locks == Futex.GIL))
    for thread in submitters.tolist():
        mine = segments.thread == thread
        same = slices["pid"] == threads.pid[thread]
        behind = locks[slices["waker_tid"][locks] == threads.tid[thread]]
        others = gil[same[gil] & (slices["row"][gil] != thread)]
        for chosen, waits in ((asleep, behind), (runs, others)):
            rows = np.flatnonzero(chosen & mine)
            if len(rows) and len(waits):
                taken = union(slices["begin"][waits], slices["end"][waits])
                kept = covered(taken, segments.begin[rows], segments.end[rows])
                found[rows] |= kept >= KEPT * scene.ns[rows]
    return found


def is_gil(claim: Claim) -> bool:
    """Whether most of the time is spent behind CPython's own lock, or with it."""
    scene = claim.scene
    return share(claim, (scene.futex == Futex.GIL) | (scene.own & scene.does(State.RUN, State.QUEUED))) > 0.5


def _holder_does(claim: Claim) -> str:
    scene = claim.scene
    asleep = claim.segments & scene.does(State.BLOCKED)
    if 2 * int(scene.ns[asleep].sum()) > claim.ns:
        usual = Wait(int(np.argmax(np.bincount(scene.wait[asleep], weights=scene.ns[asleep]))))
        return "sleeps" if usual is Wait.SLEEP else f"is blocked {WORDS[usual]}"
    return "has no CPU" if share(claim, scene.does(State.QUEUED)) > 0.5 else "computes"


def _title(claim: Claim) -> str:
    what = "the GIL" if is_gil(claim) else "a lock"
    return f"waits for {what}, held by {who(claim)}, which {_holder_does(claim)}"


def _told(claim: Claim) -> tuple[str, ...]:
    if is_gil(claim):
        return ("the GIL, by its waits of 5 ms that are taken up again",)
    return ("a lock: those who end a wait for it wait for it at other times",)


def _advise(claim: Claim) -> tuple[str, ...]:
    if is_gil(claim):
        return (
            "threads of one interpreter take turns: move that Python work to a process, or into code that "
            "releases the GIL (NumPy on large arrays)",
        )
    if _holder_does(claim) == "sleeps":
        return ("its holder sleeps with the lock in its hands: release the lock before the sleep",)
    return ("hold the lock for a shorter time: work and wait outside of it, or use a lock for each part",)


LOCK = register(
    Cause(
        "C16",
        "waits for a lock of its process",
        _lock,
        _advise,
        # by its address and its 5 ms, or by who waits for it in turn: a pair of events may look the same
        lambda _claim: Level.STRONG,
        culprit="end",
        titled=_title,
        told=_told,
        kind=DiagnosisKind.HOST,
        family="L",
        rank=24,
    )
)
