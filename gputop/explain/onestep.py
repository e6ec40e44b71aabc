"""One step of a program as it was: its threads' calls and states over the GPU's work and idle time.

It is a step that happened, the one whose length and whose idle time are nearest to the median of all, so that
nothing in it is made up. ``typical_steps`` is called by the thread that explains; a verdict carries what it
returns (``Explained.steps``).
"""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.picture import (
    BLOCKED,
    CALL_WORDS,
    COLUMNS,
    QUEUED,
    RUNNING,
    STATE_ROWS,
    GpuTimes,
    HostTime,
    IdleTime,
    OneStep,
)
from gputop.explain.causes import CATALOGUE
from gputop.explain.causes.families import family_table
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.steps import Steps
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, covered, union
from gputop.explain.findings.findings import Outcome
from gputop.explain.lanes import CALL_ROWS, gpu_parts

MOST_STEPS, MOST_HOSTS = 4, 4  # processes, and threads of each: those that make most calls


def typical_steps(scene: Scene, outcome: Outcome, *, proved: bool) -> tuple[OneStep, ...]:
    """A step of each process that repeats something, the one that gives the GPU most work first.

    Args:
        scene: What was explained.
        outcome: Which cause took which piece.
        proved: Whether anything may be called proved.
    """
    threads = scene.evidence.threads
    first = [int(threads.pid[scene.steps.thread])] if scene.steps is not None else []
    pids = dict.fromkeys([*first, *(claim.pid for _cause, claim in outcome.claims)])
    found = [scene.steps_of(pid) for pid in list(pids)[:MOST_STEPS]]
    return tuple(_one(scene, outcome, steps, proved=proved) for steps in found if steps is not None)


def _one(scene: Scene, outcome: Outcome, steps: Steps, *, proved: bool) -> OneStep:
    pid = int(scene.evidence.threads.pid[steps.thread])
    rows = _of_the_loop(steps)
    begin, end = _typical(scene, steps, rows)
    edges = begin + np.arange(COLUMNS + 1) * (end - begin) // COLUMNS
    gpu = scene.analysis.gpu
    used = set(np.unique(gpu.streams.device[gpu.streams.pid == pid]).tolist())
    devices = [span.device for span in gpu.spans if span.device in used]
    return OneStep(
        pid,
        int(scene.evidence.threads.tid[steps.thread]),
        begin,
        edges - begin,
        steps.count,
        steps.median_ns,
        _hosts(scene.evidence, steps.thread, pid, edges),
        tuple(_gpu(scene, outcome, device, edges, proved=proved) for device in devices),
        np.stack([steps.begin[rows[:-1]], steps.until[rows[:-1]]], axis=1),
    )


def _of_the_loop(steps: Steps) -> Ints:
    """The steps of the loop that takes most time, whole ones where there are any."""
    spent = np.bincount(steps.loop, weights=steps.until - steps.begin)
    main = steps.loop == int(np.argmax(spent))
    return np.flatnonzero(main & steps.whole if (main & steps.whole).any() else main)


def _typical(scene: Scene, steps: Steps, rows: Ints) -> tuple[int, int]:
    """(begin, end) of that step of some that is nearest to their median, by length and by idle time."""
    begin, until = steps.begin[rows], steps.until[rows]
    length = until - begin
    idle = covered(union(scene.gaps.begin, scene.gaps.end), begin, until)
    off = np.abs(length - np.median(length)) + np.abs(idle - np.median(idle))
    nearest = np.flatnonzero(off == off.min())[-1]
    return int(begin[nearest]), int(until[nearest])


def time_of(begin: Ints, end: Ints, edges: Ints) -> Ints:
    """Nanoseconds of each column that intervals cover; they may overlap.

    Args:
        begin: Of each interval.
        end: Of each interval.
        edges: Of the columns, ascending: one more than there are columns.
    """
    near = (end > edges[0]) & (begin < edges[-1])
    begin, end = union(begin[near], end[near])
    total = np.append(0, np.cumsum(end - begin))
    place = np.searchsorted(begin, edges, side="right")
    beyond = np.maximum(np.append(0, end)[place] - edges, 0)
    columns: Ints = np.diff(total[place] - np.where(place > 0, beyond, 0))
    return columns


def _hosts(evidence: Evidence, thread: int, pid: int, edges: Ints) -> tuple[HostTime, ...]:
    """The threads of a process that make calls in the step."""
    calls = evidence.calls
    rows = np.flatnonzero((calls["end"] > edges[0]) & (calls["begin"] < edges[-1]))
    rows = rows[calls["pid"][rows] == pid]
    ns = np.minimum(calls["end"][rows], edges[-1]) - np.maximum(calls["begin"][rows], edges[0])
    spent = np.bincount(calls["row"][rows], weights=ns, minlength=len(evidence.threads.tid))
    order = [row for row in np.argsort(-spent, kind="stable").tolist() if spent[row] > 0 and row != thread]
    chosen = [thread, *order][:MOST_HOSTS]
    return tuple(_host(evidence, row, rows[calls["row"][rows] == row], edges) for row in chosen)


def _host(evidence: Evidence, thread: int, rows: Ints, edges: Ints) -> HostTime:
    calls, groups = evidence.calls, evidence.group_of(rows).tolist()
    kind = np.array([CALL_ROWS.get(group, len(CALL_WORDS) - 1) for group in groups], np.int64)
    begin, end = calls["begin"][rows], calls["end"][rows]
    started = begin >= edges[0]
    inside = [time_of(begin[kind == one], end[kind == one], edges) for one in range(len(CALL_WORDS))]
    counts = np.bincount(kind[started], minlength=len(CALL_WORDS)).tolist()
    tid = int(evidence.threads.tid[thread])
    return HostTime(tid, np.array(inside), tuple(counts), _states(evidence, thread, edges))


def _states(evidence: Evidence, thread: int, edges: Ints) -> Ints:
    """``[STATE_ROWS, COLUMNS]`` of a thread."""
    slices, threads = evidence.slices, evidence.threads
    low, high = np.searchsorted(slices["row"], [thread, thread + 1])
    begin, queued, end = (slices[name][low:high] for name in ("begin", "queued", "end"))
    wait = slices["wait"][low:high].astype(np.int64)
    states = np.zeros((STATE_ROWS, len(edges) - 1), np.int64)
    for kind in np.unique(wait).tolist():
        states[BLOCKED + kind] = time_of(begin[wait == kind], queued[wait == kind], edges)
    states[QUEUED] = time_of(queued, end, edges)
    seen = time_of(threads.known[[thread]], threads.ended[[thread]], edges)
    states[RUNNING] = np.maximum(seen - states.sum(axis=0), 0)
    return states


def _gpu(scene: Scene, outcome: Outcome, device: int, edges: Ints, *, proved: bool) -> GpuTimes:
    parts, families = gpu_parts(scene, outcome, device, proved=proved), family_table()
    near = (parts.end > edges[0]) & (parts.begin < edges[-1])
    idle = []
    for cause, sure in sorted(set(zip(parts.cause[near].tolist(), parts.sure[near].tolist(), strict=True))):
        mine = near & (parts.cause == cause) & (parts.sure == sure)
        number = CATALOGUE[cause].number if cause >= 0 else ""
        ns = time_of(parts.begin[mine], parts.end[mine], edges)
        idle.append(IdleTime(number, int(families[cause]), sure, ns))
    devices = scene.analysis.gpu.devices
    return GpuTimes(
        devices.labels[device],
        devices.index[device],
        time_of(*parts.busy, edges),
        time_of(*parts.presumed, edges),
        tuple(sorted(idle, key=lambda one: -int(one.ns.sum()))),
    )
