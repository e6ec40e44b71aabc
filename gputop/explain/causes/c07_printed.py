"""C07: a tensor is printed, or read element by element."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim, bursts
from gputop.explain.causes.drains import (
    MANY_READS,
)
from gputop.explain.causes.forms import title_for
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.reads import form_of_claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.formwords import advice_of
from gputop.explain.chains.pytorch import Form, Pattern, form_of_read
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, Mask

PRINT_BYTES = 8  # the formatter of a tensor's repr reads element by element


PRINT_READS = 50  # at least this many within PRINT_NS (docs/causes/C07.md); a step's own are a handful


PRINT_NS = 50_000_000


def _prints(scene: Scene, free: Mask) -> Mask:
    facts = scene.gap_facts
    tiny = np.flatnonzero((facts.read_bytes >= 0) & (facts.read_bytes <= PRINT_BYTES))
    if not len(scene.gaps):
        return scene.mask()
    in_burst = np.zeros(len(scene.gaps) + 1, np.bool_)
    in_burst[tiny] = bursts(scene.gaps.begin[tiny], PRINT_READS, PRINT_NS) & _many_a_step(scene, tiny)
    return free & own_work(scene) & (in_burst[:-1] | _formatted(scene))[scene.segments.gap]


def _many_a_step(scene: Scene, reads: Ints) -> Mask:
    """Reads of which there are many in few steps: of short steps a burst may be one read of each."""
    many = np.ones(len(reads), np.bool_)
    owner = scene.evidence.threads.pid[scene.gaps.thread[reads]]
    for pid in np.unique(owner).tolist():
        steps = scene.steps_of(pid)
        if steps is not None and steps.count:
            own = np.flatnonzero(owner == pid)
            step = np.searchsorted(steps.begin, scene.gaps.begin[reads[own]], side="right")
            many[own] = bursts(step, PRINT_READS, PRINT_READS // MANY_READS)
    return many


def _formatted(scene: Scene) -> Mask:
    """Gaps whose read was made by PyTorch's formatter of tensors, as the Python stack tells."""
    row = scene.gap_facts.read_row
    of_each = np.where(row >= 0, scene.evidence.calls["stack"][np.maximum(row, 0)], 0)
    if not of_each.any():  # of millions of gaps without lines none has to be sorted
        return np.zeros(len(row), np.bool_)
    stacks, which = np.unique(of_each, return_inverse=True)
    frames = scene.evidence.facts.stacks.frames
    known = [
        form_of_read(Pattern(files=frozenset(frame.file for frame in frames(stack)))) == "print"
        for stack in stacks.tolist()
    ]
    formatted: Mask = np.array(known, np.bool_)[which.reshape(-1)] & (row >= 0)
    return formatted


def _title_of_print(claim: Claim) -> str:
    form, pattern = form_of_claim(claim)
    return title_for(claim, form, pattern) if form == "print" else title_for(claim, "elements", pattern)


def _advise_print(claim: Claim) -> tuple[str, ...]:
    form: Form = "print" if form_of_claim(claim)[0] == "print" else "elements"
    return advice_of(form, size="", times=claim.per_step(), torch=claim.torch)


PRINTS = register(
    Cause(
        "C07",
        "tensor printed or read element by element",
        _prints,
        _advise_print,
        calls_go=frozenset({"reads"}),
        titled=_title_of_print,
        kind=DiagnosisKind.SYNC,
        family="S",
        rank=160,
    )
)
