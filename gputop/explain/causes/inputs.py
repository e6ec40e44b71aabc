"""C05 and C12: input that the CUDA process prepares itself."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import read_between
from gputop.explain.causes.forms import pattern_of
from gputop.explain.causes.otherwork import long_work
from gputop.explain.causes.reads import MOST_PARTS, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.places import line_numbers, sampled
from gputop.explain.chains.pytorch import Form, advice_of, by_loader, by_pytorch, form_of_send, title_of
from gputop.explain.chains.scene import BIG_COPY, SCALAR_BYTES, Scene
from gputop.explain.evidence.apiclass import H2D
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints, Mask, distinct
from gputop.format import format_bytes

MANY_COPIES = 20  # a step, of one process
LOADER_ALONE = "_SingleProcessDataLoaderIter"  # PyTorch's loader with num_workers=0, as its profiler names it
FETCHES_BATCH = "__getitems__"  # of a dataset: a batch by its indices
FEW_SAMPLES = 5  # fewer samples may all have missed the loader


def _made(scene: Scene) -> Mask:
    """Gaps before copies to the device of which there are so many a step that no loader made them.

    A batch goes to the device once a step, in a few parts. Small copies are many by themselves, others by
    the line that makes them: twenty of a process may be those of several batches.
    """
    facts, gaps = scene.gap_facts, scene.gaps
    sent: Mask = (facts.sent_bytes >= 0) & (read_between(scene) < 0)
    small = sent & (facts.sent_bytes < BIG_COPY)
    made = np.zeros(len(gaps), np.bool_)
    owner = scene.evidence.threads.pid[gaps.thread]
    stacks = scene.evidence.calls["stack"]
    for pid in np.unique(owner[sent]).tolist():
        own = owner == pid
        steps = scene.steps_of(pid)
        units = steps.count if steps is not None else max(int(own.sum()) // (2 * MANY_COPIES), 1)
        if np.count_nonzero(small & own) > MANY_COPIES * units:
            made |= small & own
        rows = np.flatnonzero(sent & own & ~made)
        if steps is None or len(rows) <= MOST_PARTS * units:
            continue
        of_each = stacks[gaps.refilled_by[rows]]
        line = line_numbers(scene.evidence, of_each)
        loads = np.isin(of_each, _in_loaders(scene, of_each))
        often = np.bincount(line[line >= 0], minlength=1) > MOST_PARTS * units
        made[rows[(line >= 0) & often[line] & ~loads]] = True
    return made


def _in_loaders(scene: Scene, stacks: Column) -> Column:
    """The stacks that are within PyTorch's DataLoader."""
    frames = scene.evidence.facts.stacks.frames
    numbers = np.unique(stacks)
    within = [by_loader(frozenset(frame.file for frame in frames(stack))) for stack in numbers.tolist()]
    return numbers[np.array(within, np.bool_)]


def _tiny_copies(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & _made(scene)[scene.segments.gap]


def _prepared(scene: Scene, free: Mask) -> Mask:
    facts, gap = scene.gap_facts, scene.segments.gap
    # a round trip (read, host work, send) is C02, however large what is sent; but nobody makes a batch out
    # of a scalar: after a loss.item() the next input is what the time goes into
    round_trip = read_between(scene)[gap] > SCALAR_BYTES
    prepares = own_work(scene) | (scene.unrecorded & scene.within(LOADER_ALONE))
    # a small one is an input where making it takes long: the tokens of a text, what an environment shows
    input_ = (facts.sent_bytes >= BIG_COPY) | ((facts.sent_bytes > SCALAR_BYTES) & long_work(scene))
    return free & prepares & input_[gap] & ~round_trip


def _copies(claim: Claim) -> int:
    """Time in the copies between these gaps and in the waits for them, which go when the tensors stay."""
    scene, gaps = claim.scene, claim.scene.gaps
    calls = scene.evidence.calls
    before = np.maximum(gaps.drained_by[claim.gaps] - 1, 0)
    # only waits right after such a copy: others wait for kernels, too
    after_copy = (calls["direction"][before] == H2D) & (calls["row"][before] == gaps.thread[claim.gaps])
    waits = gaps.drained_by[claim.gaps][after_copy]
    rows = distinct(np.concatenate([waits, gaps.refilled_by[claim.gaps]]))
    return int((calls["end"][rows] - calls["begin"][rows]).sum())


def _size(claim: Claim) -> int:
    return int(np.median(claim.scene.gap_facts.sent_bytes[claim.gaps]))


def _count(claim: Claim) -> int:
    """How many copies: between two of them there may be a proved gap and an estimated one."""
    return len(_sent(claim))


def _sent(claim: Claim) -> Ints:
    """The copies."""
    return distinct(claim.scene.gaps.refilled_by[claim.gaps])


def _form(claim: Claim) -> Form:
    """Small ones are many whoever makes them; large ones, and indices, are told by what makes them."""
    refilled_by = claim.scene.gaps.refilled_by[claim.gaps]
    form = form_of_send(pattern_of(claim, refilled_by, refilled_by))
    if form == "index":
        return form
    return "small" if _size(claim) < BIG_COPY else "made"


def _advise_tiny(claim: Claim) -> tuple[str, ...]:
    return advice_of(_form(claim), size=format_bytes(_size(claim)), times=claim.per_step(_count(claim)))


def _advise_prepared(claim: Claim) -> tuple[str, ...]:
    scene = claim.scene
    size = _size(claim)
    cpus = scene.cpus
    workers = max(cpus - 1, 1)
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
TINY_COPIES = register(
    Cause(
        "C05",
        "many small host-to-device copies",
        _tiny_copies,
        _advise_tiny,
        more=_copies,
        culprit="refilled_by",
        calls_go=frozenset({"sends"}),
        titled=lambda claim: title_of(_form(claim), claim.often(_sent(claim))),
        family="C",
        rank=170,
    )
)
PREPARED = register(
    Cause(
        "C12",
        "input prepared on the main thread (`num_workers=0`)",
        _prepared,
        _advise_prepared,
        culprit="refilled_by",
        titled=_title_of_prepared,
        family="D",
        rank=190,
    )
)
