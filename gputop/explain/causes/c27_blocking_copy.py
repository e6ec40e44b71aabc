"""C27: a blocking copy to the device drains the queue, and the host works while the GPU is idle."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    Drain,
    drained,
)
from gputop.explain.causes.forms import MOST_PARTS, advice_for, pattern_of, title_for
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.pytorch import (
    Form,
    Pattern,
    form_of_send,
)
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def _blocking(scene: Scene, free: Mask) -> Mask:
    moved: Mask = (drained(scene) == Drain.MOVED)[scene.segments.gap]
    return free & own_work(scene) & moved


def _send(claim: Claim) -> tuple[Form, Pattern]:
    row = claim.scene.gap_facts.moved_row[claim.gaps]
    pattern = pattern_of(claim, row, row)
    form = form_of_send(pattern)
    often = (claim.times_of(pattern.count) or 0) > MOST_PARTS
    return ("moved" if form == "batch" and often else form), pattern


BLOCKING = register(
    Cause(
        "C27",
        "blocking host-to-device copy every step (`.to(device)`, `.cuda()`)",
        _blocking,
        lambda claim: advice_for(claim, *_send(claim)),
        overlaps=True,
        calls_go=frozenset({"reads"}),
        titled=lambda claim: title_for(claim, *_send(claim)),
        kind=DiagnosisKind.COPY,
        family="C",
        rank=220,
    )
)
