"""C14: the CPU quota of the cgroup is used up."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def _throttled(scene: Scene, free: Mask) -> Mask:
    return free & scene.throttled & scene.does(State.BLOCKED)


def _advise_throttled(claim: Claim) -> tuple[str, ...]:
    return (
        "the cgroup's CPU quota runs out (cpu.max; cpu.cfs_quota_us in cgroup v1): raise it, or use "
        f"fewer threads (OMP_NUM_THREADS{', num_workers' if claim.torch else ''}) so that it lasts",
    )


THROTTLE = register(
    Cause(
        "C14",
        "throttled: the CPU quota of the cgroup is used up",
        _throttled,
        _advise_throttled,
        kind=DiagnosisKind.CPU,
        family="P",
        rank=10,
    )
)
