"""Two recordings compared part by part: what each part says, joined, and the comparison of the joined.

Of one part each it is what ``compare`` says of the whole. Of several parts the steps are those that lie
within parts: one that crosses a border is counted twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gputop.analysis import ledger
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.compare import Diff, difference, side, work_of
from gputop.analysis.evidence.repetition import FEWEST
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.step_findings import (
    PieceTimes,
    Unit,
    by_batch,
    by_second,
    by_step,
    regrouped,
    take,
)
from gputop.analysis.ledger import Ledger, report_of
from gputop.analysis.work_matching import (
    SAME_STEP,
    Profile,
    common_input,
    compare_work,
    inputs,
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
    taken: PieceTimes


@dataclass(frozen=True, slots=True)
class Input:
    """Copies of one size to the device: ``size`` of one and ``volume`` of all, in bytes."""

    size: float
    volume: float
    taken: PieceTimes


@dataclass(frozen=True, slots=True)
class Seen:
    """What parts of a recording that follow each other say for a comparison.

    Attributes:
        explained: Their explanation.
        loops: Their steps, each kind of work apart.
        inputs: Where there are no steps the batches may be told by.
        windows: Their time, where nothing else can be compared.
    """

    explained: Ledger
    loops: tuple[ComparedLoop, ...]
    inputs: tuple[Input, ...]
    windows: PieceTimes


def seen(explained: Ledger, scene: AttributionContext, outcome: Outcome) -> Seen:
    """What one part says."""
    loops: tuple[ComparedLoop, ...] = ()
    if scene.steps is not None:
        threads, steps = scene.evidence.threads, scene.steps
        pid, tid = int(threads.pid[steps.thread]), int(threads.tid[steps.thread])
        work = profile(scene.evidence, steps.main())
        loops = (ComparedLoop(pid, tid, work, take(scene, outcome, by_step(steps))),)
    windows = take(scene, outcome, by_second(scene))
    return Seen(explained, loops, _inputs(scene, outcome), windows)


def _inputs(scene: AttributionContext, outcome: Outcome) -> tuple[Input, ...]:
    known = work_of(scene)
    if known is None:
        return ()
    found = inputs(known, scene.evidence.calls["bytes"][known.rows], FEWEST)
    largest = sorted(found, key=lambda row: -row[2])[:_INPUTS]
    return tuple(
        Input(size, volume, take(scene, outcome, by_batch(scene, known, symbol)))
        for symbol, size, volume in largest
    )


def merge(earlier: Seen, later: Seen) -> Seen:
    """Of two parts that follow each other."""
    loops = list(earlier.loops)
    for loop in later.loops:
        place = next((row for row, one in enumerate(loops) if _alike(one, loop)), None)
        if place is None:
            loops.append(loop)
        else:
            loops[place] = replace(loops[place], taken=loops[place].taken.and_later(loop.taken))
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
            batches[place] = Input(known.size, known.volume + one.volume, known.taken.and_later(one.taken))
    return Seen(
        ledger.merge(earlier.explained, later.explained),
        tuple(loops),
        tuple(batches),
        earlier.windows.and_later(later.windows),
    )


def _alike(one: ComparedLoop, other: ComparedLoop) -> bool:
    """Whether the steps of two parts are the same work of the same thread."""
    launches = sorted((one.profile.launches, other.profile.launches))
    same = launches[1] - launches[0] <= _SAME_WORK * launches[1]
    return (one.pid, one.tid) == (other.pid, other.tid) and same


def finish(before: Seen, after: Seen) -> Diff:
    """The comparison: per step if both have steps, else per batch that both copy, else per second."""
    reports = [report_of(one.explained) for one in (before, after)]
    loops = [_main(one.loops) for one in (before, after)]
    if loops[0] is not None and loops[1] is not None:
        ratio = compare_work(loops[0].profile, loops[1].profile)
        taken = [loops[0].taken, loops[1].taken]
    else:
        ratio = SAME_STEP
    if loops[0] is None or loops[1] is None or not ratio.known:
        sides = [
            [(row, one.size, one.volume) for row, one in enumerate(part.inputs)] for part in (before, after)
        ]
        common = common_input(sides[0], sides[1])
        ratio = SAME_STEP if common is not None else ratio
        taken = (
            [before.inputs[common[0]].taken, after.inputs[common[1]].taken]
            if common is not None
            else [regrouped(before.windows), regrouped(after.windows)]
        )
    unit: Unit = taken[0].unit
    first = side(reports[0], taken[0], 1.0)
    found = difference(unit, ratio, first, side(reports[1], taken[1], ratio.times))
    notes = [note for name, one in (("BEFORE", before), ("AFTER", after)) for note in _notes(name, one)]
    return replace(found, notes=(*notes, *found.notes))


def _main(loops: Sequence[ComparedLoop]) -> ComparedLoop | None:
    """The one that takes most of the time."""
    return max(loops, key=lambda one: int((one.taken.until - one.taken.begin).sum()), default=None)


def _notes(name: str, one: Seen) -> Iterator[str]:
    if one.explained.parts > 1:
        yield (
            f"{name} is too long to be looked at at once: {one.explained.parts} parts of it were, and "
            "joined; a step across a border between two counts twice or not at all"
        )
    main = _main(one.loops)
    if left := sum(len(loop.taken.begin) for loop in one.loops if loop is not main):
        yield f"{name}: {left} steps of other work, or of another thread, are left out"
