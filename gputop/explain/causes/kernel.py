"""C17 to C19: the submitting thread sleeps in the kernel."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _network(scene: Scene, free: Mask) -> Mask:
    return free & ((scene.own & scene.waits(Wait.SOCKET)) | scene.over_network)


def _memory(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.waits(Wait.FAULT, Wait.MEMORY) & scene.inside(Group.OTHER)


def _disk(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.waits(Wait.DISK, Wait.READ)


def _advise_network(_claim: Claim) -> tuple[str, ...]:
    return (
        "the step waits for another machine or service: fetch the next answer while the GPU works, ask for "
        "several at once, or keep what does not change",
    )


def _advise_memory(_claim: Claim) -> tuple[str, ...]:
    return (
        "it waits for pages, or for other threads that change the address space (mmap, munmap, free of large "
        "blocks): load files before the loop, reuse buffers, MALLOC_TRIM_THRESHOLD_, mlock",
    )


def _advise_disk(_claim: Claim) -> tuple[str, ...]:
    return (
        "it writes or reads a file in the loop (checkpoint, log, fsync): do that in another thread, from a "
        "copy, or less often",
    )


NETWORK = register(
    Cause(
        "C19",
        "the step waits for the network",
        _network,
        _advise_network,
        culprit="waiter",
        family="K",
        rank=30,
    )
)
MEMORY = register(
    Cause(
        "C17",
        "the submitting thread waits for memory pages",
        _memory,
        _advise_memory,
        culprit="waiter",
        family="K",
        rank=150,
    )
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
