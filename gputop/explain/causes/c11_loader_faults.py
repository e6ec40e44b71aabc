"""C11: the workers of the loader stall on page faults."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.peers import of_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _faults(scene: Scene, free: Mask) -> Mask:
    return free & of_loader(scene) & (scene.waits(Wait.FAULT, Wait.MEMORY) | scene.faulting())


def _fault_level(claim: Claim) -> Level:
    """What slept for a page is proved; which part of the CPU time faults took is an estimate."""
    asleep = int(claim.scene.ns[claim.segments & claim.scene.does(State.BLOCKED)].sum())
    return Level.PROVED if asleep >= 0.9 * claim.ns else Level.STRONG


def _advise_faults(_claim: Claim) -> tuple[str, ...]:
    return (
        "the workers touch fresh memory for each batch: reuse its buffers, persistent_workers=True, or "
        "transparent huge pages; files that are mapped: read them once before, or keep them in memory",
    )


FAULTS = register(
    Cause(
        "C11",
        "DataLoader stalls on page faults",
        _faults,
        _advise_faults,
        _fault_level,
        culprit="end",
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=110,
    )
)
