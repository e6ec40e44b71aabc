"""Sizes of gaps, owners of the short ones, storms of context switches, and arrivals at collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.picture import RankReport, RankTimes, most_last_first
from gputop.analysis.answer.report import Finding, StormCost
from gputop.analysis.causes import CATALOGUE, CAUSES
from gputop.analysis.causes.drains import reads_of_short
from gputop.analysis.causes.host_causes import OTHER_WORK
from gputop.analysis.causes.launch_sites import own_short
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.roles import FEWEST, meetings
from gputop.analysis.estimates.estimate import Small
from gputop.analysis.evidence.api_classes import H2D, Group
from gputop.analysis.evidence.columns import Ints, Mask
from gputop.engine.rows import STORM_INVOLUNTARY_PER_S
from probes.schema import OffFlag

LEAST_GAPS = 3  # fewer do not repeat
LONELY, LONELY_NS = 10, 20_000_000  # a gap this many times as long as usual, and this long, is an event
# a gap that takes more than all others together is one, if it is this many times as long as usual
OUTWEIGHS = 3
_LONGEST, _CLASSES = 128, 256  # rows of gaps each, and of gaps of about one size

# ``count`` gaps of ``ns`` each, the first of which began at ``begin``
SIZE: Final = np.dtype([("begin", "i8"), ("ns", "i8"), ("count", "i8"), ("proved", "?")])
Sizes = npt.NDArray[np.void]
NO_SIZES: Final[Sizes] = np.zeros(0, SIZE)


def sizes_of(begin: Ints, ns: Ints, proved: Mask) -> Sizes:
    """Return a row for each gap."""
    rows = np.zeros(len(ns), SIZE)
    rows["begin"], rows["ns"], rows["count"], rows["proved"] = begin, ns, 1, proved
    return rows


def gathered(*parts: Sizes) -> Sizes:
    """Return all of them in a bounded number of rows: the longest and the first stay as they are."""
    rows = np.concatenate(parts)
    if len(rows) <= _LONGEST + _CLASSES + LEAST_GAPS:
        return rows
    rows = rows[np.argsort(rows["ns"], kind="stable")]
    kept = np.zeros(len(rows), np.bool_)
    kept[-_LONGEST:] = True
    kept[np.argsort(rows["begin"], kind="stable")[:LEAST_GAPS]] = True
    rest = rows[~kept]
    heads = np.arange(_CLASSES) * len(rest) // _CLASSES
    made = np.zeros(_CLASSES, SIZE)
    made["begin"] = np.minimum.reduceat(rest["begin"], heads)
    made["count"] = np.add.reduceat(rest["count"], heads)
    made["ns"] = np.add.reduceat(rest["ns"] * rest["count"], heads) // made["count"]
    made["proved"] = np.logical_and.reduceat(rest["proved"], heads)
    return np.concatenate([made, rows[kept]])


def lonely(rows: Sizes) -> Mask:
    """Return the gaps that stand alone: all of a few, else those far longer than usual.

    One that outweighs all others is far longer, too. Several may be a loss that repeats more rarely (a
    checkpoint); then only those before it, and far longer still, stand alone: first uses of something.
    """
    ns, begin, count = rows["ns"], rows["begin"], rows["count"]
    if count.sum() < LEAST_GAPS:
        return np.ones(len(rows), np.bool_)
    usual = _median(ns, count)
    far: Mask = (ns > LONELY * usual) & (ns > LONELY_NS)
    top = int(np.argmax(ns))
    far[top] |= ns[top] > max(LONELY_NS, OUTWEIGHS * usual) and 2 * ns[top] > (ns * count).sum()
    if count[far].sum() < LEAST_GAPS:
        return far
    first = np.sort(begin[~far])[:LEAST_GAPS]
    late = far & (begin > first[-1]) if len(first) else far
    if count[late].sum() < LEAST_GAPS:
        return far
    return far & ~late & (ns > OUTWEIGHS * _median(ns[late], count[late]))


def _median(ns: Ints, count: Ints) -> float:
    """Return the median of sizes, each of so many gaps."""
    if (count == 1).all():
        return float(np.median(ns))
    order = np.argsort(ns, kind="stable")
    upto = np.cumsum(count[order])
    return float(ns[order][np.searchsorted(upto, upto[-1] / 2)])


# Causes of estimated gaps that are too short to be followed one by one.

_ROWS = {cause.short: row for row, cause in enumerate(CATALOGUE)}
LAUNCH, COPY = _ROWS["launch"], _ROWS["copy"]
OTHER = CATALOGUE.index(OTHER_WORK)


def short_gaps(scene: AttributionContext, owner: Ints) -> dict[tuple[int, int], int]:
    """Return (row of the catalogue, process) -> ns, with the catalogue's row of each segment, -1 for none.

    A gap before a launch is the launching thread's overhead, unless it is part of a loop of reads. Gaps
    before copies to the device go where the process's longer gaps before such copies went.
    """
    found: dict[tuple[int, int], int] = {}

    def add(cause: int, pid: int, ns: int) -> None:
        if ns:
            found[cause, pid] = found.get((cause, pid), 0) + ns

    for estimate in scene.analysis.estimates:
        small = estimate.small
        length, sends = small.end - small.begin, ends_with_copy(scene, small)
        pids, causes = scene.evidence.threads.pid[small.thread], _cause_rows(scene, owner, small)
        for pid in np.unique(pids).tolist():
            mine = pids == pid
            for cause in np.unique(causes[mine & (causes >= 0)]).tolist():
                add(cause, pid, int(length[mine & (causes == cause)].sum()))
            mine &= causes < 0
            add(LAUNCH, pid, int(length[mine & ~sends].sum()))
            rest = int(length[mine & sends].sum())
            for cause, share in _shares(scene, owner, pid):
                add(cause, pid, int(rest * share))
    return found


def causes_of_short(scene: AttributionContext, owner: Ints, small: Small) -> Ints:
    """Return the catalogue's row of the cause that each short gap, or most of it, belongs to."""
    cause = np.full(len(small.begin), LAUNCH, np.int64)
    sends, pids = ends_with_copy(scene, small), scene.evidence.threads.pid[small.thread]
    for pid in np.unique(pids[sends]).tolist():
        shares = _shares(scene, owner, pid)
        cause[sends & (pids == pid)] = max(shares, key=lambda one: one[1])[0]
    causes = _cause_rows(scene, owner, small)
    return np.where(causes >= 0, causes, cause)


def _cause_rows(scene: AttributionContext, owner: Ints, small: Small) -> Ints:
    """Return the catalogue's row of each short gap in a loop of reads, or of own work; -1 for others."""
    # kept with the owners, so that no other array has their place in memory
    made = scene.once(f"short {id(owner)} {id(small)}", lambda: (owner, _find_rows(scene, owner, small)))
    return made[1]


def _find_rows(scene: AttributionContext, owner: Ints, small: Small) -> Ints:
    read = reads_of_short(scene, small.begin, small.thread)
    works = own_short(scene, small.begin, small.end, small.refilled_by, small.thread)
    works &= bool((owner == OTHER).any())
    of_gap = np.full(len(scene.gaps) + 1, -1, np.int64)  # the last: of no gap
    order = np.argsort(scene.ns, kind="stable")  # the longest piece of a gap is written last
    of_gap[scene.segments.gap[order]] = owner[order]
    return np.where(works, OTHER, of_gap[read])


def ends_with_copy(scene: AttributionContext, small: Small) -> Mask:
    """Return the short gaps that end with a copy to the device."""
    calls = scene.evidence.calls
    if not len(calls):
        return np.zeros(len(small.begin), np.bool_)
    row = np.maximum(small.refilled_by, 0)
    copies = scene.evidence.group_of(row) == Group.COPY
    sends: Mask = (small.refilled_by >= 0) & copies & (calls["direction"][row] == H2D)
    return sends


def _shares(scene: AttributionContext, owner: Ints, pid: int) -> list[tuple[int, float]]:
    """Return (cause, share) of the process's followed gaps that end with a copy to the device."""
    gap = scene.segments.gap
    mine = (scene.gap_facts.sent_bytes[gap] >= 0) & (owner >= 0)
    mine &= scene.evidence.threads.pid[scene.gaps.thread[gap]] == pid
    by_row = np.bincount(owner[mine], weights=scene.ns[mine])
    if not by_row.sum():
        return [(COPY, 1.0)]
    return [(int(row), float(by_row[row] / by_row.sum())) for row in np.flatnonzero(by_row)]


# Storms of context switches, and the GPU time that each has cost, which may be none.


def storms(scene: AttributionContext) -> tuple[StormCost, ...]:
    """Return the threads that are preempted as often as in a storm on the screen, and their cost."""
    evidence = scene.evidence
    slices, threads = evidence.slices, evidence.threads
    if not len(slices):
        return ()
    low, high = scene.analysis.gpu.stretch
    within = (slices["end"] > low) & (slices["end"] <= high)
    forced = within & ((slices["flags"] & OffFlag.INVOLUNTARY) != 0)
    size = len(threads.tid)
    switches = np.bincount(slices["row"][forced], minlength=size)
    life = np.maximum(np.minimum(threads.ended, high) - np.maximum(threads.known, low), 1_000_000)
    rate = switches * 1e9 / life
    queued = scene.segments.state == State.QUEUED
    cost = np.bincount(
        np.maximum(scene.segments.thread[queued], 0), weights=scene.ns[queued], minlength=size
    ).astype(np.int64)
    # both, as a start-up has many switches in little time
    rows = np.flatnonzero(np.minimum(rate, switches) >= STORM_INVOLUNTARY_PER_S)
    return tuple(
        StormCost(
            int(threads.pid[row]),
            int(threads.tid[row]),
            evidence.facts.thread_name(int(threads.tid[row]), int(threads.pid[row])),
            int(switches[row]),
            float(rate[row]),
            int(cost[row]),
        )
        for row in rows[np.argsort(rate[rows])[::-1]].tolist()
    )


# The arrivals of a job's ranks on this machine at their collectives, and the cost of a late one.

LATE = frozenset(cause.number for cause in CAUSES if cause.late_rank)


def ranks_of(scene: AttributionContext, pids: frozenset[int] | None = None) -> RankReport | None:
    """Return the ranks; None without any, or where their calls cannot be matched."""
    met = meetings(scene)
    if met is None or not met.matched or met.rows.shape[1] < FEWEST:
        return None
    calls = scene.evidence.calls
    arrived = calls["begin"][met.rows]
    first, last = arrived.min(axis=0), arrived.max(axis=0)
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(arrived))
    return RankReport(
        most_last_first(
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


def _gpu(scene: AttributionContext, rows: Ints) -> str:
    """Return the label of the GPU of these collectives; "" for several or an unknown one."""
    gpu = scene.analysis.gpu
    found = np.unique(gpu.streams.device[gpu.streams.enqueue_stream[np.isin(gpu.streams.enqueue_row, rows)]])
    device = int(found[0]) if len(found) == 1 else -1
    return gpu.devices.labels[device] if 0 <= device < len(gpu.devices.labels) else ""


def of_lateness(findings: Sequence[Finding]) -> list[float]:
    """Return the ns by which each finding weighs more or less than its own loss.

    While the others wait for a rank, its own GPU is idle as a rule: that makes it late. So this time counts
    for the straggler, whose finding has the cost of the whole job, and not once more beside it.
    """
    moved = [0.0] * len(findings)
    for place, straggler in enumerate(findings):
        left = straggler.loss.middle if straggler.cause in LATE else 0.0
        for other, finding in enumerate(findings):
            if finding.pid == straggler.pid and finding.kind == "idle" and left > 0:
                moved_ns = min(finding.loss.middle, left)
                moved[other] -= moved_ns
                moved[place] += moved_ns
                left -= moved_ns
    return moved
