"""C19: the step waits for the network."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _network(scene: Scene, free: Mask) -> Mask:
    return free & ((scene.own & scene.waits(Wait.SOCKET)) | scene.over_network)


def _advise_network(_claim: Claim) -> tuple[str, ...]:
    return (
        "the step waits for another machine or service: fetch the next answer while the GPU works, ask for "
        "several at once, or keep what does not change",
    )


NETWORK = register(
    Cause(
        "C19",
        "the step waits for the network",
        _network,
        _advise_network,
        culprit="waiter",
        kind=DiagnosisKind.INPUT,
        family="K",
        rank=30,
    )
)
