"""When each rank of a job on this machine comes to its collectives, and what it costs that one is late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.explain.answer.ranktimes import RankReport, RankTimes, in_order
from gputop.explain.answer.report import Finding
from gputop.explain.causes import CAUSES
from gputop.explain.chains.meetings import FEWEST, meetings
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints

LATE = frozenset(cause.number for cause in CAUSES if cause.late_rank)


def ranks_of(scene: Scene, pids: frozenset[int] | None = None) -> RankReport | None:
    """The ranks; None where there are none, or where it is not known which of their calls are one."""
    met = meetings(scene)
    if met is None or not met.matched or met.rows.shape[1] < FEWEST:
        return None
    calls = scene.evidence.calls
    arrived = calls["begin"][met.rows]
    first, last = arrived.min(axis=0), arrived.max(axis=0)
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(arrived))
    return RankReport(
        in_order(
            RankTimes(
                int(calls["pid"][own[0]]),
                int(calls["tid"][own[0]]),
                _gpu(scene, own),
                len(own),
                int(times),
                int((came - first).sum()),
                int((last - came).sum()),
            )
            for own, came, times in zip(met.rows, arrived, times_last, strict=True)
        )
    ).of(pids)


def _gpu(scene: Scene, rows: Ints) -> str:
    """The label of the GPU that these collectives are for; "" where they are for several or nobody knows."""
    gpu = scene.analysis.gpu
    found = np.unique(gpu.streams.device[gpu.streams.enqueue_stream[np.isin(gpu.streams.enqueue_row, rows)]])
    device = int(found[0]) if len(found) == 1 else -1
    return gpu.devices.labels[device] if 0 <= device < len(gpu.devices.labels) else ""


def of_lateness(findings: Sequence[Finding]) -> list[float]:
    """ns by which each finding weighs more or less than its own loss.

    While the others wait for a rank, its own GPU is idle as a rule: that is what makes it late. So this time
    counts for the straggler, whose finding says what it costs the whole job, and not once more beside it.
    """
    moved = [0.0] * len(findings)
    for place, straggler in enumerate(findings):
        left = straggler.loss.middle if straggler.cause in LATE else 0.0
        for other, finding in enumerate(findings):
            if finding.pid == straggler.pid and finding.kind == "idle" and left > 0:
                taken = min(finding.loss.middle, left)
                moved[other] -= taken
                moved[place] += taken
                left -= taken
    return moved
