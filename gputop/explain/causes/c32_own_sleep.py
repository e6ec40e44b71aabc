"""C32: the submitting thread sleeps by itself, once before it gives the GPU its next work."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait
from gputop.format import format_ns


def _sleeps(scene: Scene, free: Mask) -> Mask:
    """Also a wait for what does not come, until its time-out: the thread goes on without it.

    Sleeps in a row before the next work are polling (polling.py), which is another cause.
    """
    asleep = scene.own & scene.waits(Wait.SLEEP, Wait.LOCK)
    return free & asleep & scene.inside(Group.OTHER) & ~scene.polling


def _advise(claim: Claim) -> tuple[str, ...]:
    usual = float(np.median(claim.scene.gap_ns(claim.segments)[claim.gaps]))
    return (
        f"it sleeps for {format_ns(usual)} {claim.per_step()}: remove the sleep, or sleep in a thread that "
        "gives the GPU no work; if it waits for new work, wait for that (queue.Queue.get, Condition.wait)",
    )


SLEEPS = register(
    Cause(
        "C32",
        "sleeps in the loop",
        _sleeps,
        _advise,
        culprit="waiter",
        kind=DiagnosisKind.HOST,
        family="H",
        rank=25,
    )
)
