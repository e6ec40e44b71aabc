"""C12: the submitting thread prepares the input itself."""

from __future__ import annotations

import re

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    read_between,
)
from gputop.explain.causes.own_work import long_work, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.births import most_at_a_time
from gputop.explain.chains.peers import loader_helpers
from gputop.explain.chains.places import sampled
from gputop.explain.chains.pytorch import by_loader
from gputop.explain.chains.scene import BIG_COPY, SCALAR_BYTES, Scene
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.format import format_bytes

FEW_SAMPLES = 5  # fewer samples may all have missed the loader
LOADER_ALONE = "_SingleProcessDataLoaderIter"  # PyTorch's loader with num_workers=0, as its profiler names it


FETCHES_BATCH = "__getitems__"  # of a dataset: a batch by its indices
# code that makes inputs, by the names that PyTorch's protocol gives it; of Python 3.10 without the class
DATASET = re.compile(r"(?:^|dataset\w*\.)__getitems?__$|(?:^|[._])collate(?:_fn)?$", re.IGNORECASE)


def _prepared(scene: Scene, free: Mask) -> Mask:
    facts, gap = scene.gap_facts, scene.segments.gap
    # a round trip (read, host work, send) is C02, however large what is sent; but nobody makes a batch out
    # of a scalar: after a loss.item() the next input is what the time goes into
    round_trip = read_between(scene)[gap] > SCALAR_BYTES
    prepares = own_work(scene) | (scene.unrecorded & scene.within(LOADER_ALONE))
    # a small one is an input where making it takes long: the tokens of a text, what an environment shows
    input_ = (facts.sent_bytes >= BIG_COPY) | ((facts.sent_bytes > SCALAR_BYTES) & long_work(scene))
    # what was read back may be what the host works on: without a loader nothing says that it is an input
    alone = read_between(scene) < 0
    for pid in np.unique(scene.pid[prepares & input_[gap]]).tolist():
        if _in_loader(scene, np.flatnonzero(prepares & input_[gap] & (scene.pid == pid))):
            alone |= scene.evidence.threads.pid[scene.gaps.thread] == pid
    alone = alone[gap] | (scene.unrecorded & scene.within(LOADER_ALONE))
    return free & prepares & input_[gap] & alone & ~round_trip


def _in_loader(scene: Scene, rows: Ints) -> bool:
    """Whether the threads of these segments were mostly met within PyTorch's DataLoader, or in a dataset."""
    stacks = scene.evidence.facts.stacks
    met = sampled(scene, rows)
    inside = [one for one in met if any(_loads(frame) for frame in stacks.frames(one[0]))]
    return 2 * sum(count for _stack, count in inside) > sum(count for _stack, count in met) > 0


def _loads(frame: Line) -> bool:
    return by_loader(frozenset((frame.file,))) or DATASET.search(frame.function) is not None


def _advise_prepared(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    cpus = scene.cpus
    if scene.analysis.traced is not None:  # what is sent first may be anything
        return ("prepare the next input in another process meanwhile: DataLoader with num_workers=1 or more",)
    on = f" on {cpus} CPUs" if cpus else ""
    workers = f"num_workers={max(cpus - 1, 1)}{on}, persistent_workers=True"
    prepares = f"the submitting thread prepares each input of {format_bytes(claim.sent_bytes)} itself"
    whole = f"{prepares}, sample by sample: fetch whole batches"
    apart = "prepare the next one in another process"
    if not claim.torch:
        if _by_sample(claim):
            return whole, f"or {apart}"
        return (f"{prepares}, and the GPU waits: {apart}",)
    helpers = most_at_a_time(scene, loader_helpers(scene))
    if not helpers and not _in_pytorch_loader(claim):
        return (
            f"{prepares}, and the GPU waits: let a process of its own prepare the next one meanwhile "
            f"(DataLoader with {workers})",
        )
    if not helpers and _by_batch(claim):
        return (f"{prepares}, and the GPU waits: prepare the next batch in a worker process ({workers})",)
    first = f"{whole} (__getitems__, or index the tensor with the batch's indices)"
    if helpers > 0:
        return first, f"{helpers} workers hand over many small objects: let them return one tensor a batch"
    return first, f"or give the loader a process of its own: {workers}"


def _by_sample(claim: Claim) -> bool:
    """Whether a dataset is asked for one sample after the other."""
    stacks = claim.scene.evidence.facts.stacks
    met = sampled(claim.scene, np.flatnonzero(claim.segments))
    frames = [frame for stack, _count in met for frame in stacks.frames(stack)]
    return any(frame.function.endswith("__getitem__") for frame in frames) and not _by_batch(claim)


def _by_batch(claim: Claim) -> bool:
    """Whether the dataset fetches whole batches already; that of PyTorch's ``Subset`` may only loop."""
    stacks = claim.scene.evidence.facts.stacks
    return any(
        frame.function.endswith(FETCHES_BATCH) and not by_loader(frozenset((frame.file,)))
        for stack, _count in sampled(claim.scene, np.flatnonzero(claim.segments))
        for frame in stacks.frames(stack)
    )


def _in_pytorch_loader(claim: Claim) -> bool:
    """Whether PyTorch's DataLoader is on a stack of this work, or too few are known to tell."""
    stacks = claim.scene.evidence.facts.stacks
    met = sampled(claim.scene, np.flatnonzero(claim.segments))
    if sum(count for _stack, count in met) < FEW_SAMPLES:
        return bool((claim.segments & claim.scene.within(LOADER_ALONE)).any())
    return any(by_loader(frozenset(frame.file for frame in stacks.frames(stack))) for stack, _count in met)


def _title_of_prepared(claim: Claim) -> str:
    if len(loader_helpers(claim.scene)):
        return WITH_WORKERS
    return WITHOUT_WORKERS if _in_pytorch_loader(claim) else PREPARED.title


WITH_WORKERS = "input unpacked on the main thread"
WITHOUT_WORKERS = "input prepared on the main thread (`num_workers=0`)"


PREPARED = register(
    Cause(
        "C12",
        "input prepared on the main thread",
        _prepared,
        _advise_prepared,
        culprit="refilled_by",
        titled=_title_of_prepared,
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=190,
    )
)
