"""C28: between two launches the submitting thread does a millisecond and more of other work.

No launch takes that long, and no wait for the GPU made it so: one before it, if there was one, was short.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import (
    read_between,
    source_of,
)
from gputop.explain.causes.own_work import long_work, not_waited, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import BIG_COPY, SCALAR_BYTES, Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.format import format_bytes, format_ns

_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH, Group.COLLECTIVE)


OUTWAITS = 4  # times as long as the wait before it: without the wait, a fifth of the time is won at most


def _other_work(scene: Scene, free: Mask) -> Mask:
    """Long work that no wait explains; what comes back from the device may be what the work is on."""
    source = source_of(scene)
    works = scene.gap_ns(own_work(scene))
    alone = (source < 0) | not_waited(scene) | (works >= OUTWAITS * _waited(scene, source))
    alone &= (source < 0) | (source == np.arange(len(source)))  # within a loop of reads it is theirs
    alone |= scene.gap_facts.sent_bytes >= BIG_COPY  # it makes what it sends, and not of a scalar alone
    alone &= long_work(scene) & (read_between(scene) <= SCALAR_BYTES)
    return free & own_work(scene) & alone[scene.segments.gap]


def _waited(scene: Scene, source: Ints) -> Ints:
    """How long the thread had waited, since it last gave work, when the queue was drained before each gap.

    Of a wait that polls, and of a thread that only waits, that is not known, and counts as long.
    """
    calls = scene.evidence.calls
    if not len(calls):
        return np.zeros(len(source), np.int64)
    groups = scene.evidence.group(calls)
    waits = np.isin(groups, [int(group) for group in (Group.SYNC, Group.COPY)])
    total = np.cumsum(np.where(waits, calls["end"] - calls["begin"], 0))
    gives = np.isin(groups, [int(group) for group in _GIVING])
    gave = np.maximum.accumulate(np.where(gives, np.arange(len(calls)), -1))
    wait = np.maximum(scene.gaps.drained_by[np.maximum(source, 0)], 0)
    since = np.maximum(gave[wait], 0)
    known = (gave[wait] >= 0) & (calls["row"][since] == calls["row"][wait]) & (groups[wait] != Group.QUERY)
    return np.where(known, total[wait] - total[since], np.iinfo(np.int64).max // OUTWAITS)


def _title(claim: Claim) -> str:
    sent = claim.sent_bytes
    if sent < BIG_COPY:
        return OTHER_WORK.title
    return f"the submitting thread works on the host before each copy of {format_bytes(sent)} to the GPU"


def _advise(claim: Claim) -> tuple[str, ...]:
    usual = float(np.median(claim.scene.gap_ns(claim.segments)[claim.gaps]))
    if claim.sent_bytes >= BIG_COPY:
        return (
            f"{format_ns(usual)} of host work come before each copy: if it does not depend on what the GPU "
            "has just computed, let a worker process prepare it while the GPU works on the step before",
            "else do that work on the GPU, or make it faster",
        )
    return (
        f"the submitting thread does {format_ns(usual)} of other work between two launches: move it to "
        "another process, do it less often, or do it after the launches of the next step",
    )


OTHER_WORK = register(
    Cause(
        "C28",
        "the submitting thread does other work between launches",
        _other_work,
        _advise,
        culprit="refilled_by",
        titled=_title,
        # what is long once in such a loop is no recurring stall
        beside=frozenset({"C01", "C03", "C06", "C27"}),
        kind=DiagnosisKind.HOST,
        family="H",
        rank=195,
    )
)
