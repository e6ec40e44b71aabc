"""Two recordings of one program, before and after a change: its steps and losses compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Literal

import numpy as np

from gputop.analysis.answer.kernel_report import ExactReport
from gputop.analysis.answer.report import MAX_GAIN, Finding, LossKind, Range, Report
from gputop.analysis.evidence.columns import Floats, Ints
from gputop.analysis.findings.step_findings import MEASURES, Measures, PieceTimes, Unit, measures
from gputop.analysis.work_matching import Ratio
from gputop.documents.fields import HIDDEN, Mark, marked
from gputop.documents.shared_schema import LostEventsJson, one_of
from gputop.engine.calls.stack_table import Line
from gputop.format import format_ns

SCHEMA: Final = "gputop.diff/1"
LEAST_CHANGE = 0.05  # a smaller difference is no change: two runs of one program differ by as much
SURE = 1.5  # a difference this many times the error of the means is not due to chance
FEW = 8  # steps; with fewer a small difference may be due to chance
_WHAT = {Unit.LAUNCH: "the work behind one launch of the kernels that both launch"}
_MOSTLY = 0.5  # share of a loss that must be proved for the proved part to be compared
_OTHER_WORK = 1.5  # a step that launches this many times as much may be other work


Bound = Annotated[str, one_of("lower", "upper")]


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of a measure over the steps.

    Attributes:
        usual: The mean. A loader that returns four batches at once makes most steps short and some long,
            which a median does not show.
        off: The error of ``usual``: the range of the partial sums' deviation from an even pace, by the count.
            Alternating long and short steps deviate little.
    """

    count: int
    usual: float
    median: float
    quartiles: tuple[float, float]
    off: Annotated[float, HIDDEN]

    @property
    @marked(Mark())
    def mean(self) -> float:
        """``usual``, by its older name."""
        return self.usual


class Change(str, Enum):
    """The change of a cause."""

    GONE = "gone"
    NEW = "new"
    LESS = "less"
    MORE = "more"
    SAME = "same"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure before and after; ``clear`` when the difference is larger than the spread."""

    name: Annotated[str, one_of(*MEASURES)]
    before: Spread | None
    after: Spread | None

    @property
    @marked(Mark())
    def clear(self) -> bool:
        """True if the change is certain."""
        return self.before is not None and self.after is not None and _differ(self.before, self.after)


@dataclass(frozen=True, slots=True)
class CauseChange:
    """One cause before and after, per step, batch, launch or second.

    Attributes:
        before, after: Its loss, ns; None where it is no finding.
        proved: True if the losses are lower bounds, else they are upper ones.
        spread_before, spread_after: Over the steps; None for causes outside of gaps.
        line: The line of its call, after the change where it is still made; None where unknown.
        gain_ns: The gain that ``explain`` reports for BEFORE, ns; None where the cause is new.
    """

    cause: str
    kind: LossKind
    title: str
    change: Change
    before: Annotated[float | None, Mark("before_ns")]
    after: Annotated[float | None, Mark("after_ns")]
    proved: Annotated[bool, HIDDEN]
    spread_before: Annotated[Spread | None, Mark("before")]
    spread_after: Annotated[Spread | None, Mark("after")]
    gain_ns: Annotated[float | None, MAX_GAIN]
    line: Line | None = None

    @property
    @marked(Mark())
    def bound(self) -> Bound:
        """The kind of bound of the losses."""
        return "lower" if self.proved else "upper"


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One of the two recordings."""

    duration_ns: int
    span_ns: int
    idle: Annotated[Range, Mark("idle_ns")]
    steps: int | None
    left_out: int
    between: int
    lost: LostEventsJson
    verdict: str


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two recordings."""

    report: Report
    measures: Measures
    units: float  # its work in steps of BEFORE, or batches, or seconds of the span

    def facts(self) -> SideFacts:
        """Return the fields of the document."""
        report, steps = self.report, self.report.steps
        return SideFacts(
            report.duration_ns,
            report.span_ns,
            report.idle,
            steps.count if steps is not None else None,
            self.measures.left_out,
            self.measures.between,
            report.lost,
            report.verdict,
        )


_SIDE = Mark(schema=SideFacts, make=Side.facts)


@dataclass(frozen=True, slots=True)
class Diff:
    """The comparison; ``ratio``: steps of BEFORE in one of AFTER."""

    sentence: str
    unit: Unit
    ratio: Annotated[Ratio, Mark("work")]
    before: Annotated[Side, _SIDE]
    after: Annotated[Side, _SIDE]
    measures: tuple[MeasureChange, ...]
    causes: tuple[CauseChange, ...]
    notes: tuple[str, ...]
    kernels: tuple[KernelChange, ...] = ()

    @property
    @marked(Mark())
    def schema(self) -> Literal["gputop.diff/1"]:
        """The name of the document."""
        return SCHEMA

    def measure(self, name: str) -> MeasureChange:
        """Return one measure by its name."""
        return next(one for one in self.measures if one.name == name)


def side(report: Report, pieces: PieceTimes, times: float | Floats) -> Side:
    """Return one side, each of whose pieces is ``times`` units of work."""
    return Side(report, measures(pieces, times), max(pieces.count * float(np.mean(times)), 1e-9))


def difference(unit: Unit, ratio: Ratio, first: Side, second: Side) -> Diff:
    """Compare two sides."""
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
        _sentence(unit, ratio, changes, causes),
        unit,
        ratio,
        first,
        second,
        changes,
        causes,
        tuple(_notes(first, second, changes, ratio)),
        kernel_changes(first.report.exact, second.report.exact, (first.units, second.units)),
    )


def spread(values: Floats | Ints) -> Spread | None:
    """Return the distribution of values; None without any."""
    if not len(values):
        return None
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    usual = float(values.mean())
    strays = np.append(0, np.cumsum(values - usual))
    off = float(strays.max() - strays.min()) / len(values) if len(values) > 1 else usual
    return Spread(len(values), usual, middle, (low, high), off)


def _differ(before: Spread, after: Spread) -> bool:
    """True if the difference of the means exceeds their errors, and ``LEAST_CHANGE``."""
    apart = abs(after.usual - before.usual)
    return apart > SURE * (before.off + after.off) and apart > LEAST_CHANGE * max(before.usual, after.usual)


def _causes(before: Side, after: Side) -> Iterator[CauseChange]:
    """The causes of findings in either, largest first."""
    found: dict[tuple[str, LossKind], tuple[list[Finding], list[Finding]]] = {}
    for place, side in enumerate((before, after)):
        for finding in side.report.findings:
            found.setdefault((finding.cause, finding.kind), ([], []))[place].append(finding)
    rows = [_cause(key, was, now, before, after) for key, (was, now) in found.items()]
    yield from sorted(rows, key=lambda row: -max(row.before or 0, row.after or 0))


def _cause(
    key: tuple[str, LossKind], was: Sequence[Finding], now: Sequence[Finding], before: Side, after: Side
) -> CauseChange:
    cause, kind = key
    # one bound for both sides: the lower one, unless it leaves out most of the loss
    both = [finding.loss for finding in (*was, *now)]
    sure = sum(loss.lower for loss in both)
    proved = sure > 0 and sure >= _MOSTLY * sum(loss.middle for loss in both)
    losses: list[float | None] = []
    for side, findings in ((before, was), (after, now)):
        total = sum(one.loss.lower if proved else one.loss.upper for one in findings)
        losses.append(total / side.units if findings else None)
    of_gaps = kind == "idle" and proved
    spreads = [spread(side.measures.causes.get(cause, np.zeros(0))) for side in (before, after)]
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
        sum(one.gain.ns for one in was) / before.units if was else None,
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


def _sentence(
    unit: Unit, ratio: Ratio, measures: Sequence[MeasureChange], causes: Sequence[CauseChange]
) -> str:
    parts = [_idleness(measures[0]) if unit is Unit.SECOND else _pace(measures[0], unit, ratio)]
    if not ratio.known:
        parts.insert(0, "a step of AFTER is other work than one of BEFORE, so their times are not compared")
    for row in causes:
        if row.change is Change.GONE:
            parts.append(f"{row.cause} is gone ({_loss(row, row.before, unit)})")
        elif row.change in (Change.LESS, Change.MORE):
            parts.append(
                f"{row.cause} costs {_loss(row, row.after, unit)} instead of {format_ns(row.before)}"
            )
    new = [f"{row.cause}, {_loss(row, row.after, unit)}" for row in causes if row.change is Change.NEW]
    parts.append(f"new: {'; '.join(new)}" if new else "no new cause")
    return "; ".join(parts) + "."


def _pace(duration: MeasureChange, unit: Unit, ratio: Ratio) -> str:
    was, now = duration.before, duration.after
    if was is None or now is None:
        return f"there is no {unit} to compare"
    what = _WHAT.get(unit, f"each {unit}") if ratio.times == 1 else "the work of one step of BEFORE"
    if not duration.clear:
        return f"no clear change: {what} takes {format_ns(now.usual)}, before {format_ns(was.usual)}"
    times = max(was.usual, now.usual) / max(min(was.usual, now.usual), 1)
    word = "fast" if now.usual < was.usual else "long"
    pace = f"{format_ns(now.usual)} instead of {format_ns(was.usual)}"
    return f"{what} takes {pace} ({times:.1f} times as {word})"


def _idleness(idle: MeasureChange) -> str:
    was, now = idle.before, idle.after
    if was is None or now is None:
        return "one of the two enqueued no GPU work"
    usual = [format_ns(side.usual) if side.usual else "0" for side in (now, was)]
    if not idle.clear:
        return f"no clear change: the GPU is idle for {usual[0]} a second, before {usual[1]}"
    return f"the GPU is idle for {usual[0]} a second instead of {usual[1]}"


def _loss(row: CauseChange, ns: float | None, unit: Unit) -> str:
    return f"{'' if row.proved else 'up to '}{format_ns(ns)} a {unit}"


def _notes(before: Side, after: Side, measures: Sequence[MeasureChange], ratio: Ratio) -> Iterator[str]:
    if ratio.times != 1:
        yield (
            f"a step of AFTER is the work of {ratio.times:.3g} steps of BEFORE, by its {ratio.by}: all "
            "figures are for the work of one step of BEFORE"
        )
    for name, side in (("BEFORE", before), ("AFTER", after)):
        yield from _notes_of(name, side)
    launches = next(one for one in measures if one.name == "launches")
    if launches.before is not None and launches.after is not None and not ratio.shown:
        was, now = launches.before.usual, launches.after.usual
        if max(was, now) > _OTHER_WORK * min(was, now):
            unit = _PER.get(before.measures.unit, "step")
            yield (
                f"a {unit} has {now:.0f} launches instead of {was:.0f}, and no copy of an input shows that "
                "it is the same work"
            )


def _notes_of(name: str, side: Side) -> Iterator[str]:
    unit, count = side.measures.unit, len(side.measures.duration)
    if unit is not Unit.STEP and side.report.steps is None:
        yield f"{name} has no steps: all figures are per {_PER[unit]}"
    if side.measures.left_out:
        yield f"{name}: {_plural(side.measures.left_out, unit)} far longer than usual not counted"
    if side.measures.between:
        yield f"{name}: {_plural(side.measures.between, unit)} followed by other work, counted too"
    if 0 < count < FEW:
        yield f"{name} has only {_plural(count, unit)}: a small difference may be noise"
    if side.report.lost_events:
        yield f"{name}: {side.report.lost_events} events are lost, so its figures are too low"
    if not side.report.coverage:
        yield f"{name}: NVML contradicts the proofs, so its idle time is uncertain"


_PER = {
    Unit.SECOND: "second of the time in which the GPU was used",
    Unit.BATCH: "batch that both copy",
    Unit.LAUNCH: "launch of the kernels that both launch",
}


def _plural(count: int, unit: Unit) -> str:
    if count == 1:
        return f"1 {unit}"
    return f"{count} {'batches' if unit is Unit.BATCH else 'parts' if unit is Unit.LAUNCH else f'{unit}s'}"


# The same by kernel: the GPU time of equal work, where both recordings have kernel times.

KernelBecame = Annotated[str, one_of("gone", "new", "slower", "faster", "more", "fewer", "same")]


@dataclass(frozen=True, slots=True)
class KernelSide:
    """The runs of one name in one recording, per unit of work, and the time of one."""

    ns: float
    runs: float
    run_ns: float


@dataclass(frozen=True, slots=True)
class KernelChange:
    """The kernels of one name, in all processes; None where a recording has none."""

    name: str
    before: KernelSide | None
    after: KernelSide | None

    @property
    @marked(Mark())
    def change(self) -> KernelBecame:
        """``new``, ``gone``; ``slower`` or ``faster`` runs; else ``more`` or ``fewer``, or ``same``."""
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        for more, less, was, now in (
            ("slower", "faster", self.before.run_ns, self.after.run_ns),
            ("more", "fewer", self.before.runs, self.after.runs),
        ):
            if abs(now - was) > LEAST_CHANGE * max(was, now):
                return more if now > was else less
        return "same"

    @property
    def moved_ns(self) -> float:
        """The increase of GPU time per unit of work."""
        before, after = (one.ns if one is not None else 0.0 for one in (self.before, self.after))
        return after - before


def kernel_changes(
    before: ExactReport | None, after: ExactReport | None, units: tuple[float, float]
) -> tuple[KernelChange, ...]:
    """Return the change of each kernel, largest difference first; none where one has no kernel times."""
    if before is None or after is None:
        return ()
    sides = [dict(_sides(one, count)) for one, count in zip((before, after), units, strict=True)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    rows = [KernelChange(name, sides[0].get(name), sides[1].get(name)) for name in names]
    return tuple(sorted(rows, key=lambda row: (-abs(row.moved_ns), row.name)))


def _sides(report: ExactReport, units: float) -> Iterator[tuple[str, KernelSide]]:
    sums: dict[str, tuple[int, int]] = {}
    for one in report.kernels:
        ns, runs = sums.get(one.name, (0, 0))
        sums[one.name] = ns + one.ns, runs + one.runs
    for name, (ns, runs) in sums.items():
        yield name, KernelSide(ns / units, runs / units, ns / runs)
