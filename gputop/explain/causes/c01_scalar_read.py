"""C01: the host reads a scalar, then works while the GPU is idle."""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.drains import (
    read_between,
)
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.reads import advise_read, title_of_read
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import SCALAR_BYTES, Scene
from gputop.explain.evidence.ranges import Mask


def _scalar(scene: Scene, free: Mask) -> Mask:
    size = read_between(scene)[scene.segments.gap]
    return free & own_work(scene) & (size >= 0) & (size <= SCALAR_BYTES)


SCALAR = register(
    Cause(
        "C01",
        "`.item()` every step",
        _scalar,
        advise_read,
        overlaps=True,
        calls_go=frozenset({"reads"}),
        titled=title_of_read,
        kind=DiagnosisKind.SYNC,
        family="S",
        rank=200,
    )
)
