"""Launches and GPU time by kernel and by graph; the causes of gaps between recorded kernels."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import numpy as np

from gputop.analysis.answer.kernel_report import (
    Fitting,
    GraphReport,
    KernelLaunches,
    KernelReport,
    MadeGraphs,
    graphs_in_order,
    most_launches_first,
)
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import Cause
from gputop.analysis.causes.copy_causes import BLOCKING, STAGED
from gputop.analysis.causes.gpu_causes import DEVICE_MEMORY, GRAPHS, HOST_MEMORY
from gputop.analysis.causes.host_causes import OTHER_WORK, OUTWAITS
from gputop.analysis.causes.input_causes import LATE_WORKERS, PREPARED
from gputop.analysis.causes.launch_causes import BETWEEN_KERNELS, LATE_NS, LAUNCHES, QUEUED
from gputop.analysis.causes.launch_sites import LONG_NS, by_handle, by_shape, kernel_name, launches_among
from gputop.analysis.causes.sync_causes import EXPLICIT, SCALAR, TENSOR
from gputop.analysis.chains.analysis import returned
from gputop.analysis.chains.attribution_context import SCALAR_BYTES, AttributionContext
from gputop.analysis.chains.steps import Steps
from gputop.analysis.estimates.estimate import GpuTimeOf, Mixtures, mixtures
from gputop.analysis.evidence.api_classes import H2D, Group, Role, Trait
from gputop.analysis.evidence.call_context import kernel_times, sums_by_line
from gputop.analysis.evidence.columns import WHOLE, Effort, Ints, Mask, group_ids
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.repetition import EnqueuedWork
from gputop.analysis.proofs.gaps import held_kernels


def kernels_of(
    scene: AttributionContext,
    pids: frozenset[int] | None = None,
    effort: Effort = WHOLE,
    alone: Container[int] = (),
) -> KernelReport | None:
    """Return the launches that returned in the stretch, of these processes or of all.

    Only outermost launches that succeeded count, and only processes of which some kernel has a name. Steps
    are those of the process whose steps are reported, if nothing else is in them.

    Args:
        scene: Everything.
        pids: The processes; None for all.
        effort: How much of a long stretch is analysed in full.
        alone: GPUs all of whose work is seen: of others no time is estimated.

    Returns:
        None where no kernel has a name.
    """
    evidence, calls = scene.evidence, scene.evidence.calls
    if not evidence.facts.stacks.names_kernels:
        return None
    low, high = scene.analysis.gpu.stretch
    rows = np.flatnonzero((calls["end"] > low) & (calls["end"] <= high))
    rows = launches_among(evidence, rows)
    steps = _complete(scene)
    exact = kernel_times(evidence) if held_kernels(evidence) else None
    solved = [] if exact is not None else list(_solved(scene, effort, alone))
    made: list[KernelLaunches] = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        if pids is None or pid in pids:
            made += _of_process(scene, steps, pid, rows[calls["pid"][rows] == pid], solved, exact)
    steps_of = {} if steps is None else {int(evidence.threads.pid[steps.thread]): steps.count}
    return KernelReport(high - low, steps_of, most_launches_first(made), scene.evidence.fill).of(pids)


def _solved(scene: AttributionContext, effort: Effort, alone: Container[int]) -> Iterator[Mixtures]:
    """Yield the mixtures of each of these GPUs whose waits separate kernels."""
    analysis = scene.analysis
    learned = {one.device: (one.queue, one.learned) for one in analysis.estimates}
    for span in analysis.gpu.spans:
        if span.device not in alone:
            continue
        known = learned.get(span.device)
        found = mixtures(analysis.evidence, analysis.gpu, span.device, effort.operations, known)
        if found is not None:
            yield found


def _gpu_time(solved: Sequence[Mixtures], rows: Ints, exact: Ints | None, captured: int) -> GpuTimeOf | None:
    """Return the GPU time of these launches; None where that of some is not known.

    Args:
        solved: Times by the waits of each GPU.
        rows: The launches.
        exact: The time of each call's kernel, where the file has it.
        captured: Launches into graphs, where they do not run as themselves.
    """
    if exact is not None:
        known = exact[rows] >= 0
        whole = not captured and int(np.count_nonzero(known)) == len(rows)
        return GpuTimeOf(float(exact[rows].sum()), 0.0) if whole else None
    parts = [(one, rows[one.among(rows)]) for one in solved]
    if sum(len(mine) for _one, mine in parts) != len(rows):
        return None
    times = [one.time(mine) for one, mine in parts if len(mine)]
    summed = [one for one in times if one is not None]
    if not summed or len(summed) < len(times):
        return None
    return GpuTimeOf(sum(one.ns for one in summed), sum(one.error_ns for one in summed))


def _of_process(
    scene: AttributionContext,
    steps: Steps | None,
    pid: int,
    rows: Ints,
    solved: Sequence[Mixtures],
    exact: Ints | None,
) -> list[KernelLaunches]:
    evidence, calls = scene.evidence, scene.evidence.calls
    if steps is not None and evidence.threads.pid[steps.thread] != pid:
        steps = None
    by_name: dict[tuple[str, str], list[Ints]] = {}
    for handle, mine in by_handle(evidence, rows):
        by_name.setdefault(kernel_name(evidence, pid, handle), []).append(mine)
    if not any(name for name, _file in by_name):
        return []
    found = []
    for (name, file), parts in by_name.items():
        mine = np.concatenate(parts)
        lines = sums_by_line(evidence, calls["stack"][mine])
        stepped = _within(steps, calls["begin"][mine]) if steps is not None else 0
        captured = int(np.count_nonzero(scene.analysis.gpu.streams.into_graphs(mine)))
        found.append(
            KernelLaunches(
                pid,
                name,
                file,
                len(parts),
                len(mine),
                stepped,
                lines,
                by_shape(evidence, mine),
                captured,
                _gpu_time(solved, mine, exact, captured) if name else None,
            )
        )
    return found


def _complete(scene: AttributionContext) -> Steps | None:
    """Return the steps between two others of their loop with nothing else in them; None without any."""
    steps = scene.steps
    if steps is None:
        return None
    # the begin of the first of a loop, and the end of the last, are not known
    inner = (np.diff(steps.loop, prepend=-1) == 0) & (np.diff(steps.loop, append=-1) == 0)
    complete = steps.whole & inner
    return steps.take(complete) if complete.any() else None


def _within(steps: Steps, times: Ints) -> int:
    """Return how many of these moments lie in a step."""
    step = np.searchsorted(steps.begin, times, side="right") - 1
    return int(np.count_nonzero((step >= 0) & (times < steps.until[np.maximum(step, 0)])))


# CUDA graphs that are made and launched, and launches that would fit one: those that repeat step by step.

LEAST_LAUNCHES = 10  # so few are not worth a graph
LEAST_STEPS, STEADY = 10, 0.95  # steps that are compared; in which share of them a launch is the same
_MOST_STEPS = 200  # evenly spread: what repeats shows in these
# calls that no capture holds, or that make the host wait
_BREAKS = (
    Group.SYNC,
    Group.ALLOC,
    Group.FREE,
    Group.HOST,
    Group.MODULE,
    Group.STREAM,
    Group.GRAPH,
)


def graphs_of(scene: AttributionContext, pids: frozenset[int] | None = None) -> GraphReport | None:
    """Return the graphs of these processes or of all; None without any, and without launches that fit one.

    Which graph is launched is known from recordings with the results of instantiations.
    """
    made, unseen = _made(scene) if scene.evidence.header.get("graphs") else ((), {})
    return GraphReport(made, unseen, tuple(_fitting(scene))).of(pids)


def _made(scene: AttributionContext) -> tuple[tuple[MadeGraphs, ...], dict[int, int]]:
    evidence, calls = scene.evidence, scene.evidence.calls
    low, high = scene.analysis.gpu.stretch
    good = (calls["ret"] == 0) & ~calls["abandoned"] & (evidence.group(calls) == Group.GRAPH)
    rows = np.flatnonzero(good)
    rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
    instantiates = _named(evidence, "GraphInstantiate")[calls["op"][rows]]
    updates = _named(evidence, "GraphExecUpdate")[calls["op"][rows]]
    launches = evidence.apis.has(calls["op"][rows], Trait.RUNS)
    captured = _Captured(scene)
    newest: dict[tuple[int, int], tuple[int, int]] = {}  # (process, graph) -> (process, stack of its making)
    found: dict[tuple[int, int], MadeGraphs] = {}
    unseen: dict[int, int] = {}
    columns = (calls[name][rows].tolist() for name in ("pid", "aux", "stack", "begin", "end"))
    for pid, graph, stack, begin, end, makes, updated, launched in zip(
        *columns, instantiates.tolist(), updates.tolist(), launches.tolist(), strict=True
    ):
        inside = low < end <= high
        if makes:
            newest[pid, graph] = pid, stack
        key = newest.get((pid, graph))
        if key is None:
            unseen[pid] = unseen.get(pid, 0) + (launched and inside)
            continue
        kernels = captured.before(pid, begin) if makes else None
        if inside:
            one = MadeGraphs(
                pid,
                evidence.facts.stacks.line(key[1]),
                int(makes),
                int(updated),
                int(launched),
                None if kernels is None else (kernels, kernels),
            )
            found[key] = found[key].joined(one) if key in found else one
    by_line: dict[tuple[int, object], MadeGraphs] = {}
    for one in found.values():
        at = one.pid, one.line
        by_line[at] = by_line[at].joined(one) if at in by_line else one
    return graphs_in_order(by_line.values()), {pid: count for pid, count in unseen.items() if count}


def _named(evidence: Evidence, part: str) -> Mask:
    """Return the functions with this in their names."""
    return np.array([*(part in name for name in evidence.apis.names), False])


class _Captured:
    """The number of launches in each capture of a stream."""

    def __init__(self, scene: AttributionContext) -> None:
        evidence, calls, streams = scene.evidence, scene.evidence.calls, scene.analysis.gpu.streams
        begins, ends = streams.rows(Role.CAPTURE_BEGIN), streams.rows(Role.CAPTURE_END)
        launched = np.flatnonzero(
            (evidence.group(calls) == Group.LAUNCH) & (calls["ret"] == 0) & ~calls["abandoned"]
        )
        launched = launched[streams.captured(launched)] if len(ends) else launched[:0]
        self._held: dict[int, list[tuple[int, int | None]]] = {}  # process -> (end, launches), in order
        for row in ends[np.argsort(calls["begin"][ends], kind="stable")].tolist():
            pid, stream, until = (int(calls[name][row]) for name in ("pid", "stream", "begin"))
            own = (calls["pid"][begins] == pid) & (calls["stream"][begins] == stream)
            since = calls["end"][begins[own & (calls["end"][begins] <= until)]]
            inside = launched[(calls["pid"][launched] == pid) & (calls["end"][launched] <= until)]
            inside = inside[calls["begin"][inside] >= since.max(initial=0)]
            # work in another stream meanwhile may be part of the graph, or not
            sure = len(since) > 0 and bool((calls["stream"][inside] == stream).all())
            self._held.setdefault(pid, []).append((int(calls["end"][row]), len(inside) if sure else None))

    def before(self, pid: int, moment: int) -> int | None:
        """Return the launches of a process's newest unused capture, and forget it; None: not known."""
        held = self._held.get(pid, [])
        ended = [place for place, (end, _count) in enumerate(held) if end <= moment]
        if not ended:
            return None
        count = held[ended[-1]][1]
        del held[: ended[-1] + 1]
        return count


# -- what would fit one ---------------------------------------------------------------------------------


def _fitting(scene: AttributionContext) -> Iterator[Fitting]:
    """Yield the runs of launches that are the same in nearly all steps, without waits between them."""
    steps = scene.steps
    whole = np.flatnonzero(steps.whole) if steps is not None else np.zeros(0, np.int64)
    if steps is None or len(whole) < LEAST_STEPS:
        return
    whole = whole[np.unique(np.linspace(0, len(whole) - 1, _MOST_STEPS).astype(np.int64))]
    length = steps.tail[whole] - steps.head[whole]
    usual = int(np.bincount(length).argmax())
    alike = whole[length == usual]
    if usual < LEAST_LAUNCHES or len(alike) < STEADY * len(whole):
        return
    calls = scene.evidence.calls
    place = steps.head[alike][:, None] + np.arange(usual)
    rows = steps.sequence.rows[place]
    columns = (calls[name][rows.reshape(-1)] for name in ("op", "aux", "shape", "stream"))
    kind = group_ids(*columns).reshape(rows.shape)
    common = np.array([np.bincount(column).argmax() for column in kind.T])
    same = kind == common
    work = steps.sequence.work[steps.sequence.symbol[place[0]]]
    joins = (
        (same.mean(axis=0) >= STEADY) & (work == EnqueuedWork.KERNEL) & (calls["shape"][rows] > 0).all(axis=0)
    )
    stream = calls["stream"][rows[0]]
    between = _broken(scene, steps, rows) | (stream[1:] != stream[:-1])
    ends = np.flatnonzero(~(joins[1:] & joins[:-1]) | between) + 1
    for low, high in zip([0, *ends.tolist()], [*ends.tolist(), usual], strict=True):
        if high - low >= LEAST_LAUNCHES and joins[low:high].all():
            yield _of_run(scene, rows[:, low:high], int(same[:, low:high].all(axis=1).sum()), len(whole))


def _broken(scene: AttributionContext, steps: Steps, rows: Ints) -> Mask:
    """Return the operations of a step with calls before the next one that break a capture."""
    evidence, calls = scene.evidence, scene.evidence.calls
    pid = evidence.threads.pid[steps.thread]
    breaks = np.isin(evidence.group(calls), _BREAKS) & (calls["pid"] == pid)
    times = np.sort(calls["begin"][breaks])
    place = np.searchsorted(times, calls["begin"][rows])
    other = calls["row"][rows[:, 1:]] != calls["row"][rows[:, :-1]]
    broken: Mask = ((place[:, 1:] > place[:, :-1]) | other).mean(axis=0) > 1 - STEADY
    return broken


def _of_run(scene: AttributionContext, rows: Ints, same: int, looked_at: int) -> Fitting:
    calls, stacks = scene.evidence.calls, scene.evidence.facts.stacks
    length = calls["end"][rows[:, -1]] - calls["begin"][rows[:, 0]]
    first, last = (stacks.line(int(calls["stack"][rows[0, place]])) for place in (0, -1))
    pid = int(calls["pid"][rows[0, 0]])
    return Fitting(pid, first, last, rows.shape[1], same, looked_at, int(np.median(length)))


# The causes of segments in a file that holds its kernels: by its rows, where no state is known.

_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH, Group.COPY, Group.COLLECTIVE)
_WAITING = (Group.SYNC, Group.COPY)
_INSIDE: dict[Group, Cause] = {
    Group.ALLOC: DEVICE_MEMORY,
    Group.FREE: DEVICE_MEMORY,
    Group.HOST: HOST_MEMORY,
    Group.GRAPH: GRAPHS,
    Group.MODULE: GRAPHS,
}


def traced_owners(scene: AttributionContext) -> tuple[Ints, Mask]:
    """Return (the row of ``CATALOGUE`` of each segment, -1: none; the segments that are settled by that)."""
    owner, settled = np.full(scene.size, -1, np.int64), scene.mask()
    traced = scene.analysis.traced
    if traced is None or not scene.size:
        return owner, settled

    def assign(chosen: Mask, cause: Cause) -> None:
        nonlocal settled
        owner[chosen & ~settled] = CATALOGUE.index(cause)
        settled = settled | chosen

    calls, gaps, gap, segments = scene.evidence.calls, scene.gaps, scene.segments.gap, scene.segments
    back = returned(scene.evidence, gaps)
    left = segments.begin >= back[gap]
    host = segments.begin < back[gap]
    long_left = gaps.end - back > LATE_NS
    inside = traced.inside(segments)
    none = scene.mask()
    assign(left & long_left[gap], QUEUED)
    short = left & ~settled
    # the rest concerns threads whose states are not known
    host &= scene.unrecorded
    settled = settled | short | inside.get("overhead", none)  # the profiler's own work is no cause
    assign(host & inside.get("workers", none), LATE_WORKERS)
    assign(host & inside.get("alone", none), PREPARED)
    in_call = segments.call >= 0
    row = np.maximum(segments.call, 0)
    group = np.where(in_call, scene.group, Group.OTHER)
    refills = segments.call == gaps.refilled_by[gap]
    for one, cause in _INSIDE.items():
        assign(host & in_call & (group == one) & ~refills, cause)
    long_call = calls["end"][row] - calls["begin"][row] >= LONG_NS
    assign(host & refills & long_call & (group != Group.COPY), GRAPHS)
    assign(host & refills & (group == Group.COPY) & (calls["direction"][row] == H2D) & long_call, STAGED)
    opened = _opened_by_wait(scene, gaps.end - gaps.begin)
    scalar, reads = inside.get("scalars", none), inside.get("reads", none)
    assign(host & scalar, SCALAR)
    assign(host & reads, TENSOR)
    # a wait within the gap that the GPU had nothing to do with any more, or that opened it
    waits = in_call & (group == np.uint8(Group.SYNC))
    waited = host & (waits | opened[gap])
    facts = scene.gap_facts
    assign(waited & ((facts.read_bytes >= 0) & (facts.read_bytes <= SCALAR_BYTES))[gap], SCALAR)
    assign(waited & (facts.read_bytes > SCALAR_BYTES)[gap], TENSOR)
    assign(waited & (facts.moved_row >= 0)[gap], BLOCKING)
    assign(waited, EXPLICIT)
    host_ns = back - gaps.begin
    assign(host & (host_ns < LONG_NS)[gap], LAUNCHES)
    assign(host, OTHER_WORK)
    # the way from a launch to the GPU goes with what was before it in the gap
    rest = _largest(scene, owner)
    rest = np.where(rest >= 0, rest, CATALOGUE.index(BETWEEN_KERNELS))
    owner[short] = rest[gap[short]]
    return owner, settled


def with_ways_to_gpus(scene: AttributionContext, owner: Ints) -> Ints:
    """Return owners in which the way from a launch to the GPU goes with the cause before it in the gap."""
    if scene.analysis.traced is None or not scene.size:
        return owner
    way = (owner == CATALOGUE.index(BETWEEN_KERNELS)) & ~scene.unrecorded
    best = _largest(scene, np.where(way, -1, owner))[scene.segments.gap]
    return np.where(way & (best >= 0), best, owner)


def _opened_by_wait(scene: AttributionContext, length: Ints) -> Mask:
    """Return the gaps that a wait for the GPU opened, unless far longer work lies behind it."""
    gaps, evidence = scene.gaps, scene.evidence
    row = np.maximum(gaps.drained_by, 0)
    if not len(evidence.calls):
        return np.zeros(len(gaps), np.bool_)
    begin, end = evidence.calls["begin"][row], evidence.calls["end"][row]
    proves = np.isin(
        evidence.role_of(row), [Role.PROVE_DEVICE, Role.PROVE_STREAM, Role.PROVE_EVENT, Role.COPY_SYNC]
    )
    waits = (gaps.drained_by >= 0) & (proves | np.isin(evidence.group_of(row), [int(Group.COPY)]))
    waited = np.maximum(np.minimum(gaps.begin, end) - begin, 0)
    far: Mask = (length >= LONG_NS) & (length >= OUTWAITS * waited)
    return waits & ~far


def _largest(scene: AttributionContext, owner: Ints) -> Ints:
    """Return the cause of most of each gap; -1 for none."""
    best = np.full(len(scene.gaps), -1, np.int64)
    most = np.zeros(len(scene.gaps), np.int64)
    for cause in np.unique(owner[owner >= 0]).tolist():
        ns = scene.gap_ns(owner == cause)
        larger = ns > most
        best[larger], most[larger] = cause, ns[larger]
    return best
