"""C12: the submitting thread prepares the input itself."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    read_between,
)
from gputop.explain.causes.own_work import long_work, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.places import sampled
from gputop.explain.chains.pytorch import by_loader, by_pytorch
from gputop.explain.chains.scene import BIG_COPY, SCALAR_BYTES, Scene
from gputop.explain.evidence.ranges import Mask
from gputop.format import format_bytes

LOADER_ALONE = "_SingleProcessDataLoaderIter"  # PyTorch's loader with num_workers=0, as its profiler names it


FETCHES_BATCH = "__getitems__"  # of a dataset: a batch by its indices


FEW_SAMPLES = 5  # fewer samples may all have missed the loader


def _prepared(scene: Scene, free: Mask) -> Mask:
    facts, gap = scene.gap_facts, scene.segments.gap
    # a round trip (read, host work, send) is C02, however large what is sent; but nobody makes a batch out
    # of a scalar: after a loss.item() the next input is what the time goes into
    round_trip = read_between(scene)[gap] > SCALAR_BYTES
    prepares = own_work(scene) | (scene.unrecorded & scene.within(LOADER_ALONE))
    # a small one is an input where making it takes long: the tokens of a text, what an environment shows
    input_ = (facts.sent_bytes >= BIG_COPY) | ((facts.sent_bytes > SCALAR_BYTES) & long_work(scene))
    return free & prepares & input_[gap] & ~round_trip


def _advise_prepared(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    size = claim.sent_bytes
    cpus = scene.cpus
    workers = max(cpus - 1, 1)
    if scene.analysis.traced is not None:  # what is sent first may be anything
        return ("prepare the next input in another process meanwhile: DataLoader with num_workers=1 or more",)
    helpers = len(scene.helpers())
    on = f" on {cpus} CPUs" if cpus else ""
    if not helpers and _without_loader(claim):
        return (
            f"the submitting thread prepares each input of {format_bytes(size)} itself, and the GPU waits: "
            "let a process of its own prepare the next one meanwhile (DataLoader with "
            f"num_workers={workers}{on})",
        )
    if not helpers and _by_batch(claim):
        return (
            f"the submitting thread prepares each input of {format_bytes(size)} itself, and the GPU waits: "
            "prepare the next batch in a worker process "
            f"(num_workers={workers}{on}, persistent_workers=True)",
        )
    first = (
        f"the submitting thread prepares each input of {format_bytes(size)} itself, sample by "
        "sample: fetch whole batches (__getitems__, or index the tensor with the batch's indices)"
    )
    if helpers > 0:
        return first, f"{helpers} workers hand over many small objects: let them return one tensor a batch"
    return (
        first,
        f"or give the loader a process of its own: num_workers={workers}{on}, persistent_workers=True",
    )


def _by_batch(claim: Claim) -> bool:
    """Whether the dataset fetches whole batches already; that of PyTorch's ``Subset`` may only loop."""
    stacks = claim.scene.evidence.facts.stacks
    return any(
        frame.function.endswith(FETCHES_BATCH) and not by_loader(frozenset((frame.file,)))
        for stack, _count in sampled(claim.scene, np.flatnonzero(claim.segments))
        for frame in stacks.frames(stack)
    )


def _without_loader(claim: Claim) -> bool:
    """Whether a program with PyTorch was met at this work, and never within PyTorch's DataLoader."""
    stacks = claim.scene.evidence.facts.stacks
    met = sampled(claim.scene, np.flatnonzero(claim.segments))
    if sum(count for _stack, count in met) < FEW_SAMPLES:
        return False
    if any(by_loader(frozenset(frame.file for frame in stacks.frames(stack))) for stack, _count in met):
        return False
    calls = claim.scene.evidence.calls
    seen = np.unique(calls["stack"][calls["pid"] == claim.pid]).tolist()
    return any(by_pytorch(frozenset(frame.file for frame in stacks.frames(stack))) for stack in seen)


def _title_of_prepared(claim: Claim) -> str:
    if len(claim.scene.helpers()):
        return WITH_WORKERS
    return WITHOUT_LOADER if _without_loader(claim) else PREPARED.title


WITH_WORKERS = "input unpacked on the main thread"


WITHOUT_LOADER = "input prepared on the main thread"


PREPARED = register(
    Cause(
        "C12",
        "input prepared on the main thread (`num_workers=0`)",
        _prepared,
        _advise_prepared,
        culprit="refilled_by",
        titled=_title_of_prepared,
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=190,
    )
)
