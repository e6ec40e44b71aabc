"""C17 to C19: the thread that feeds the GPU sleeps in the kernel."""

from __future__ import annotations

import numpy as np

from gputop.explain.apiclass import Group
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.chain import State
from gputop.explain.evidence import Column
from gputop.explain.scene import Scene
from gputop.explain.waits import Wait


def _network(scene: Scene, free: Column) -> Column:
    asleep = scene.own & (scene.leaves.state == State.BLOCKED) & (scene.wait == Wait.SOCKET)
    return free & (asleep | scene.over_network)


def _memory(scene: Scene, free: Column) -> Column:
    kinds = np.isin(scene.wait, [Wait.FAULT, Wait.MEMORY])
    return free & scene.own & (scene.leaves.state == State.BLOCKED) & kinds & (scene.group == Group.OTHER)


def _disk(scene: Scene, free: Column) -> Column:
    kinds = np.isin(scene.wait, [Wait.DISK, Wait.READ])
    return free & scene.own & (scene.leaves.state == State.BLOCKED) & kinds


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


NETWORK = Cause("C19", "the step waits for the network", _network, _advise_network)
MEMORY = Cause("C17", "the thread that feeds the GPU waits for memory pages", _memory, _advise_memory)
DISK = Cause("C18", "the thread that feeds the GPU waits for the disk", _disk, _advise_disk)
