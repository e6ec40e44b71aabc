"""A finding that is no piece of gaps: what the causes of this kind share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import Finding, Level, Link, LossKind, Range
from gputop.explain.causes.cause import Cause
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints

LEAST_SHARE, LEAST_NS = 0.05, 5_000_000  # of the span: an estimate must be larger than a proof
MOMENTS = 3


def assessed(
    scene: Scene,
    cause: Cause,
    *,
    title: str = "",
    level: Level,
    kind: LossKind,
    loss: Range,
    pid: int,
    tid: int,
    api: str,
    chain: Sequence[Link],
    evidence: Sequence[str],
    advice: Sequence[str],
    gain_ns: int,
    moments: Ints,
    count: int,
    line: Line | None,
) -> Finding:
    """The finding; ``moments`` are CLOCK_MONOTONIC, worst first; ``line`` that of its calls.

    ``title`` is that of the cause where it is empty.
    """
    start = int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))
    steps = scene.steps_of(pid)
    middle = int(loss.middle)
    return Finding(
        cause.number,
        kind,
        title or cause.title,
        level,
        loss,
        pid,
        tid,
        api,
        tuple(chain),
        tuple(evidence),
        (),
        tuple(advice),
        gain_ns,
        tuple((np.asarray(moments[:MOMENTS], np.int64) - start).tolist()),
        count,
        middle // steps.count if steps is not None and steps.count else None,
        line,
        level,
        level,
    )


def within(scene: Scene, rows: Ints) -> Ints:
    """The calls that lie in the stretch that is explained."""
    low, high = scene.analysis.gpu.stretch
    calls = scene.evidence.calls
    inside: Ints = rows[(calls["begin"][rows] >= low) & (calls["end"][rows] <= high)]
    return inside
