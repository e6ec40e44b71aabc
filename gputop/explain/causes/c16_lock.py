"""C16: another thread of the process holds a lock that the submitting thread waits for."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.lineage import in_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _lock(scene: Scene, free: Mask) -> Mask:
    by_lock: Mask = scene.via == Wait.LOCK
    by_lock &= ~in_loader(scene)  # a queue that the loader's own thread fills is its loader, not its lock
    return free & ~scene.own & scene.same_process & by_lock & scene.does(State.RUN, State.QUEUED)


def _advise_lock(_claim: Claim) -> tuple[str, ...]:
    return (
        "another thread of the process holds a lock (in Python: the GIL): move that work to a process, or "
        "into code that releases it",
    )


LOCK = register(
    Cause(
        "C16",
        "lock held by another thread (in Python: the GIL)",
        _lock,
        _advise_lock,
        culprit="waiter",
        kind=DiagnosisKind.CPU,
        family="L",
        rank=90,
    )
)
