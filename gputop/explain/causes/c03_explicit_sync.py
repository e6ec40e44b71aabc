"""C03: the host waits for the GPU by an explicit call, then works while it is idle."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    Drain,
    drained,
)
from gputop.explain.causes.forms import advice_for, pattern_of, title_for
from gputop.explain.causes.own_work import not_waited, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.pytorch import (
    Form,
    Pattern,
    form_of_sync,
)
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def _explicit(scene: Scene, free: Mask) -> Mask:
    waited = scene.estimated | ~not_waited(scene)[scene.segments.gap]
    explicit: Mask = (drained(scene) == Drain.EXPLICIT)[scene.segments.gap]
    return free & own_work(scene) & waited & explicit


def _sync(claim: Claim) -> tuple[Form, Pattern]:
    gaps = claim.scene.gaps
    waits = np.where(gaps.estimated[claim.gaps], -1, gaps.drained_by[claim.gaps])
    pattern = pattern_of(claim, waits, np.full(len(waits), -1))
    return form_of_sync(pattern), pattern


EXPLICIT = register(
    Cause(
        "C03",
        "explicit synchronisation every step",
        _explicit,
        lambda claim: advice_for(claim, *_sync(claim)),
        overlaps=True,
        between=False,  # who waits to time layers still runs them
        calls_go=frozenset({"reads"}),
        titled=lambda claim: title_for(claim, *_sync(claim)),
        kind=DiagnosisKind.SYNC,
        family="S",
        rank=230,
    )
)
