"""C13, C14, C16: the submitting thread has work to give, but does not get to it."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.lineage import in_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait


def _throttled(scene: Scene, free: Mask) -> Mask:
    return free & scene.throttled & scene.does(State.BLOCKED)


def _preempted(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.does(State.QUEUED)


def _lock(scene: Scene, free: Mask) -> Mask:
    by_lock: Mask = scene.via == Wait.LOCK
    by_lock &= ~in_loader(scene)  # a queue that the loader's own thread fills is its loader, not its lock
    return free & ~scene.own & scene.same_process & by_lock & scene.does(State.RUN, State.QUEUED)


def _advise_throttled(claim: Claim) -> tuple[str, ...]:
    return (
        "the control group's CPU quota runs out (cpu.max; cpu.cfs_quota_us in version 1): raise it, or use "
        "fewer threads (OMP_NUM_THREADS, num_workers) so that it lasts",
    )


def _advise_preempted(claim: Claim) -> tuple[str, ...]:
    advice = f"{occupants(claim)}keep others off its CPU with taskset or nice"
    if len(claim.scene.helpers()):
        advice += ", or run fewer workers than CPUs (num_workers), with torch.set_num_threads(1) in each"
    return (advice,)


def _advise_lock(_claim: Claim) -> tuple[str, ...]:
    return (
        "another thread of the process holds a lock (in Python: the GIL): move that work to a process, or "
        "into code that releases it",
    )


def occupants(claim: Claim) -> str:
    """Who ran while the thread of a claim waited for a CPU, in words that an advice begins with."""
    shares = claim.scene.occupants(claim.segments)
    named = [f"{name} for {share:.0%} of that time" for name, share in shares[:2]]
    return f"preempted by {', '.join(named)}: " if named else ""


THROTTLE = register(
    Cause(
        "C14",
        "throttled: the CPU quota of the cgroup is used up",
        _throttled,
        _advise_throttled,
        family="P",
        rank=10,
    )
)
PREEMPTED = register(
    Cause(
        "C13",
        "the submitting thread is starved of CPU",
        _preempted,
        _advise_preempted,
        family="P",
        rank=50,
    )
)
LOCK = register(
    Cause(
        "C16",
        "lock held by another thread (in Python: the GIL)",
        _lock,
        _advise_lock,
        culprit="waiter",
        family="L",
        rank=90,
    )
)
