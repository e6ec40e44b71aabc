"""C22: the GPU is idle while the host builds graphs or loads code."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.own_work import in_own_call
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Mask


def _graphs(scene: Scene, free: Mask) -> Mask:
    return free & in_own_call(scene, Group.GRAPH, Group.MODULE)


def _advise_graphs(claim: Claim) -> tuple[str, ...]:
    return (
        f"a graph is built or code is loaded {claim.per_step()}: keep shapes fixed or compile with "
        "dynamic=True, capture once and replay, warm up before the loop",
    )


GRAPHS = register(
    Cause(
        "C22",
        "CUDA graphs built or code loaded in the loop",
        _graphs,
        _advise_graphs,
        culprit="inside",
        kind=DiagnosisKind.LAUNCH,
        family="A",
        rank=80,
    )
)
