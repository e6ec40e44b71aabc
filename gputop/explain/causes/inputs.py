"""C05 and C12: input that the CUDA process prepares itself."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.reads import own_work
from gputop.explain.ranges import Mask, distinct
from gputop.explain.scene import BIG_COPY, H2D, SCALAR_BYTES, Scene
from gputop.format import format_bytes

MANY_COPIES = 20  # a step (causes.md C05)


def _small(scene: Scene) -> Mask:
    """Gaps between small copies to the device, where there are many of them a step."""
    facts = scene.gap_facts
    small: Mask = (facts.sent_bytes >= 0) & (facts.sent_bytes < BIG_COPY) & (facts.read_bytes < 0)
    owner = scene.evidence.threads.pid[scene.gaps.thread]
    for pid in np.unique(owner[small]).tolist():
        own = owner == pid
        steps = scene.steps_of(pid)
        units = steps.count if steps is not None else max(int(own.sum()) // (2 * MANY_COPIES), 1)
        if np.count_nonzero(small & own) <= MANY_COPIES * units:
            small &= ~own
    return small


def _tiny_copies(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & _small(scene)[scene.leaves.gap]


def _prepared(scene: Scene, free: Mask) -> Mask:
    facts, gap = scene.gap_facts, scene.leaves.gap
    # a round trip (read, host work, send) is C02, however large what is sent; but nobody makes a batch out
    # of a scalar: after a loss.item() the next input is what the time goes into
    round_trip = facts.read_bytes[gap] > SCALAR_BYTES
    return free & own_work(scene) & (facts.sent_bytes[gap] >= BIG_COPY) & ~round_trip


def _copies(claim: Claim) -> int:
    """Time in the copies between these gaps and in the waits for them, which go when the tensors stay."""
    scene, gaps = claim.scene, claim.scene.gaps
    calls = scene.evidence.calls
    before = np.maximum(gaps.opener[claim.gaps] - 1, 0)
    # only waits right after such a copy: others wait for kernels, too
    after_copy = (calls["direction"][before] == H2D) & (calls["row"][before] == gaps.thread[claim.gaps])
    waits = gaps.opener[claim.gaps][after_copy & (calls["bytes"][before] < BIG_COPY)]
    rows = distinct(np.concatenate([waits, gaps.closer[claim.gaps]]))
    return int((calls["end"][rows] - calls["begin"][rows]).sum())


def _advise_tiny(claim: Claim) -> tuple[str, ...]:
    sizes = claim.scene.gap_facts.sent_bytes[claim.gaps]
    return (
        f"copies of {format_bytes(int(np.median(sizes)))} go to the device {claim.per_step()} "
        "(.to(device) of tensors built on the CPU): create them there (device='cuda' in torch.zeros, "
        "torch.arange, torch.tensor)",
        "or pack them into one pinned tensor and copy that once, with non_blocking=True",
    )


def _advise_prepared(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    size = int(np.median(scene.gap_facts.sent_bytes[claim.gaps]))
    cpus = scene.cpus
    workers = max(cpus - 1, 1)
    helpers = len(scene.helpers())
    first = (
        f"the thread that feeds the GPU prepares each input of {format_bytes(size)} itself, sample by "
        "sample: fetch whole batches (__getitems__, or index the tensor with the batch's indices)"
    )
    if helpers > 0:
        return first, f"{helpers} workers hand over many small objects: let them return one tensor a batch"
    on = f" on {cpus} CPUs" if cpus else ""
    return (
        first,
        f"or give the loader a process of its own: num_workers={workers}{on}, persistent_workers=True",
    )


TINY_COPIES = Cause(
    "C05",
    "many small copies to the device",
    _tiny_copies,
    _advise_tiny,
    more=_copies,
    culprit="closer",
    calls_go=frozenset({"sends"}),
)
PREPARED = Cause(
    "C12", "input is prepared by the thread that feeds the GPU", _prepared, _advise_prepared, culprit="closer"
)
