"""What each step took, as one array per measure: what ``gputop diff`` compares.

Without steps it is from one batch to the next; without common batches by launches of what both launch. Where
there are none the span is cut into windows of equal length, and everything is told per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.steps import Steps
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.period import heads_of
from gputop.explain.evidence.ranges import Floats, Ints, Mask, covered, union
from gputop.explain.evidence.sequence import Sequence
from gputop.explain.findings.findings import Outcome
from gputop.explain.findings.gapsizes import LEAST_GAPS, LONELY
from probes.schema import OffFlag

_WINDOWS = 24  # of a recording without steps
_SECOND = 1e9
_WAITED = 0.5  # of a long piece, in waits for the GPU
_WARM_UP = 50  # steps, at most, or a quarter of them
_CERTAIN = 24  # units; of fewer, two that are far longer than the others may well be usual


class Unit(str, Enum):
    """What everything is told per."""

    STEP = "step"
    BATCH = "batch"
    LAUNCH = "launch"
    SECOND = "second"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of time that are looked at.

    Attributes:
        begin, until: Of each, ns.
        thread: Row of the thread whose switches count.
        count: How many there are altogether, those that are not looked at included; seconds, of windows.
        between: Steps with something else between them and the next one, which counts.
    """

    unit: Unit
    begin: Ints
    until: Ints
    thread: int
    count: float
    between: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """One row per step or batch, in their order; in windows all but ``duration`` is scaled to a second.

    Attributes:
        duration: From the begin of one step to that of the next, ns.
        idle: Idle time of the GPUs in it, ns: all gaps that are followed, proved and estimated.
        calls: Outermost CUDA calls of the process that makes the steps.
        launches: Those of them that launch kernels.
        voluntary, involuntary: Context switches of the thread that makes the steps.
        causes: The idle time that each cause took of it, ns, by the cause's number.
        left_out: Steps that were far longer than usual.
        between: Steps with something else behind them, as an evaluation, which counts.
    """

    unit: Unit
    duration: Floats
    idle: Floats
    calls: Floats
    launches: Floats
    voluntary: Floats
    involuntary: Floats
    causes: dict[str, Floats]
    left_out: int
    between: int

    def named(self) -> Iterator[tuple[str, Floats]]:
        """(key in JSON, values) of each measure."""
        yield from (
            ("duration_ns", self.duration),
            ("idle_ns", self.idle),
            ("calls", self.calls),
            ("launches", self.launches),
            ("voluntary_switches", self.voluntary),
            ("involuntary_switches", self.involuntary),
        )


def by_step(steps: Steps) -> Pieces:
    """The steps of the loop that takes most of the time: from each to the next, whatever is between them."""
    loop = steps.main()
    between = ~loop.whole
    between[:-1] |= loop.begin[1:] > loop.until[:-1]
    until = np.append(loop.begin[1:], loop.until[-1:])
    length = until - loop.begin
    usual, seen = np.median(length), np.ones(len(length), np.bool_)
    left = len(loop.sequence) - loop.tail[-1]
    if 0 < left < np.median(loop.tail - loop.head) and loop.over - until[-1] > usual:
        until[-1] = loop.over  # it ends in the middle of a step, and waits for those before
        length = until - loop.begin
    # what is seen of the first and the last one may not be all of it, and the first may hold what was before
    seen[-1] &= length[-1] >= usual
    seen[0] &= usual <= length[0] <= 2 * length[1:].max(initial=0)
    if not seen.any():
        seen[:] = True
    return Pieces(
        Unit.STEP,
        loop.begin[seen],
        until[seen],
        steps.thread,
        float(steps.count),
        int(np.count_nonzero(between[seen])) if np.mean(between[seen]) < 0.5 else 0,
    )


def by_batch(scene: Scene, known: Sequence, symbol: int) -> Pieces:
    """From one copy of an input to the next."""
    begin = known.since[heads_of(known.symbol, symbol, every=False)]
    return Pieces(Unit.BATCH, begin[:-1], begin[1:], _thread(scene), float(len(begin)))


def by_launch(scene: Scene, begins: Ints) -> tuple[Pieces, int]:
    """(pieces that hold as many of these launches each, how many that is)."""
    each = max(len(begins) // _WINDOWS, 1)
    edges = begins[::each]
    return Pieces(Unit.LAUNCH, edges[:-1], edges[1:], _thread(scene), float(max(len(edges) - 1, 0))), each


def by_second(scene: Scene) -> Pieces:
    """Windows of the time in which the GPUs were used."""
    spans = scene.analysis.gpu.spans
    if not spans:
        empty = np.zeros(0, np.int64)
        return Pieces(Unit.SECOND, empty, empty, _thread(scene), 0.0)
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    edges = np.linspace(first, last, _WINDOWS + 1).astype(np.int64)
    seconds = max(span.span_ns for span in spans) / _SECOND
    return Pieces(Unit.SECOND, edges[:-1], edges[1:], _thread(scene), seconds)


@dataclass(frozen=True, slots=True)
class Taken:
    """What each piece took: integers, none left out, so that several parts can be put together.

    Attributes:
        begin, until: Of each, ns.
        waited: For how long threads of its process waited for the GPU, ns.
        idle, calls, launches, voluntary, involuntary, causes: As of ``Measures``, not scaled.
        count, between: As of ``Pieces``.
    """

    unit: Unit
    begin: Ints
    until: Ints
    waited: Ints
    idle: Ints
    calls: Ints
    launches: Ints
    voluntary: Ints
    involuntary: Ints
    causes: dict[str, Ints]
    count: float
    between: int

    def and_later(self, later: Taken) -> Taken:
        """This, and what a later part of the recording took."""
        zeros = [np.zeros(len(one.begin), np.int64) for one in (self, later)]
        causes = {
            number: np.append(self.causes.get(number, zeros[0]), later.causes.get(number, zeros[1]))
            for number in {**self.causes, **later.causes}
        }
        columns = {name: np.append(getattr(self, name), getattr(later, name)) for name in _COLUMNS}
        return Taken(
            unit=self.unit,
            causes=causes,
            count=self.count + later.count,
            between=self.between + later.between,
            **columns,
        )


_COLUMNS = (
    "begin", "until", "waited", "idle", "calls", "launches", "voluntary", "involuntary",
)  # fmt: skip


def take(scene: Scene, outcome: Outcome, pieces: Pieces) -> Taken:
    """What each piece took."""
    begin, end = pieces.begin, pieces.until
    threads, calls, slices = scene.evidence.threads, scene.evidence.calls, scene.evidence.slices
    own = calls["pid"] == threads.pid[pieces.thread] if len(calls) else np.zeros(0, np.bool_)
    launches = own & np.isin(scene.evidence.group(calls), [Group.LAUNCH, Group.GRAPH, Group.COLLECTIVE])
    switched = (slices["row"] == pieces.thread) & ((slices["flags"] & OffFlag.BIRTH) == 0)
    forced = (slices["flags"] & OffFlag.INVOLUNTARY) != 0
    gaps = union(scene.gaps.begin, scene.gaps.end)
    return Taken(
        pieces.unit,
        begin,
        end,
        waited=covered(_waits(scene, pieces.thread), begin, end) if len(begin) else begin,
        idle=covered(gaps, begin, end),
        calls=_count(calls["begin"][own], begin, end),
        launches=_count(calls["begin"][launches], begin, end),
        voluntary=_count(slices["begin"][switched & ~forced], begin, end),
        involuntary=_count(slices["begin"][switched & forced], begin, end),
        causes={
            number: covered(_taken(scene, mask), begin, end) for number, mask in _by_cause(outcome).items()
        },
        count=pieces.count,
        between=pieces.between,
    )


def measures(taken: Taken, times: float = 1.0) -> Measures:
    """What each piece took that is no exception, divided by ``times``: how many units of work it is."""
    keep = _usual(taken)
    length = (taken.until - taken.begin)[keep]
    per_second = taken.unit is Unit.SECOND
    scale = _SECOND / np.maximum(length, 1) if per_second else np.full(len(length), 1 / times)

    def scaled(values: Ints) -> Floats:
        told: Floats = values[keep] * scale
        return told

    return Measures(
        taken.unit,
        duration=length.astype(np.float64) if per_second else length * scale,
        idle=scaled(taken.idle),
        calls=scaled(taken.calls),
        launches=scaled(taken.launches),
        voluntary=scaled(taken.voluntary),
        involuntary=scaled(taken.involuntary),
        causes={number: scaled(values) for number, values in taken.causes.items()},
        left_out=int(np.count_nonzero(~keep)),
        between=taken.between,
    )


def _usual(taken: Taken) -> Mask:
    """All pieces but one or two that are far longer than usual: what happens once is no part of a step.

    Of few pieces one only: a loader that hands over eight batches at once makes a long one now and then.
    Where the host runs ahead and then waits for the GPU, the wait is what the steps before it took.
    """
    length = taken.until - taken.begin
    cold = _warm_up(length) if taken.unit is not Unit.SECOND else np.zeros(len(length), np.bool_)
    far = length > LONELY * np.median(length) if len(length) else np.zeros(0, np.bool_)
    far &= ~cold
    far &= taken.waited < _WAITED * length
    few = LEAST_GAPS if len(length) >= _CERTAIN else 2
    usual: Mask = ~far if np.count_nonzero(far) < few else np.ones(len(length), np.bool_)
    return usual & ~cold


def _warm_up(length: Ints) -> Mask:
    """The first steps that are longer than usual, up to the last of them of which there is no like later."""
    first = min(_WARM_UP, len(length) // 4)
    cold = np.zeros(len(length), np.bool_)
    if first:
        later = np.maximum.accumulate(length[::-1])[::-1]
        last = np.flatnonzero(length[:first] > 2 * later[1 : first + 1])
        if len(last):
            cold[: last[-1] + 1] = length[: last[-1] + 1] > 2 * np.median(length)
    return cold


def _waits(scene: Scene, thread: int) -> tuple[Ints, Ints]:
    """When threads of this one's process waited for the GPU."""
    evidence = scene.evidence
    calls = evidence.calls
    groups = evidence.group(calls)
    rows = np.flatnonzero(
        ((groups == Group.SYNC) | (groups == Group.COPY)) & (calls["pid"] == evidence.threads.pid[thread])
    )
    return union(calls["begin"][rows], calls["end"][rows])


def regrouped(taken: Taken) -> Taken:
    """Windows of several parts as about as many as one recording has, each of parts that lie side by side."""
    length = taken.until - taken.begin
    if len(length) <= _WINDOWS:
        return taken
    middle = np.cumsum(length) - length / 2
    group = np.minimum(middle * _WINDOWS // max(int(length.sum()), 1), _WINDOWS - 1).astype(np.int64)
    heads = np.flatnonzero(np.diff(group, prepend=-1))

    def summed(values: Ints) -> Ints:
        sums: Ints = np.add.reduceat(values, heads)
        return sums

    begin = taken.begin[heads]
    return replace(
        taken,
        begin=begin,
        until=begin + summed(length),  # what lies between two parts is none of it
        waited=summed(taken.waited),
        idle=summed(taken.idle),
        calls=summed(taken.calls),
        launches=summed(taken.launches),
        voluntary=summed(taken.voluntary),
        involuntary=summed(taken.involuntary),
        causes={number: summed(values) for number, values in taken.causes.items()},
    )


def _thread(scene: Scene) -> int:
    """The thread that makes the steps, else the one that ends most gaps or makes most calls."""
    if scene.steps is not None:
        return scene.steps.thread
    rows = scene.gaps.thread if len(scene.gaps) else scene.evidence.calls["row"]
    return int(np.argmax(np.bincount(rows))) if len(rows) else 0


def _count(times: Ints, begin: Ints, end: Ints) -> Ints:
    times = np.sort(times)
    return np.searchsorted(times, end) - np.searchsorted(times, begin)


def _by_cause(outcome: Outcome) -> dict[str, Mask]:
    return {
        CATALOGUE[row].number: outcome.cause == row for row in np.unique(outcome.cause).tolist() if row >= 0
    }


def _taken(scene: Scene, mask: Mask) -> tuple[Ints, Ints]:
    return union(scene.segments.begin[mask], scene.segments.end[mask])
