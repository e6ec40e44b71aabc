"""C09: the workers of the loader wait for a CPU."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.loaders import behind_workers, workers_of
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.peers import of_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def _starved(scene: Scene, free: Mask) -> Mask:
    return free & of_loader(scene) & scene.does(State.QUEUED) & ~behind_workers(scene)


def _advise_starved(claim: Claim) -> tuple[str, ...]:
    workers, cpus = workers_of(claim), claim.scene.cpus
    best = max(cpus - 1, 1)
    advice = []
    if workers > best:
        advice.append(f"{workers} workers share {cpus} CPUs with the trainer: num_workers={best}")
    advice.append("keep others off their CPUs (taskset, nice), and torch.set_num_threads(1) in the workers")
    return tuple(advice)


STARVED = register(
    Cause(
        "C09",
        "DataLoader is starved of CPU",
        _starved,
        _advise_starved,
        culprit="end",
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=120,
    )
)
