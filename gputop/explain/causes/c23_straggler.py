"""C23: ranks of a collective that arrive at different times; the early ones wait on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, assessed
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.chaintext import placed, usual_api, usual_line
from gputop.explain.causes.registry import register
from gputop.explain.chains.meetings import FEWEST, Meetings, meetings
from gputop.explain.chains.scene import Scene
from gputop.explain.estimates.whatif import MARGIN
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Ints, intersect, length, subtract, union
from gputop.format import format_ns

LEAST_SHARE = 0.02


USUAL = 0.75  # a rank that is last this often is the straggler


NEAR = 0.9  # of what the hosts say: an estimate that is nearer says the same


def stragglers(scene: Scene, span_ns: int) -> list[Finding]:
    """One finding per job of several ranks on this machine."""
    calls = scene.evidence.calls
    met = meetings(scene)
    if met is None or met.rows.shape[1] < FEWEST:
        return []
    ranks = list(met.rows)
    arrived = calls["begin"][met.rows]
    skew = arrived.max(axis=0) - arrived.min(axis=0)
    last = np.bincount(arrived.argmax(axis=0), minlength=len(ranks))
    late = int(np.argmax(last))
    # several collectives of a step are late by the same time: it counts once
    window = int(arrived.min()), int(arrived.max())
    uses = [_use(scene, rank, *window) for rank in ranks]
    last_of_all = arrived.max(axis=0)
    waits = [
        waited(length(own, last_of_all), use, uses[late]) for own, use in zip(arrived, uses, strict=True)
    ]
    total, sure = max(waits)
    if total < max(LEAST_SHARE * span_ns, LEAST_NS) or last[late] < USUAL * len(skew):
        return []
    return [_finding(scene, met, late, skew, total, int(last[late]), sure=sure)]


@dataclass(frozen=True, slots=True)
class Use:
    """What a rank's GPU did for so many ns as far as one can tell: work that is no collective, nothing."""

    device: int
    work: int
    idle: int


def waited(apart: int, own: Use | None, late: Use | None) -> tuple[int, bool]:
    """(ns, whether that is sure): how long a rank's GPU did nothing but wait for the last one.

    A host may be far ahead of its GPU, which is then still at work when the last rank comes. But all ranks do
    the same work, as far as nothing else is known: by how much longer the last one's GPU was idle, this one's
    was busy with waiting.

    Args:
        apart: For so long it had come to a collective and the last one had not, by their hosts' calls.
        own, late: The use of its GPU and of that of the last rank; None where nobody says.
    """
    if own is None or late is None or own.device == late.device:
        return apart, True
    most = late.idle - own.idle + max(late.work - own.work, 0)
    return (apart, True) if most >= NEAR * apart else (max(most, 0), False)


def _use(scene: Scene, rows: Ints, low: int, high: int) -> Use | None:
    device = _device(scene, rows)
    estimate = next((one for one in scene.analysis.estimates if one.device == device), None)
    if estimate is None:
        return None
    queue, window = estimate.queue, (np.array([low]), np.array([high]))
    end = np.minimum(queue.ends(estimate.duration_ns), queue.limit)
    begin = end - queue.real(estimate.duration_ns).astype(np.int64)
    other = (queue.row >= 0) & (scene.evidence.group_of(np.maximum(queue.row, 0)) != Group.COLLECTIVE)
    mine = scene.gaps.device == device
    idle = union(
        np.append(scene.gaps.begin[mine], estimate.small.begin),
        np.append(scene.gaps.end[mine], estimate.small.end),
    )
    work = subtract(union(begin[other], end[other]), idle)
    return Use(device, length(*intersect(work, window)), length(*intersect(idle, window)))


def _device(scene: Scene, rows: Ints) -> int:
    """The GPU that a rank's collectives are for; -1 where that is not known."""
    streams = scene.analysis.gpu.streams
    found = np.flatnonzero(np.isin(streams.enqueue_row, rows))
    if not len(found):
        pid = int(scene.evidence.calls["pid"][rows[0]]) if len(rows) else -1
        of_pid = np.unique(streams.device[streams.pid == pid])
        return int(of_pid[0]) if len(of_pid) == 1 else -1
    return int(streams.device[streams.enqueue_stream[found[0]]])


def _level(scene: Scene, met: Meetings, skew: Ints) -> Level:
    """Proved where all calls of all ranks were seen; a hint where it is not known which are one collective.

    A hint too where hosts are apart by more than a step: one is ahead of its GPU, nobody says by how much.
    """
    evidence = scene.evidence
    steps = scene.steps_of(int(evidence.calls["pid"][met.rows[0, 0]]))
    if not met.matched or (steps is not None and np.median(skew) > steps.usual_ns):
        return Level.HINT
    pids = set(evidence.calls["pid"][met.rows[:, 0]].tolist())
    whole = pids <= evidence.complete and not evidence.lost_events
    return Level.PROVED if whole else Level.STRONG


def _finding(
    scene: Scene, met: Meetings, late: int, skew: Ints, total: int, times: int, *, sure: bool
) -> Finding:
    calls, ranks = scene.evidence.calls, met.rows
    first = ranks[late, 0]
    pid, tid, api = int(calls["pid"][first]), int(calls["tid"][first]), usual_api(scene, ranks[late])
    order = np.argsort(skew)[::-1]
    where, line = placed(scene, ranks[late]), usual_line(scene, ranks[late])
    return assessed(
        scene,
        STRAGGLER,
        level=_level(scene, met, skew) if sure else Level.STRONG,
        kind="waste",
        loss=Range(total, total),
        pid=pid,
        tid=tid,
        api=api,
        chain=(
            Link("gpu", 0, 0, "the other ranks' GPUs wait inside the collective", total, len(skew)),
            Link(
                "cuda",
                pid,
                tid,
                f"{where}: this rank arrived last {times} of {len(skew)} times",
                total,
                len(skew),
                line,
            ),
        ),
        evidence=(
            f"{len(skew)} collectives of {len(ranks)} ranks, with a median arrival skew of "
            f"{format_ns(float(np.median(skew)))}",
        ),
        advice=(
            "balance the ranks (same batch size and input cost; look at this rank's own findings), or "
            "overlap the collective with work that does not need it",
        ),
        gain_ns=total if sure else int(total * (1 + MARGIN)),
        moments=calls["begin"][ranks[late][order]],
        count=len(skew),
        line=line,
    )


STRAGGLER = register(
    Cause(
        "C23",
        "straggler: one rank is late to the collectives",
        assess=stragglers,
        late_rank=True,
        kind=DiagnosisKind.COMMUNICATION,
    )
)
