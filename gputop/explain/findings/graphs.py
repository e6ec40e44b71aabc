"""CUDA graphs that are made and launched, and launches that would fit one: those that repeat step by step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gputop.explain.answer.graphs import Fitting, GraphReport, MadeGraphs, in_order
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.steps import Steps
from gputop.explain.evidence.apiclass import Group, Role, Trait
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.identity import group_ids
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.sequence import Work

LEAST_LAUNCHES = 10  # so few are not worth a graph
LEAST_STEPS, STEADY = 10, 0.95  # steps that are compared; in which share of them a launch is the same
_MOST_STEPS = 200  # evenly spread: what repeats shows in these
# what a capture does not take, or what makes the host wait for something
_BREAKS = (
    Group.SYNC,
    Group.ALLOC,
    Group.FREE,
    Group.HOST,
    Group.MODULE,
    Group.STREAM,
    Group.GRAPH,
)


def graphs_of(scene: Scene, pids: frozenset[int] | None = None) -> GraphReport | None:
    """The graphs of these processes or of all; None where there are none, and nothing that would fit one.

    Which graph is launched is known of recordings that tell what an instantiation left.
    """
    made, unseen = _made(scene) if scene.evidence.header.get("graphs") else ((), {})
    return GraphReport(made, unseen, tuple(_fitting(scene))).of(pids)


def _made(scene: Scene) -> tuple[tuple[MadeGraphs, ...], dict[int, int]]:
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
    return in_order(by_line.values()), {pid: count for pid, count in unseen.items() if count}


def _named(evidence: Evidence, part: str) -> Mask:
    """Which functions have this in their names."""
    return np.array([*(part in name for name in evidence.apis.names), False])


class _Captured:
    """How many launches each capture of a stream took in."""

    def __init__(self, scene: Scene) -> None:
        """Look at all captures that ended."""
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
            # what went into another stream meanwhile may be part of the graph, or not
            sure = len(since) > 0 and bool((calls["stream"][inside] == stream).all())
            self._held.setdefault(pid, []).append((int(calls["end"][row]), len(inside) if sure else None))

    def before(self, pid: int, moment: int) -> int | None:
        """The launches of the newest capture of a process that nothing was made of yet; None: not known."""
        held = self._held.get(pid, [])
        ended = [place for place, (end, _count) in enumerate(held) if end <= moment]
        if not ended:
            return None
        count = held[ended[-1]][1]
        del held[: ended[-1] + 1]
        return count


# -- what would fit one ---------------------------------------------------------------------------------


def _fitting(scene: Scene) -> Iterator[Fitting]:
    """Runs of launches that are the same in nearly all steps, with nothing between them that waits."""
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
    joins = (same.mean(axis=0) >= STEADY) & (work == Work.KERNEL) & (calls["shape"][rows] > 0).all(axis=0)
    stream = calls["stream"][rows[0]]
    between = _broken(scene, steps, rows) | (stream[1:] != stream[:-1])
    ends = np.flatnonzero(~(joins[1:] & joins[:-1]) | between) + 1
    for low, high in zip([0, *ends.tolist()], [*ends.tolist(), usual], strict=True):
        if high - low >= LEAST_LAUNCHES and joins[low:high].all():
            yield _of_run(scene, rows[:, low:high], int(same[:, low:high].all(axis=1).sum()), len(whole))


def _broken(scene: Scene, steps: Steps, rows: Ints) -> Mask:
    """Between which operations of a step and the next ones something is called that breaks a capture."""
    evidence, calls = scene.evidence, scene.evidence.calls
    pid = evidence.threads.pid[steps.thread]
    breaks = np.isin(evidence.group(calls), _BREAKS) & (calls["pid"] == pid)
    times = np.sort(calls["begin"][breaks])
    place = np.searchsorted(times, calls["begin"][rows])
    other = calls["row"][rows[:, 1:]] != calls["row"][rows[:, :-1]]
    broken: Mask = ((place[:, 1:] > place[:, :-1]) | other).mean(axis=0) > 1 - STEADY
    return broken


def _of_run(scene: Scene, rows: Ints, same: int, looked_at: int) -> Fitting:
    calls, stacks = scene.evidence.calls, scene.evidence.facts.stacks
    took = calls["end"][rows[:, -1]] - calls["begin"][rows[:, 0]]
    first, last = (stacks.line(int(calls["stack"][rows[0, place]])) for place in (0, -1))
    pid = int(calls["pid"][rows[0, 0]])
    return Fitting(pid, first, last, rows.shape[1], same, looked_at, int(np.median(took)))
