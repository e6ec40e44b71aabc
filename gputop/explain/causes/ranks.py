"""C23: ranks of a collective that arrive at different times; the early ones wait on the GPU."""

from __future__ import annotations

import numpy as np

from gputop.explain.apiclass import Group
from gputop.explain.causes.assessment import LEAST_NS, assessed, within
from gputop.explain.causes.cause import Level
from gputop.explain.chaintext import placed, usual_api, usual_line
from gputop.explain.ranges import Ints, length
from gputop.explain.report import Finding, Link, Range
from gputop.explain.scene import Scene
from gputop.format import format_ns

LEAST_SHARE = 0.02
USUAL = 0.75  # a rank that is last this often is the straggler
ALIKE = 0.9  # two processes whose collectives agree this far are ranks of one job


def stragglers(scene: Scene, span_ns: int) -> list[Finding]:
    """One finding per job of several ranks on this machine."""
    evidence = scene.evidence
    calls = evidence.calls
    chosen = (evidence.group(calls) == Group.COLLECTIVE) & (calls["ret"] == 0)
    chosen &= ~evidence.apis.is_op(calls["op"], "GroupStart", "GroupEnd")
    rows = within(scene, np.flatnonzero(chosen))
    ranks = _ranks(scene, rows)
    if len(ranks) < 2:
        return []
    count = min(len(rank) for rank in ranks)
    arrived = np.stack([calls["begin"][rank[:count]] for rank in ranks])
    skew = arrived.max(axis=0) - arrived.min(axis=0)
    last = np.bincount(arrived.argmax(axis=0), minlength=len(ranks))
    late = int(np.argmax(last))
    # several collectives of a step are late by the same time: it counts once
    total = max(length(own, arrived.max(axis=0)) for own in arrived)
    if count < 3 or total < max(LEAST_SHARE * span_ns, LEAST_NS) or last[late] < USUAL * count:
        return []
    return [_finding(scene, ranks, late, skew, total, int(last[late]))]


def _ranks(scene: Scene, rows: Ints) -> list[Ints]:
    """The collectives of each rank in their order: of each thread, as ranks may be threads too."""
    calls = scene.evidence.calls
    threads = [rows[calls["row"][rows] == thread] for thread in np.unique(calls["row"][rows]).tolist()]
    threads.sort(key=len, reverse=True)
    ranks: list[Ints] = []
    for own in threads:
        if not ranks:
            ranks.append(own)
            continue
        size = min(len(own), len(ranks[0]))
        if size < ALIKE * len(ranks[0]):
            continue
        same = calls["op"][own[:size]] == calls["op"][ranks[0][:size]]
        same &= calls["bytes"][own[:size]] == calls["bytes"][ranks[0][:size]]
        if same.mean() >= ALIKE:
            ranks.append(own)
    return ranks


def _level(scene: Scene, ranks: list[Ints]) -> Level:
    """Proved when the collectives were counted from the first one on: else the ranks may be off by one."""
    evidence = scene.evidence
    pids = {int(evidence.calls["pid"][rank[0]]) for rank in ranks}
    whole = pids <= evidence.complete and not evidence.lost_events
    return Level.PROVED if whole else Level.STRONG


def _finding(scene: Scene, ranks: list[Ints], late: int, skew: Ints, total: int, times: int) -> Finding:
    calls = scene.evidence.calls
    first = ranks[late][0]
    pid, tid, api = int(calls["pid"][first]), int(calls["tid"][first]), usual_api(scene, ranks[late])
    order = np.argsort(skew)[::-1]
    where, line = placed(scene, ranks[late]), usual_line(scene, ranks[late])
    return assessed(
        scene,
        "C23",
        "straggler: one rank is late to the collectives",
        level=_level(scene, ranks),
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
                f"{where}: this rank was the last {times} of {len(skew)} times",
                total,
                len(skew),
                line,
            ),
        ),
        evidence=(
            f"{len(skew)} collectives of {len(ranks)} ranks, usually "
            f"{format_ns(float(np.median(skew)))} apart",
        ),
        advice=(
            "balance the ranks (same batch size and input cost; look at this rank's own findings), or "
            "overlap the collective with work that does not need it",
        ),
        gain_ns=total,
        moments=calls["begin"][ranks[late][order]],
        count=len(skew),
        line=line,
    )
