"""Two ledgers compared, each beside the pieces of work that its losses are divided by.

A whole recording is one part, a long one the sum of several. Of several parts the steps are those that lie
within parts: one that crosses a border is counted twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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

_INPUTS = 8  # of a part, those of which most bytes are copied
_SAME_SIZE = 0.02  # inputs of two parts that are as near are one
_SAME_WORK = 0.1  # the same of the launches of a step


@dataclass(frozen=True, slots=True)
class ComparedLoop:
    """The steps of one thread, all of the same work."""

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
    """What parts of a recording that follow each other say for a comparison.

    Attributes:
        explained: Their explanation.
        loops: Their steps, each kind of work apart.
        inputs: Batches by which pieces are recognised where there are no steps.
        windows: Their time, where nothing else can be compared.
        launched: How often each kernel was launched in each of these windows.
    """

    explained: Ledger
    loops: tuple[ComparedLoop, ...]
    inputs: tuple[Input, ...]
    windows: PieceTimes
    launched: Mapping[Kernel, Ints]


def compare(before: Evidence, after: Evidence) -> Diff:
    """Compares per step of the same work, else per batch that both copy, per common launch, per second."""
    return finish(*(compared_part(*ledger_of(one)) for one in (before, after)))


def compared_part(explained: Ledger, scene: AttributionContext, outcome: Outcome) -> Compared:
    """What one part says."""
    loops: tuple[ComparedLoop, ...] = ()
    if scene.steps is not None:
        threads, steps = scene.evidence.threads, scene.steps
        pid, tid = int(threads.pid[steps.thread]), int(threads.tid[steps.thread])
        work = profile(scene.evidence, steps.main())
        loops = (ComparedLoop(pid, tid, work, piece_times(scene, outcome, by_step(steps))),)
    windows, known = piece_times(scene, outcome, by_second(scene)), _work_of(scene)
    if known is None or not len(windows.begin):
        return Compared(explained, loops, (), windows, {})
    edges = np.append(windows.begin, windows.until[-1:])
    of_kernels = launched(scene.evidence, int(scene.evidence.calls["pid"][known.rows[0]]), edges)
    return Compared(explained, loops, _inputs(scene, outcome, known), windows, of_kernels)


def _work_of(scene: AttributionContext) -> WorkSequence | None:
    """All that the process that gives a GPU the most work enqueues there."""
    if scene.steps is not None:
        return scene.steps.sequence
    givers = next(givers_of(scene.evidence), None)
    return None if givers is None else sequence(scene.evidence, givers)


def _inputs(scene: AttributionContext, outcome: Outcome, known: WorkSequence) -> tuple[Input, ...]:
    found = inputs(known, scene.evidence.calls["bytes"][known.rows], FEWEST)
    largest = sorted(found, key=lambda row: -row[2])[:_INPUTS]
    return tuple(
        Input(size, volume, piece_times(scene, outcome, by_batch(scene, known, symbol)))
        for symbol, size, volume in largest
    )


def merge(earlier: Compared, later: Compared) -> Compared:
    """Of two parts that follow each other."""
    loops = list(earlier.loops)
    for loop in later.loops:
        place = next((row for row, one in enumerate(loops) if _alike(one, loop)), None)
        if place is None:
            loops.append(loop)
        else:
            loops[place] = replace(loops[place], times=loops[place].times.and_later(loop.times))
    batches = list(earlier.inputs)
    for one in later.inputs:
        place = next(
            (
                row
                for row, known in enumerate(batches)
                if abs(known.size - one.size) <= _SAME_SIZE * known.size
            ),
            None,
        )
        if place is None:
            batches.append(one)
        else:
            known = batches[place]
            batches[place] = Input(known.size, known.volume + one.volume, known.times.and_later(one.times))
    return Compared(
        ledger.merge(earlier.explained, later.explained),
        tuple(loops),
        tuple(batches),
        earlier.windows.and_later(later.windows),
        one_after_the_other(
            earlier.launched, later.launched, (len(earlier.windows.begin), len(later.windows.begin))
        ),
    )


def _alike(one: ComparedLoop, other: ComparedLoop) -> bool:
    """Whether the steps of two parts are the same work of the same thread."""
    launches = sorted((one.profile.launches, other.profile.launches))
    same = launches[1] - launches[0] <= _SAME_WORK * launches[1]
    return (one.pid, one.tid) == (other.pid, other.tid) and same


def finish(before: Compared, after: Compared) -> Diff:
    """Compares per step of the same work, else per batch that both copy, per common launch, per second."""
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
    """(pieces of both, how many units of work each is, how many steps of BEFORE one of AFTER is)."""
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
    """The one that takes most of the time."""
    return max(loops, key=lambda one: int((one.times.until - one.times.begin).sum()), default=None)


def _notes(name: str, one: Compared) -> Iterator[str]:
    if one.explained.parts > 1:
        yield (
            f"{name} is too long to be looked at at once: {one.explained.parts} parts of it were, and "
            "joined; a step across a border between two counts twice or not at all"
        )
    main = _main(one.loops)
    if left := sum(len(loop.times.begin) for loop in one.loops if loop is not main):
        yield f"{name}: {left} steps of other work, or of another thread, are left out"
