"""Which wait drained the GPU's queue: what is lost afterwards, until the queue fills again, belongs to it.

A wait drains the stream. The launches after it find the GPU idle, each, until the host is ahead again. That
is the wait's doing in two cases: where the next wait of the same loop comes so soon that the host never gets
ahead (a loop that reads again and again), and where the host is the faster one, so that without waits it
would be ahead all the time. Else the host is simply slower than the GPU, and the launches are what costs.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Ints, Mask, covered, union

MANY_READS = 4  # a step: fewer are a loss and a metric
NEAR = 0.25  # of a step: reads that are further apart are not of one loop
_WAITING = (Group.SYNC, Group.COPY)


class Drain(IntEnum):
    """What drained the queue before a gap."""

    NONE = 0
    READ = 1  # a copy to the host
    MOVED = 2  # a blocking copy to the device
    EXPLICIT = 3


def read_between(scene: Scene) -> Ints:
    """For each gap the bytes of the read that drained the queue before it; -1 where none did."""
    found: Ints = scene.once("read between", lambda: _bytes(scene))
    return found


def drained(scene: Scene) -> Ints:
    """The ``Drain`` of each gap: of a proved one what opened it, of an estimated one what it goes back to."""
    found: Ints = scene.once("drained", lambda: _kinds(scene))
    return found


def _bytes(scene: Scene) -> Ints:
    source = source_of(scene)
    read = scene.gap_facts.read_bytes
    return np.where(source >= 0, read[np.maximum(source, 0)], -1) if len(read) else read


def _kinds(scene: Scene) -> Ints:
    source, facts = source_of(scene), scene.gap_facts
    kind = np.full(len(source), int(Drain.EXPLICIT), np.int64)
    at = np.maximum(source, 0)
    if len(source):
        kind[facts.read_bytes[at] >= 0] = Drain.READ
        kind[(facts.moved_row[at] >= 0)] = Drain.MOVED
    kind[source < 0] = Drain.NONE
    return kind


def source_of(scene: Scene) -> Ints:
    """For each gap the row of the gap whose wait drained the queue: itself, an earlier one, or -1."""
    found: Ints = scene.once("drain source", lambda: _find(scene))
    return found


def _find(scene: Scene) -> Ints:
    gaps = scene.gaps
    source = np.where(gaps.estimated, -1, np.arange(len(gaps)))
    pids = scene.evidence.threads.pid[gaps.thread]
    launched = np.isin(scene.gap_facts.refill_group, [Group.LAUNCH, Group.SET, Group.GRAPH])
    for pid in np.unique(pids).tolist():
        mine = pids == pid
        drains = np.flatnonzero(mine & ~gaps.estimated & (gaps.drained_by >= 0))
        guessed = np.flatnonzero(mine & gaps.estimated & launched)
        if len(drains) and len(guessed) and host_is_faster(scene, pid):
            place = np.searchsorted(gaps.begin[drains], gaps.begin[guessed], side="right") - 1
            source[guessed] = np.where(place >= 0, drains[np.maximum(place, 0)], -1)
        _loops_of_reads(scene, pid, mine, source)
    return source


def _loops_of_reads(scene: Scene, pid: int, mine: Mask, source: Ints) -> None:
    """What lies between two reads of a loop that reads many times a step goes back to the first of them."""
    others = np.flatnonzero(mine & (scene.gap_facts.read_bytes < 0))
    before = _read_before(scene, pid, scene.gaps.begin[others])
    source[others[before >= 0]] = before[before >= 0]


def _read_before(scene: Scene, pid: int, moments: Ints) -> Ints:
    """The gap of the read before each moment, where it lies in a loop that reads many times a step; or -1."""
    gaps = scene.gaps
    none = np.full(len(moments), -1, np.int64)
    if not len(gaps):
        return none
    own = scene.evidence.threads.pid[gaps.thread] == pid
    reads = np.flatnonzero(own & (scene.gap_facts.read_bytes >= 0))
    steps = scene.steps_of(pid) if len(reads) >= MANY_READS else None
    if steps is None or len(reads) < MANY_READS * steps.count:
        return none
    place = np.searchsorted(gaps.begin[reads], moments, side="right")
    before, after = reads[np.maximum(place - 1, 0)], reads[np.minimum(place, len(reads) - 1)]
    between = (place > 0) & (place < len(reads))
    between &= gaps.begin[after] - gaps.begin[before] <= NEAR * steps.median_ns
    return np.where(between, before, -1)


def reads_of_short(scene: Scene, begin: Ints, thread: Ints) -> Ints:
    """The gap of the read that gaps too short to be followed go back to: those within a loop of reads; or -1.

    Args:
        scene: Everything.
        begin: When each begins.
        thread: Its thread.
    """
    found, pids = np.full(len(begin), -1, np.int64), scene.evidence.threads.pid[thread]
    for pid in np.unique(pids).tolist():
        mine = pids == pid
        found[mine] = _read_before(scene, pid, begin[mine])
    return found


def host_is_faster(scene: Scene, pid: int) -> bool:
    """Whether a process's host work takes less time than its GPU work: without waits it would be ahead.

    In its steps: H is the time outside of waits for the GPU, K the time for which the GPU works.
    """
    steps = scene.steps_of(pid)
    if steps is None or not steps.count:
        return False
    low, high = int(steps.begin[0]), steps.end
    evidence = scene.evidence
    calls = evidence.calls
    inside = (calls["pid"] == pid) & (calls["begin"] < high) & (calls["end"] > low)
    rows = np.flatnonzero(inside & np.isin(evidence.group(calls), [int(group) for group in _WAITING]))
    waits = union(np.maximum(calls["begin"][rows], low), np.minimum(calls["end"][rows], high))
    works = waited = 0
    for span in scene.analysis.gpu.spans:
        begin, end = scene.analysis.gpu.pending(span.device)
        for estimate in scene.analysis.estimates:
            if estimate.device != span.device:
                continue
            queue = estimate.queue
            own = queue.kernel & (evidence.threads.pid[queue.thread] == pid)
            own &= (queue.ready > low) & (queue.ready < high)
            works += int(estimate.duration_ns[own].sum())
            # nothing proves that a blocking copy to the device waits for the work before it
            ended = np.minimum(queue.ends(estimate.duration_ns), queue.limit)
            begun = ended - queue.real(estimate.duration_ns).astype(np.int64)
            begin, end = np.append(begin, begun[own]), np.append(end, ended[own])
        # a wait for what it then copies is no wait for the GPU: only the part in which the GPU had work
        waited += int(covered(union(begin, end), *waits).sum())
    return works > high - low - waited
