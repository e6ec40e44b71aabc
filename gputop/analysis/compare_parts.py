"""Two ledgers compared, each with the pieces of work by which its losses are divided.

A whole recording is one part, a long one the sum of several. A step across the border of two parts counts
twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gputop.analysis import ledger
from gputop.analysis.build import ledger_of
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.steps import givers_of
from gputop.analysis.compare import Diff, difference, side
from gputop.analysis.evidence.columns import Floats, Ints
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.repetition import FEWEST, WorkSequence, sequence
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.step_findings import (
    PieceTimes,
    by_batch,
    by_second,
    by_step,
    one_after_the_other,
    piece_times,
    regrouped,
)
from gputop.analysis.ledger import Ledger, report_of
from gputop.analysis.work_matching import (
    SAME_STEP,
    Kernel,
    Profile,
    Ratio,
    common_input,
    common_launches,
    compare_work,
    inputs,
    launched,
    profile,
)

_INPUTS = 8  # of a part, by bytes copied
_SAME_SIZE = 0.02  # inputs of two parts whose sizes differ by no more are one
_SAME_WORK = 0.1  # likewise loops, by the launches of a step
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ComparedLoop:
    """The steps of one thread, of equal work."""

    pid: int
    tid: int
    profile: Profile
    times: PieceTimes


@dataclass(frozen=True, slots=True)
class Input:
    """Copies of one size to the device: ``size`` of one and ``volume`` of all, in bytes."""

    size: float
    volume: float
    times: PieceTimes


@dataclass(frozen=True, slots=True)
class Compared:
    """Consecutive parts of a recording, prepared for a comparison."""

    explained: Ledger  # their explanation
    loops: tuple[ComparedLoop, ...]  # their steps, by kind of work
    inputs: tuple[Input, ...]  # batches, which divide the time where there are no steps
    windows: PieceTimes  # windows of equal length, where nothing else can be compared
    launched: Mapping[Kernel, Ints]  # launches of each kernel in each of these windows


def compare(before: Evidence, after: Evidence) -> Diff:
    """Compare two recordings; see ``finish``."""
    return finish(*(compared_part(*ledger_of(one)) for one in (before, after)))


def compared_part(explained: Ledger, scene: AttributionContext, outcome: Outcome) -> Compared:
    """Prepare one part for a comparison."""
    loops: tuple[ComparedLoop, ...] = ()
    if scene.steps is not None:
        threads, steps = scene.evidence.threads, scene.steps
        pid, tid = int(threads.pid[steps.thread]), int(threads.tid[steps.thread])
        work = profile(scene.evidence, steps.main())
        loops = (ComparedLoop(pid, tid, work, piece_times(scene, outcome, by_step(steps))),)
    windows, known = piece_times(scene, outcome, by_second(scene)), _main_work(scene)
    if known is None or not len(windows.begin):
        return Compared(explained, loops, (), windows, {})
    calls, edges = scene.evidence.calls, np.append(windows.begin, windows.until[-1:])
    batches = tuple(
        Input(size, volume, piece_times(scene, outcome, by_batch(scene, known, symbol)))
        for symbol, size, volume in inputs(known, calls["bytes"][known.rows], FEWEST)[:_INPUTS]
    )
    of_kernels = launched(scene.evidence, int(calls["pid"][known.rows[0]]), edges)
    return Compared(explained, loops, batches, windows, of_kernels)


def _main_work(scene: AttributionContext) -> WorkSequence | None:
    """The work of the process that enqueues most."""
    if scene.steps is not None:
        return scene.steps.sequence
    givers = next(givers_of(scene.evidence), None)
    return None if givers is None else sequence(scene.evidence, givers)


def merge(earlier: Compared, later: Compared) -> Compared:
    """Join two consecutive parts."""
    return Compared(
        ledger.merge(earlier.explained, later.explained),
        _joined(
            earlier.loops,
            later.loops,
            _alike,
            lambda one, other: replace(one, times=one.times.and_later(other.times)),
        ),
        _joined(
            earlier.inputs,
            later.inputs,
            lambda one, other: abs(one.size - other.size) <= _SAME_SIZE * one.size,
            lambda one, other: Input(one.size, one.volume + other.volume, one.times.and_later(other.times)),
        ),
        earlier.windows.and_later(later.windows),
        one_after_the_other(
            earlier.launched, later.launched, (len(earlier.windows.begin), len(later.windows.begin))
        ),
    )


def _joined(
    earlier: Sequence[Row],
    later: Sequence[Row],
    alike: Callable[[Row, Row], bool],
    both: Callable[[Row, Row], Row],
) -> tuple[Row, ...]:
    """The rows of two parts, each later row joined to the first one like it."""
    rows = list(earlier)
    for one in later:
        place = next((number for number, row in enumerate(rows) if alike(row, one)), None)
        if place is None:
            rows.append(one)
        else:
            rows[place] = both(rows[place], one)
    return tuple(rows)


def _alike(one: ComparedLoop, other: ComparedLoop) -> bool:
    """True if the steps of two parts are equal work of one thread."""
    launches = sorted((one.profile.launches, other.profile.launches))
    same = launches[1] - launches[0] <= _SAME_WORK * launches[1]
    return (one.pid, one.tid) == (other.pid, other.tid) and same


def finish(before: Compared, after: Compared) -> Diff:
    """Compare per step of equal work, else per batch that both copy, per common launch, per second."""
    sides = before, after
    windows, times, ratio = _pieces(sides)
    first, second = (
        side(report_of(one.explained), pieces, worth)
        for one, pieces, worth in zip(sides, windows, times, strict=True)
    )
    found = difference(windows[0].unit, ratio, first, second)
    notes = [note for name, one in (("BEFORE", before), ("AFTER", after)) for note in _notes(name, one)]
    return replace(found, notes=(*notes, *found.notes))


def _pieces(
    sides: tuple[Compared, Compared],
) -> tuple[list[PieceTimes], Sequence[float | Floats], Ratio]:
    """(pieces of both, units of work in each, steps of BEFORE in one of AFTER)."""
    ratio = SAME_STEP
    loops = [loop for one in sides if (loop := _main(one.loops)) is not None]
    if len(loops) == 2:
        ratio = compare_work(loops[0].profile, loops[1].profile)
        if ratio.known:
            return [loop.times for loop in loops], (1.0, ratio.times), ratio
    known = [[(row, one.size, one.volume) for row, one in enumerate(part.inputs)] for part in sides]
    if common := common_input(known[0], known[1]):
        return (
            [part.inputs[row].times for part, row in zip(sides, common, strict=True)],
            (1.0, 1.0),
            SAME_STEP,
        )
    if launches := common_launches([one.launched for one in sides]):
        cut = [regrouped(one.windows, own) for one, own in zip(sides, launches, strict=True)]
        return [pieces for pieces, _worth in cut], [worth for _pieces, worth in cut], SAME_STEP
    return [regrouped(one.windows)[0] for one in sides], (1.0, 1.0), ratio


def _main(loops: Sequence[ComparedLoop]) -> ComparedLoop | None:
    """The loop with most of the time."""
    return max(loops, key=lambda one: int((one.times.until - one.times.begin).sum()), default=None)


def _notes(name: str, one: Compared) -> Iterator[str]:
    if one.explained.parts > 1:
        yield (
            f"{name} is too long to be analysed at once: {one.explained.parts} parts were analysed and "
            "joined; a step across a border counts twice or not at all"
        )
    main = _main(one.loops)
    if left := sum(len(loop.times.begin) for loop in one.loops if loop is not main):
        yield f"{name}: {left} steps of other work, or of another thread, are left out"
