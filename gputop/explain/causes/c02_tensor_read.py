"""C02: the host reads a tensor back, then works while the GPU is idle."""

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


def _tensor(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & (read_between(scene)[scene.segments.gap] > SCALAR_BYTES)


TENSOR = register(
    Cause(
        "C02",
        "device-to-host read every step (`.cpu()`, `.numpy()`)",
        _tensor,
        advise_read,
        calls_go=frozenset({"reads", "sends"}),
        titled=title_of_read,
        kind=DiagnosisKind.SYNC,
        family="S",
        rank=210,
    )
)
