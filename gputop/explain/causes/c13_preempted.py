"""C13: the submitting thread is ready to run, and others have its CPU."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import occupants
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def _preempted(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.does(State.QUEUED)


def _advise_preempted(claim: Claim) -> tuple[str, ...]:
    advice = f"{occupants(claim)}keep others off its CPU with taskset or nice"
    if len(claim.scene.helpers()):
        advice += ", or run fewer workers than CPUs (num_workers), with torch.set_num_threads(1) in each"
    return (advice,)


PREEMPTED = register(
    Cause(
        "C13",
        "the submitting thread is starved of CPU",
        _preempted,
        _advise_preempted,
        kind=DiagnosisKind.CPU,
        family="P",
        rank=50,
    )
)
