"""C20: the GPU is idle while the host allocates or frees device memory."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.own_work import in_own_call
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask, distinct

_EMPTIES = "empty_cache"
TITLE = "device memory allocated in the loop (`cudaMalloc`)"
EMPTIED = "`torch.cuda.empty_cache()` in the loop"


def _device_memory(scene: Scene, free: Mask) -> Mask:
    return free & in_own_call(scene, Group.ALLOC, Group.FREE)


def _emptied(claim: Claim) -> bool:
    """Whether most of what is freed there is freed by PyTorch's ``empty_cache()``."""
    evidence = claim.scene.evidence
    frames = evidence.facts.stacks.frames
    rows = distinct(claim.scene.segments.call[claim.segments])
    frees = rows[evidence.group_of(rows) == Group.FREE]
    numbers, counts = np.unique(evidence.calls["stack"][frees], return_counts=True)
    emptied = [
        any(frame.function == _EMPTIES and "/torch/" in frame.file for frame in frames(stack))
        for stack in numbers.tolist()
    ]
    return bool(2 * counts[np.array(emptied, np.bool_)].sum() > counts.sum())


def _advise_device(claim: Claim) -> tuple[str, ...]:
    done = f"device memory is allocated and freed {claim.per_step()}"
    if _emptied(claim):
        return (
            f"empty_cache() gives all unused memory back {claim.per_step()}, waits for the GPU, and the next "
            "step takes it again: remove it from the loop; another process that needs the memory is its only "
            "use",
        )
    if not claim.torch:
        return (f"{done}: allocate it once before the loop, or from a pool (cudaMallocAsync)",)
    return (
        f"{done}: keep shapes fixed, keep the caching allocator's blocks (no empty_cache() in the loop), "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or cudaMallocAsync",
    )


DEVICE_MEMORY = register(
    Cause(
        "C20",
        TITLE,
        _device_memory,
        _advise_device,
        calls_go=frozenset({"inside"}),
        titled=lambda claim: EMPTIED if _emptied(claim) else TITLE,
        culprit="inside",
        kind=DiagnosisKind.SYNC,
        family="A",
        rank=60,
    )
)
