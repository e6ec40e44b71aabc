"""C18: the submitting thread waits for the disk."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _disk(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.waits(Wait.DISK, Wait.READ)


def _advise_disk(_claim: Claim) -> tuple[str, ...]:
    return (
        "it writes or reads a file in the loop (checkpoint, log, fsync): do that in another thread, from a "
        "copy, or less often",
    )


DISK = register(
    Cause(
        "C18",
        "the submitting thread waits for the disk",
        _disk,
        _advise_disk,
        culprit="waiter",
        family="K",
        rank=140,
    )
)
