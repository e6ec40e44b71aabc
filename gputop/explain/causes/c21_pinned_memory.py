"""C21: the GPU is idle while the host page-locks memory."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.own_work import in_own_call
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask


def _host_memory(scene: Scene, free: Mask) -> Mask:
    return free & in_own_call(scene, Group.HOST)


def _advise_host(claim: Claim) -> tuple[str, ...]:
    how = " (pin_memory=True with persistent_workers=True)" if claim.torch else ""
    return (
        f"host memory is page-locked {claim.per_step()}, which takes a lock of the driver: allocate pinned "
        f"buffers once and reuse them{how}",
    )


HOST_MEMORY = register(
    Cause(
        "C21",
        "host memory pinned in the loop",
        _host_memory,
        _advise_host,
        culprit="inside",
        kind=DiagnosisKind.SYNC,
        family="A",
        rank=70,
    )
)
