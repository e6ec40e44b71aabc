"""C10: the workers of the loader wait for the disk."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.peers import of_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _on_disk(scene: Scene, free: Mask) -> Mask:
    return free & of_loader(scene) & scene.waits(Wait.DISK, Wait.READ)


def _advise_disk(_claim: Claim) -> tuple[str, ...]:
    return (
        "the workers wait for the disk: keep the data in memory, read larger pieces, or prefetch more "
        "(prefetch_factor, more workers: they wait, they do not compute)",
    )


ON_DISK = register(
    Cause(
        "C10",
        "DataLoader waits for the disk",
        _on_disk,
        _advise_disk,
        culprit="end",
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=100,
    )
)
