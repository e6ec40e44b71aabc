"""C20: the GPU is idle while the host allocates or frees device memory."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.own_work import in_own_call
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask


def _device_memory(scene: Scene, free: Mask) -> Mask:
    return free & in_own_call(scene, Group.ALLOC, Group.FREE)


def _advise_device(claim: Claim) -> tuple[str, ...]:
    done = f"device memory is allocated and freed {claim.per_step()}"
    if not claim.torch:
        return (f"{done}: allocate it once before the loop, or from a pool (cudaMallocAsync)",)
    return (
        f"{done}: keep shapes fixed, keep the caching allocator's blocks (no empty_cache() in the loop), "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or cudaMallocAsync",
    )


DEVICE_MEMORY = register(
    Cause(
        "C20",
        "device memory allocated in the loop (`cudaMalloc`)",
        _device_memory,
        _advise_device,
        calls_go=frozenset({"inside"}),
        culprit="inside",
        kind=DiagnosisKind.SYNC,
        family="A",
        rank=60,
    )
)
