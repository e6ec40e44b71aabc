"""C17: the submitting thread stalls on page faults or on its address space."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _memory(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.waits(Wait.FAULT, Wait.MEMORY) & scene.inside(Group.OTHER)


def _advise_memory(_claim: Claim) -> tuple[str, ...]:
    return (
        "it waits for pages, or for other threads that change the address space (mmap, munmap, free of large "
        "blocks): load files before the loop, reuse buffers, MALLOC_TRIM_THRESHOLD_, mlock",
    )


MEMORY = register(
    Cause(
        "C17",
        "the submitting thread stalls on page faults",
        _memory,
        _advise_memory,
        culprit="waiter",
        family="K",
        rank=150,
    )
)
