"""Two recordings of one program, before and after a change: what became of its steps and of what it lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gputop.explain.build import examine
from gputop.explain.evidence import Evidence
from gputop.explain.persteps import Measures, Unit, measure
from gputop.explain.ranges import Ints
from gputop.explain.report import Finding, Report
from gputop.format import format_ns
from gputop.lines import Line

BLOCKS = 8  # a recording is cut into this many blocks of steps; their means say how sure its mean is
LEAST_CHANGE = 0.02  # smaller differences are no change, however sure
_OTHER_WORK = 1.5  # a step that launches this many times as much may be another piece of work


@dataclass(frozen=True, slots=True)
class Spread:
    """How a measure lies over the steps.

    Attributes:
        usual: The median of the means of consecutive blocks of steps. A loader that hands over four batches
            at once makes most steps short and some long, which a median of steps does not see; what happened
            only once makes one block long, which a mean of all does not forgive.
        blocks: Quartiles of those means: how sure ``usual`` is. Blocks, because neighbouring steps are alike.
    """

    count: int
    usual: float
    mean: float
    median: float
    quartiles: tuple[float, float]
    blocks: tuple[float, float]


class Change(str, Enum):
    """What became of a cause."""

    GONE = "gone"
    NEW = "new"
    LESS = "less"
    MORE = "more"
    SAME = "same"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure before and after; ``clear`` when the difference is larger than the spread."""

    name: str
    before: Spread | None
    after: Spread | None

    @property
    def clear(self) -> bool:
        """Whether it changed for certain."""
        return self.before is not None and self.after is not None and _differ(self.before, self.after)


@dataclass(frozen=True, slots=True)
class CauseChange:
    """One cause before and after, per step or per second.

    Attributes:
        before, after: Its loss, ns; None where it is no finding.
        proved: Whether the loss is a lower bound, else it is an upper one.
        spread_before, spread_after: Over the steps; None for causes that are no pieces of gaps.
        line: Where in the program its call is made, after the change where it still is; None where unknown.
        max_gain: What ``explain`` said before that a change can win, ns; None where it is new.
    """

    cause: str
    kind: str
    title: str
    change: Change
    before: float | None
    after: float | None
    proved: bool
    spread_before: Spread | None
    spread_after: Spread | None
    max_gain: float | None
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two recordings."""

    report: Report
    measures: Measures
    units: float  # steps, or seconds of the span


@dataclass(frozen=True, slots=True)
class Diff:
    """The comparison."""

    sentence: str
    unit: Unit
    before: Side
    after: Side
    measures: tuple[MeasureChange, ...]
    causes: tuple[CauseChange, ...]
    notes: tuple[str, ...]

    def measure(self, name: str) -> MeasureChange:
        """One measure by its name."""
        return next(one for one in self.measures if one.name == name)


def compare(before: Evidence, after: Evidence) -> Diff:
    """Compares per step if both recordings have steps, else per second of their spans."""
    explained = [examine(evidence) for evidence in (before, after)]
    unit = Unit.STEP if all(scene.steps for _report, scene, _outcome in explained) else Unit.SECOND
    sides = []
    for report, scene, outcome in explained:
        measures = measure(scene, outcome, unit)
        seconds = max((gpu.span_ns for gpu in report.gpus), default=0) / 1e9
        units = float(len(measures.duration)) if unit is Unit.STEP else seconds
        sides.append(Side(report, measures, max(units, 1e-9)))
    first, second = sides
    changes = tuple(
        MeasureChange(name, spread(values), spread(other))
        for (name, values), (_name, other) in zip(
            first.measures.named(), second.measures.named(), strict=True
        )
    )
    if unit is Unit.SECOND:
        changes = changes[1:]  # a second takes a second
    causes = tuple(_causes(first, second))
    return Diff(
        _sentence(unit, changes, causes),
        unit,
        first,
        second,
        changes,
        causes,
        tuple(_notes(first, second, changes)),
    )


def spread(values: Ints) -> Spread | None:
    """How values lie; None without any."""
    if not len(values):
        return None
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    means = [float(part.mean()) for part in np.array_split(values, min(BLOCKS, len(values)))]
    least, usual, most = np.percentile(means, [25, 50, 75]).tolist()
    return Spread(len(values), usual, float(values.mean()), middle, (low, high), (least, most))


def _differ(before: Spread, after: Spread) -> bool:
    """The middle halves of the blocks lie apart, and by more than a trifle."""
    apart = before.blocks[1] < after.blocks[0] or after.blocks[1] < before.blocks[0]
    return apart and abs(after.usual - before.usual) > LEAST_CHANGE * max(before.usual, after.usual)


def _causes(before: Side, after: Side) -> Iterator[CauseChange]:
    """Every cause that is a finding in one of the two, the largest first."""
    found: dict[tuple[str, str], tuple[list[Finding], list[Finding]]] = {}
    for place, side in enumerate((before, after)):
        for finding in side.report.findings:
            found.setdefault((finding.cause, finding.kind), ([], []))[place].append(finding)
    rows = [_cause(key, was, now, before, after) for key, (was, now) in found.items()]
    yield from sorted(rows, key=lambda row: -max(row.before or 0, row.after or 0))


def _cause(
    key: tuple[str, str], was: Sequence[Finding], now: Sequence[Finding], before: Side, after: Side
) -> CauseChange:
    cause, kind = key
    # for both sides the same bound: a lower one if one of them has it
    proved = any(finding.loss.lower for finding in (*was, *now))
    losses: list[float | None] = []
    for side, findings in ((before, was), (after, now)):
        total = sum(one.loss.lower if proved else one.loss.upper for one in findings)
        losses.append(total / side.units if findings else None)
    of_gaps = kind == "idle" and proved
    spreads = [spread(side.measures.causes.get(cause, np.zeros(0, np.int64))) for side in (before, after)]
    return CauseChange(
        cause,
        kind,
        [*was, *now][0].title,
        _change(losses[0], losses[1], spreads[0], spreads[1]),
        losses[0],
        losses[1],
        proved,
        spreads[0] if of_gaps else None,
        spreads[1] if of_gaps else None,
        sum(one.max_gain_ns for one in was) / before.units if was else None,
        next((one.line for one in (*now, *was) if one.line is not None), None),
    )


def _change(before: float | None, after: float | None, first: Spread | None, second: Spread | None) -> Change:
    if before is None or after is None:
        return Change.NEW if before is None else Change.GONE
    if first is not None and second is not None and not _differ(first, second):
        return Change.SAME
    if abs(after - before) <= LEAST_CHANGE * max(before, after):
        return Change.SAME
    return Change.LESS if after < before else Change.MORE


def _sentence(unit: Unit, measures: Sequence[MeasureChange], causes: Sequence[CauseChange]) -> str:
    parts = [_pace(measures[0]) if unit is Unit.STEP else _idleness(measures[0])]
    parts += [_told(row, unit) for row in causes if row.change not in (Change.NEW, Change.SAME)]
    new = [f"{row.cause}, {_loss(row, row.after, unit)}" for row in causes if row.change is Change.NEW]
    parts.append(f"new: {'; '.join(new) or 'nothing'}")
    return "; ".join(parts) + "."


def _pace(duration: MeasureChange) -> str:
    was, now = duration.before, duration.after
    if was is None or now is None:
        return "there is no step to compare"
    if not duration.clear:
        return f"no clear change: each step takes {format_ns(now.usual)}, before {format_ns(was.usual)}"
    times = max(was.usual, now.usual) / max(min(was.usual, now.usual), 1)
    word = "fast" if now.usual < was.usual else "long"
    pace = f"{format_ns(now.usual)} instead of {format_ns(was.usual)}"
    return f"each step takes {pace} ({times:.1f} times as {word})"


def _idleness(idle: MeasureChange) -> str:
    was, now = idle.before, idle.after
    if was is None or now is None:
        return "one of the two gave no GPU work"
    told = [format_ns(side.usual) if side.usual else "0" for side in (now, was)]
    if not idle.clear:
        return f"no clear change: the GPU is idle for {told[0]} a second, before {told[1]}"
    return f"the GPU is idle for {told[0]} a second instead of {told[1]}"


def _told(row: CauseChange, unit: Unit) -> str:
    if row.change is Change.GONE:
        return f"{row.cause} is gone: {_loss(row, row.before, unit)}"
    return f"{row.cause} takes {_loss(row, row.after, unit)} instead of {format_ns(row.before)}"


def _loss(row: CauseChange, ns: float | None, unit: Unit) -> str:
    return f"{'' if row.proved else 'up to '}{format_ns(ns)} a {unit}"


def _notes(before: Side, after: Side, measures: Sequence[MeasureChange]) -> Iterator[str]:
    for name, side in (("BEFORE", before), ("AFTER", after)):
        if side.measures.unit is Unit.SECOND and side.report.steps is None:
            yield f"{name} has no steps: everything is told per second of the time in which the GPU was used"
        if side.measures.left_out:
            steps = f"{side.measures.left_out} step{'s' * (side.measures.left_out > 1)}"
            yield f"{name}: {steps} far longer than usual not counted"
        if 0 < len(side.measures.duration) < BLOCKS:
            yield f"{name} has {len(side.measures.duration)} steps only: a small difference is chance"
        if side.report.lost_events:
            yield f"{name}: {side.report.lost_events} events are lost; what they would tell is left out"
        if not side.report.coverage:
            yield f"{name}: NVML contradicts the proofs, so its idle time is uncertain"
    launches = next(one for one in measures if one.name == "launches")
    if launches.before is not None and launches.after is not None and before.measures.unit is Unit.STEP:
        was, now = launches.before.usual, launches.after.usual
        if max(was, now) > _OTHER_WORK * min(was, now):
            yield f"a step makes {now:.0f} launches instead of {was:.0f}: maybe it is other work"
