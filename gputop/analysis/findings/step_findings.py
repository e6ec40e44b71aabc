"""The measures of each step as arrays, which ``gputop diff`` compares.

Without steps they are of each batch; without common batches, of equal numbers of common launches. Without
these, too, the span is cut into windows of equal length, and everything is counted per second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Annotated, Final, TypeVar

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.report import Finding, Growth, LongStep, LongSteps, StepFacts
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.steps import Steps
from gputop.analysis.chains.thread_places import hot_line
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.columns import Floats, Ints, Mask, among, covered, intersect, union
from gputop.analysis.evidence.repetition import WorkSequence, heads_of
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.gap_findings import LEAST_GAPS, LONELY
from gputop.documents.additive import LATER, SUM, Adds, added_up
from gputop.engine.calls.stack_table import Line
from gputop.format import format_count
from probes.schema import OffFlag

_WINDOWS, _FINE = 24, 10  # of a recording without steps; small ones in each
_SECOND = 1e9
_WAITED = 0.5  # of a long piece, in waits for the GPU
_WARM_UP = 50  # steps, at most, or a quarter of them
_CERTAIN = 24  # units; of fewer, two that are far longer than the others may well be usual
# columns of the measures by their key in JSON
MEASURES: Final = {
    "duration_ns": "duration",
    "idle_ns": "idle",
    "calls": "calls",
    "launches": "launches",
    "voluntary_switches": "voluntary",
    "involuntary_switches": "involuntary",
}
_COUNTED = tuple(MEASURES.values())[1:]
_COLUMNS = ("begin", "until", "waited", *_COUNTED)


class Unit(str, Enum):
    """The unit of all figures."""

    STEP = "step"
    BATCH = "batch"
    LAUNCH = "launch"
    SECOND = "second"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Pieces:
    """The measured pieces of time."""

    unit: Unit
    # begin, until: of each, ns
    begin: Ints
    until: Ints
    thread: int  # row of the thread whose switches count
    count: float  # number of all pieces, measured or not; of windows: seconds
    between: int = 0  # steps with other work between them and the next one, which counts


@dataclass(frozen=True, slots=True)
class Measures:
    """One row per step or batch, in their order; in windows all but ``duration`` is scaled to a second."""

    unit: Unit
    duration: Floats  # from the begin of one step to that of the next, ns
    idle: Floats  # idle time of the GPUs, ns: all gaps that are followed, proved and estimated
    calls: Floats  # outermost CUDA calls of the process that makes the steps
    launches: Floats  # those of them that launch kernels
    # voluntary, involuntary: context switches of the thread that makes the steps
    voluntary: Floats
    involuntary: Floats
    causes: dict[str, Floats]  # idle time by the cause's number, ns
    left_out: int  # steps that were far longer than usual
    between: int  # steps with other work behind them, as an evaluation, which counts

    def named(self) -> Iterator[tuple[str, Floats]]:
        """Yield (key in JSON, values) of each measure."""
        yield from ((name, getattr(self, column)) for name, column in MEASURES.items())


def by_step(steps: Steps) -> Pieces:
    """Return the steps of the main loop, each until the next one begins, whatever is between them."""
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
    # the first and the last one may be seen in part only, and the first may hold other work before it
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


def by_batch(scene: AttributionContext, known: WorkSequence, symbol: int) -> Pieces:
    """Return the pieces from one copy of an input to the next."""
    begin = known.since[heads_of(known.symbol, symbol, every=False)]
    return Pieces(Unit.BATCH, begin[:-1], begin[1:], _thread(scene), float(len(begin)))


def by_second(scene: AttributionContext) -> Pieces:
    """Return small windows of the time in which the GPUs were used, to be ``regrouped``."""
    spans = scene.analysis.gpu.spans
    if not spans:
        empty = np.zeros(0, np.int64)
        return Pieces(Unit.SECOND, empty, empty, _thread(scene), 0.0)
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    edges = np.linspace(first, last, _WINDOWS * _FINE + 1).astype(np.int64)
    seconds = max(span.span_ns for span in spans) / _SECOND
    return Pieces(Unit.SECOND, edges[:-1], edges[1:], _thread(scene), seconds)


@dataclass(frozen=True, slots=True)
class PieceTimes:
    """The measures of all pieces, as integers that parts of a recording can be joined from."""

    unit: Unit
    # begin, until: of each, ns
    begin: Ints
    until: Ints
    waited: Ints  # time in which threads of its process waited for the GPU, ns
    # idle, calls, launches, voluntary, involuntary, causes: as of ``Measures``, not scaled
    idle: Ints
    calls: Ints
    launches: Ints
    voluntary: Ints
    involuntary: Ints
    causes: dict[str, Ints]
    # count, between: as of ``Pieces``
    count: float
    between: int

    def and_later(self, later: PieceTimes) -> PieceTimes:
        """Return these and the pieces of a later part of the recording."""
        counts = len(self.begin), len(later.begin)
        return PieceTimes(
            unit=self.unit,
            causes=one_after_the_other(self.causes, later.causes, counts),
            count=self.count + later.count,
            between=self.between + later.between,
            **{name: np.append(getattr(self, name), getattr(later, name)) for name in _COLUMNS},
        )


Name = TypeVar("Name")


def one_after_the_other(
    earlier: Mapping[Name, Ints], later: Mapping[Name, Ints], counts: tuple[int, int]
) -> dict[Name, Ints]:
    """Join columns of two parts of so many rows each; 0 where a part lacks a column."""
    zeros = [np.zeros(count, np.int64) for count in counts]
    return {
        name: np.append(earlier.get(name, zeros[0]), later.get(name, zeros[1]))
        for name in {**earlier, **later}
    }


def piece_times(scene: AttributionContext, outcome: Outcome, pieces: Pieces) -> PieceTimes:
    """Return the measures of each piece."""
    begin, end = pieces.begin, pieces.until
    calls, slices = scene.evidence.calls, scene.evidence.slices
    own = _own_calls(scene, pieces.thread)
    switched = (slices["row"] == pieces.thread) & ((slices["flags"] & OffFlag.BIRTH) == 0)
    forced = (slices["flags"] & OffFlag.INVOLUNTARY) != 0
    gaps = union(scene.gaps.begin, scene.gaps.end)
    return PieceTimes(
        pieces.unit,
        begin,
        end,
        waited=covered(_waits(scene, pieces.thread), begin, end) if len(begin) else begin,
        idle=covered(gaps, begin, end),
        calls=_count(calls["begin"][own], begin, end),
        launches=_launches(scene, pieces),
        voluntary=_count(slices["begin"][switched & ~forced], begin, end),
        involuntary=_count(slices["begin"][switched & forced], begin, end),
        causes=_cause_times(scene, outcome, pieces),
        count=pieces.count,
        between=pieces.between,
    )


def _own_calls(scene: AttributionContext, thread: int) -> Mask:
    calls = scene.evidence.calls
    return calls["pid"] == scene.evidence.threads.pid[thread] if len(calls) else np.zeros(0, np.bool_)


def _launches(scene: AttributionContext, pieces: Pieces) -> Ints:
    calls = scene.evidence.calls
    own = _own_calls(scene, pieces.thread)
    own &= among(scene.evidence.group(calls), (Group.LAUNCH, Group.GRAPH, Group.COLLECTIVE))
    return _count(calls["begin"][own], pieces.begin, pieces.until)


def _cause_times(scene: AttributionContext, outcome: Outcome, pieces: Pieces) -> dict[str, Ints]:
    return {
        number: covered(_bounds(scene, mask), pieces.begin, pieces.until)
        for number, mask in _by_cause(outcome).items()
    }


def measures(pieces: PieceTimes, times: float | Floats = 1.0) -> Measures:
    """Return the measures of the usual pieces, divided by ``times``, the units of work of each."""
    keep = _usual(pieces)
    length = (pieces.until - pieces.begin)[keep]
    per_second = pieces.unit is Unit.SECOND
    scale = _SECOND / np.maximum(length, 1) if per_second else 1 / np.broadcast_to(times, len(keep))[keep]

    def scaled(values: Ints) -> Floats:
        return values[keep] * scale

    return Measures(
        pieces.unit,
        duration=length.astype(np.float64) if per_second else length * scale,
        **{name: scaled(getattr(pieces, name)) for name in _COUNTED},
        causes={number: scaled(values) for number, values in pieces.causes.items()},
        left_out=int(np.count_nonzero(~keep)),
        between=pieces.between,
    )


def _usual(pieces: PieceTimes) -> Mask:
    """Return all pieces but one or two that are far longer than usual: single events are no part of a step.

    Of few pieces only one is left out: a loader that hands over eight batches at once makes a long one now
    and then. A wait of a host that ran ahead belongs to the steps before it.
    """
    length = pieces.until - pieces.begin
    cold = _warm_up(length) if pieces.unit is not Unit.SECOND else np.zeros(len(length), np.bool_)
    far = length > LONELY * np.median(length) if len(length) else np.zeros(0, np.bool_)
    far &= ~cold
    far &= pieces.waited < _WAITED * length
    few = LEAST_GAPS if len(length) >= _CERTAIN else 2
    usual: Mask = ~far if np.count_nonzero(far) < few else np.ones(len(length), np.bool_)
    return usual & ~cold


def _warm_up(length: Ints) -> Mask:
    """Return the first steps that are longer than usual, up to the last that is longer than any later one."""
    first = min(_WARM_UP, len(length) // 4)
    cold = np.zeros(len(length), np.bool_)
    if first:
        later = np.maximum.accumulate(length[::-1])[::-1]
        last = np.flatnonzero(length[:first] > 2 * later[1 : first + 1])
        if len(last):
            cold[: last[-1] + 1] = length[: last[-1] + 1] > 2 * np.median(length)
    return cold


def _waits(scene: AttributionContext, thread: int) -> tuple[Ints, Ints]:
    """Return when threads of this one's process waited for the GPU."""
    evidence, calls = scene.evidence, scene.evidence.calls
    own = calls["pid"] == evidence.threads.pid[thread]
    rows = np.flatnonzero(among(evidence.group(calls), (Group.SYNC, Group.COPY)) & own)
    return union(calls["begin"][rows], calls["end"][rows])


def regrouped(windows: PieceTimes, launches: Ints | None = None) -> tuple[PieceTimes, Floats]:
    """Join small windows to ``_WINDOWS``, of equal time or of as many launches.

    Args:
        windows: The windows, of one part or of several.
        launches: Launches of equal work in each; None: equal time.

    Returns:
        The pieces, and the launches in each.
    """
    length = windows.until - windows.begin
    weight = length if launches is None else launches
    middle = np.cumsum(weight) - weight / 2
    group = np.minimum(middle * _WINDOWS // max(int(weight.sum()), 1), _WINDOWS - 1).astype(np.int64)
    heads = np.flatnonzero(np.diff(group, prepend=-1))

    def summed(values: Ints) -> Ints:
        return np.add.reduceat(values, heads) if len(heads) else values

    begin = windows.begin[heads]
    pieces = PieceTimes(
        unit=windows.unit if launches is None else Unit.LAUNCH,
        begin=begin,
        until=begin + summed(length),  # without the time between two parts
        causes={number: summed(values) for number, values in windows.causes.items()},
        count=windows.count if launches is None else float(len(heads)),
        between=windows.between,
        **{name: summed(getattr(windows, name)) for name in ("waited", *_COUNTED)},
    )
    return pieces, summed(weight).astype(np.float64)


def _thread(scene: AttributionContext) -> int:
    """Return the thread that makes the steps, else the one that ends most gaps or makes most calls."""
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


def _bounds(scene: AttributionContext, mask: Mask) -> tuple[Ints, Ints]:
    return union(scene.segments.begin[mask], scene.segments.end[mask])


# The steps of a report: their length, the far longer ones, and their growth.

UNEVEN = 2.0  # times the median, from which on the mean is typical of no step
FAR = 3.0  # times the median: a long step
NAMED = 3  # of the long ones
BINS, FEWEST = 12, 48  # parts of a loop that are compared; steps of which a trend can be seen
GROWN = 1.3  # times as long in the last quarter as in the first
STEADY = 0.85  # rank correlation of the parts' means with their order
COUNTED = 1.1  # times as many launches, from which on they are reported to grow
FEWEST_UNEVEN = 4  # steps of which a few may be long
MOST_ROWS = 1 << 16  # of steps: of more, some share a row
UNKNOWN = "idle time of unknown cause"
GPU_WORK, HOST_WORK = "the GPU's own work", "the host's work while the GPU is at work"
# ``count`` steps: begin of the first, ns since the start of the recording, and their sums
STEP: Final = np.dtype(
    [(name, "i8") for name in ("begin", "ns", "count", "waited", "idle", "pending", "launches")]
)
FoundSteps = npt.NDArray[np.void]


@dataclass(frozen=True)  # without slots: a live screen compares the same steps with every look
class Loops:
    """The steps of one thread, in rows that add up."""

    pid: int
    tid: int
    count: Annotated[int, SUM]  # number of steps, those in no row included
    # median_ns, usual_ns: of one step, times ``count``
    median_ns: Annotated[int, SUM]
    usual_ns: Annotated[int, SUM]
    # in order; a row may stand for several steps that follow each other
    rows: Annotated[FoundSteps, Adds(np.append)]
    causes: Mapping[str, Ints]  # the idle time of each row by cause, ns
    hot: Mapping[str, Line]  # the line of a cause's idle time, towards the end
    together: Annotated[int, LATER] = 1  # how many of them may be one step of the program

    @cached_property
    def long(self) -> LongSteps | None:
        """The long steps, where few take most of the time."""
        return long_steps(self.rows)

    @cached_property
    def grow(self) -> bool:
        """True if the steps get longer from the begin of the loop to its end."""
        if len(self.rows) < FEWEST:
            return False
        first, last = _ends(self.rows, self.rows["ns"])
        means = [part["ns"].sum() / part["count"].sum() for part in np.array_split(self.rows, BINS)]
        return last >= GROWN * first and _order(np.array(means)) >= STEADY

    def settled(self) -> Loops:
        """Return these without the rows unless they grow: all else that is reported is computed then."""
        if self.grow:
            return self
        made = replace(self, rows=np.zeros(0, STEP), causes={})
        vars(made).update(long=self.long, grow=self.grow)
        return made

    def joined(self, later: Loops) -> Loops:
        """Return these and those of a later part."""
        made = replace(
            added_up(self, later),
            causes=one_after_the_other(self.causes, later.causes, (len(self.rows), len(later.rows))),
            hot={**self.hot, **later.hot},
        )
        return made._thinned() if len(made.rows) > MOST_ROWS else made

    def _thinned(self) -> Loops:
        """Return rows of two ordinary steps that follow each other; a long one keeps its own."""
        own = _own(self.rows)
        far = own > FAR * np.median(own)
        head = np.ones(len(own), np.bool_)
        head[1::2] = far[1::2] | far[:-1:2][: len(head[1::2])]
        heads = np.flatnonzero(head)
        rows = np.zeros(len(heads), STEP)
        for name in STEP.names or ():
            rows[name] = np.add.reduceat(self.rows[name], heads)
        rows["begin"] = self.rows["begin"][heads]
        causes = {number: np.add.reduceat(ns, heads) for number, ns in self.causes.items()}
        return replace(self, rows=rows, causes=causes)


def loops_of(scene: AttributionContext, outcome: Outcome) -> Loops | None:
    """Return the steps of the process that submits most work; None without any."""
    steps, threads = scene.steps, scene.evidence.threads
    if steps is None:
        return None
    pieces = by_step(steps)
    rows = np.zeros(len(pieces.begin), STEP)
    start = int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))
    rows["begin"], rows["ns"], rows["count"] = pieces.begin - start, pieces.until - pieces.begin, 1
    rows["waited"] = covered(_waits(scene, steps.thread), pieces.begin, pieces.until)
    rows["idle"] = covered(union(scene.gaps.begin, scene.gaps.end), pieces.begin, pieces.until)
    rows["launches"] = _launches(scene, pieces)
    rows["pending"] = _pending(scene, pieces)
    hot: dict[str, Line] = {}
    if len(rows) >= FEWEST and _ends(rows, rows["ns"])[1] >= GROWN * _ends(rows, rows["ns"])[0]:
        late = scene.segments.begin >= pieces.begin[-(len(rows) // 4)]
        for number, mask in _by_cause(outcome).items():
            if (found := hot_line(scene, np.flatnonzero(mask & late))) is not None:
                hot[number] = found.line
    return Loops(
        int(threads.pid[steps.thread]),
        int(threads.tid[steps.thread]),
        steps.count,
        steps.median_ns * steps.count,
        steps.usual_ns * steps.count,
        rows,
        _cause_times(scene, outcome, pieces),
        hot,
        steps.together,
    )


def step_facts(loops: Loops, findings: Sequence[Finding], *, gpus: bool) -> StepFacts:
    """Return the figures of steps; ``gpus``: True if it is known when a GPU was at work."""
    count = max(loops.count, 1)
    return StepFacts(
        loops.count,
        loops.median_ns // count,
        loops.usual_ns // count,
        loops.pid,
        loops.tid,
        loops.long,
        _growth(loops, findings, gpus=gpus),
        loops.together,
    )


def _own(rows: FoundSteps) -> Floats:
    """Return the time of a step without waits for the GPU, which belong to others."""
    own: Floats = np.maximum(rows["ns"] - rows["waited"], 0) / rows["count"]
    return own


def long_steps(rows: FoundSteps) -> LongSteps | None:
    """Return the steps that took much longer than the usual one, where they make up much of the time."""
    own, count = _own(rows), rows["count"]
    if count.sum() < FEWEST_UNEVEN:
        return None
    median, whole = max(float(np.median(own)), 1.0), float((own * count).sum())
    if whole <= UNEVEN * median * count.sum():
        return None
    far = np.flatnonzero(own > FAR * np.median(own))
    if (own * count)[far].sum() < 0.5 * whole:
        return None
    order = far[np.argsort(-rows["ns"][far], kind="stable")]
    longest = rows[order[:NAMED]]
    return LongSteps(
        int(rows["ns"].sum()),
        int(count[far].sum()),
        int(rows["ns"][far].sum()),
        tuple(map(LongStep, longest["begin"].tolist(), longest["ns"].tolist())),
    )


def _growth(loops: Loops, findings: Sequence[Finding], *, gpus: bool) -> Growth | None:
    """Return how steps get longer from the begin of the loop to its end, and which part; None if not."""
    rows, whole = loops.rows, loops.rows["ns"]
    if not loops.grow:
        return None
    first, last = _ends(rows, whole)
    parts = {number: _grown(rows, ns) for number, ns in loops.causes.items()}
    parts[UNKNOWN] = _grown(rows, rows["idle"]) - sum(parts.values())
    worked = _grown(rows, whole - rows["idle"])
    parts[GPU_WORK] = min(worked, _grown(rows, rows["pending"])) if gpus else 0.0
    parts[HOST_WORK] = worked - parts[GPU_WORK]
    most = max(parts, key=lambda one: parts[one])
    title, line = _named(most, findings)
    launches = _ends(rows, rows["launches"])
    more = (
        f"its launches grow from {format_count(launches[0])} to {format_count(launches[1])}"
        if launches[1] > COUNTED * max(launches[0], 1)
        else f"its launches stay at {format_count(launches[1])}"
    )
    longer_by = int(min(parts[most], last - first))
    line = loops.hot.get(most, line)
    return Growth(int(rows["count"].sum()), int(first), int(last), longer_by, title, more, line)


def _pending(scene: AttributionContext, pieces: Pieces) -> Ints:
    """Return the certain work of all GPUs together in each step, ns."""
    total = np.zeros(len(pieces.begin), np.int64)
    for span in scene.analysis.gpu.spans:
        pending = scene.analysis.gpu.pending(span.device)
        pending = intersect(pending, (pieces.begin[:1], pieces.until[-1:]))
        total += covered(pending, pieces.begin, pieces.until)
    return total


def _named(part: str, findings: Sequence[Finding]) -> tuple[str, Line | None]:
    """Return the name of a part, and its line."""
    for finding in findings:
        if finding.cause == part:
            return f"{finding.title} [{part}]", finding.line
    titles = {cause.number: f"{cause.title} [{part}]" for cause in CATALOGUE}
    return titles.get(part, part), None


def _ends(rows: FoundSteps, values: Ints) -> tuple[float, float]:
    """Return the mean of a value per step, in the first quarter of the rows and in the last one."""
    quarter = max(len(rows) // 4, 1)
    first, last = (
        float(values[part].sum() / max(rows["count"][part].sum(), 1))
        for part in (slice(quarter), slice(-quarter, None))
    )
    return first, last


def _grown(rows: FoundSteps, values: Ints) -> float:
    first, last = _ends(rows, values)
    return last - first


def _order(means: Floats) -> float:
    """Return the rank correlation of values with their order: 1 where each is larger than the one before."""
    ranks: Ints = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    return float(np.corrcoef(ranks, np.arange(len(means)))[0, 1])
