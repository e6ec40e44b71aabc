"""C20 to C22: the GPU is idle while the host allocates, page-locks, builds graphs or loads code."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask


def _inside(scene: Scene, *groups: Group) -> Mask:
    """The submitter inside its own call of these groups, whatever it waits for there."""
    works = scene.does(State.RUN, State.BLOCKED, State.OUTSIDE, State.UNKNOWN)
    return works & scene.inside(*groups) & ~(scene.estimated & scene.in_refill)


def _device_memory(scene: Scene, free: Mask) -> Mask:
    return free & _inside(scene, Group.ALLOC, Group.FREE)


def _host_memory(scene: Scene, free: Mask) -> Mask:
    return free & _inside(scene, Group.HOST)


def _graphs(scene: Scene, free: Mask) -> Mask:
    return free & _inside(scene, Group.GRAPH, Group.MODULE)


def _advise_device(claim: Claim) -> tuple[str, ...]:
    return (
        f"device memory is allocated and freed {claim.per_step()}: keep shapes fixed, keep the caching "
        "allocator's blocks (no empty_cache() in the loop), "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or cudaMallocAsync",
    )


def _advise_host(claim: Claim) -> tuple[str, ...]:
    return (
        f"host memory is page-locked {claim.per_step()}, which takes a lock of the driver: allocate pinned "
        "buffers once and reuse them (pin_memory=True with persistent_workers=True)",
    )


def _advise_graphs(claim: Claim) -> tuple[str, ...]:
    return (
        f"a graph is built or code is loaded {claim.per_step()}: fixed shapes (dynamic=True in "
        "torch.compile), capture once and replay, warm up before the loop",
    )


DEVICE_MEMORY = register(
    Cause(
        "C20",
        "device memory allocated in the loop (`cudaMalloc`)",
        _device_memory,
        _advise_device,
        calls_go=frozenset({"inside"}),
        culprit="inside",
        family="A",
        rank=60,
    )
)
HOST_MEMORY = register(
    Cause(
        "C21",
        "host memory pinned in the loop",
        _host_memory,
        _advise_host,
        culprit="inside",
        family="A",
        rank=70,
    )
)
GRAPHS = register(
    Cause(
        "C22",
        "CUDA graphs built or code loaded in the loop",
        _graphs,
        _advise_graphs,
        culprit="inside",
        family="A",
        rank=80,
    )
)
