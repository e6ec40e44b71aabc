"""C05: many small copies to the device, or copies of which no loader makes so many."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    read_between,
)
from gputop.explain.causes.forms import MOST_PARTS, pattern_of
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.formwords import advice_of, title_of
from gputop.explain.chains.pytorch import Form, by_loader, form_of_send
from gputop.explain.chains.scene import BIG_COPY, Scene
from gputop.explain.evidence.apiclass import H2D
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints, Mask, distinct
from gputop.explain.evidence.sourcetext import line_numbers
from gputop.format import format_bytes

MANY_COPIES = 20  # a step, of one process


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
    return "small" if claim.sent_bytes < BIG_COPY else "made"


def _advise_tiny(claim: Claim) -> tuple[str, ...]:
    size, times = format_bytes(claim.sent_bytes), claim.per_step(_count(claim))
    return advice_of(_form(claim), size=size, times=times, torch=claim.torch)


TINY_COPIES = register(
    Cause(
        "C05",
        "many small host-to-device copies",
        _tiny_copies,
        _advise_tiny,
        more=_copies,
        culprit="refilled_by",
        calls_go=frozenset({"sends"}),
        short="copy",
        relaunched=True,
        titled=lambda claim: title_of(_form(claim), claim.often(_sent(claim)), torch=claim.torch),
        kind=DiagnosisKind.COPY,
        family="C",
        rank=170,
    )
)
