"""C13: the submitting thread is ready to run, and others have its CPU."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import occupants
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.peers import loader_helpers
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask

MOSTLY = 0.5  # of the time, for those who had the CPU to be named


def _preempted(scene: Scene, free: Mask) -> Mask:
    return free & scene.own & scene.does(State.QUEUED)


def own_threads(claim: Claim) -> tuple[int, str] | None:
    """(how many threads of its own process had its CPU, the one that had it longest), if these mostly did."""
    scene = claim.scene
    shares = scene.thread_shares(claim.segments)
    own = {tid: part for (pid, tid), part in shares.items() if pid == claim.pid}
    if sum(own.values()) <= MOSTLY * sum(shares.values()):
        return None
    most = max(own, key=lambda tid: own[tid])
    return len(own), f"{scene.evidence.facts.thread_name(most)} ({most})"


def _title(claim: Claim) -> str:
    own = own_threads(claim)
    if own is None:
        return PREEMPTED.title
    count, most = own
    cpus = f" on {claim.scene.cpus} CPUs" if claim.scene.cpus else ""
    if count == 1:
        return f"thread {most} of its own process takes the submitting thread's CPU"
    return f"{count} threads of its own process{cpus} take the submitting thread's CPU, most {most}"


def _advise_preempted(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    if own_threads(claim) is not None:
        return (
            "its process has more threads that want a CPU than it has CPUs: a smaller pool (OMP_NUM_THREADS"
            f"{', torch.set_num_threads' if claim.torch else ''}, fewer threads), more CPUs, "
            "or that work in a process with CPUs of its own",
        )
    advice = f"{occupants(claim)}keep others off its CPU with taskset or nice"
    if len(loader_helpers(scene)):
        advice += ", or run fewer workers than CPUs (num_workers), with torch.set_num_threads(1) in each"
    return (advice,)


PREEMPTED = register(
    Cause(
        "C13",
        "the submitting thread is starved of CPU",
        _preempted,
        _advise_preempted,
        titled=_title,
        kind=DiagnosisKind.CPU,
        family="P",
        rank=50,
    )
)
