"""Holds what gputop says of a story against what is true of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np

from gputop.analysis.answer.report_output import report_to_text
from gputop.api.functions import explain
from gputop.simgpu import read_trace
from tests.stories.answer import SAYS_NOTHING, Answer, Difference, compared, explained
from tests.stories.catalogue import Pair
from tests.stories.foreign import foreign, without_names
from tests.stories.proofs import false_levels
from tests.stories.recording import Run
from tests.stories.screen_line import ScreenLine, screen_line

NEAR = 0.05  # of the span: how near an estimate has to be
ROUNDING = 0.005  # of the span: a launch takes a while to reach the GPU, a bound is held to no less
RATIO = 0.10  # how near diff's ratio has to be to that of the clocks
WITHIN = 3  # parts of a program's path within the project: stories/programs/name.py
STARVED = 0.05  # of its loop: a program whose threads had no CPU for longer may be called starved of CPU
# who takes the CPU is the answer: the line that waits for it is not to blame
STARVATION = ("C13", "C14", "C15", "C16")
STRAGGLER = "C23"
SAME = 0.05  # clocks nearer than this do not tell which is faster


@dataclass(frozen=True, slots=True)
class Truth:
    """Idle shares of the GPUs by the simulated GPU's trace, over the span that the report tells of.

    Attributes:
        idle: No kernel and no copy ran.
        without_work: The same without the time that work, once queued, takes to begin.
    """

    idle: float
    without_work: float

    def distance(self, share: float) -> float:
        """How far a share is from the truth, which lies between the two."""
        return max(share - self.idle, self.without_work - share, 0.0)


def truth_of(run: Run, span_ns: int) -> Truth:
    """Reads the trace from the first work on, for as long as the report's span.

    Work of a program beside is work: idle is the GPU, not the program.
    """
    trace = read_trace(run.trace)
    rows = trace.rows
    if run.story.beside:
        rows = rows[np.isin(rows["pid"], [clock["pid"] for clock in run.clocks])]
    devices = sorted(set(rows["device"].tolist()))
    begin = int(rows["enqueue"].min())
    end = begin + max(span_ns // len(devices), 1)
    shares = []
    for work_from in ("start", "enqueue"):
        idle = 0
        for device in devices:
            gaps = trace.idle_intervals(None, device, begin, end, work_from=work_from)  # type: ignore[arg-type]
            idle += int((gaps[:, 1] - gaps[:, 0]).sum())
        shares.append(idle / (end - begin) / len(devices))
    return Truth(shares[0], shares[1])


@dataclass(frozen=True)
class Judged:
    """One run, and what is reported of it."""

    run: Run
    answer: Answer
    truth: Truth

    @property
    def starved(self) -> bool:
        """Whether its threads had no CPU for long, by the kernel's count of their run-queue delay."""
        return self.run.delayed > STARVED

    @property
    def near(self) -> bool:
        """The estimate is near the truth."""
        told = self.answer.estimate
        return told is not None and self.truth.distance(told) <= NEAR


@dataclass(frozen=True)
class Verdict(Judged):
    """One run of a story whose causes are known by number."""

    screen: ScreenLine
    foreign: tuple[str, ...] = ()
    false_levels: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Those that are right. Ranks that wait for CPUs wait for one another."""
        late = ("communication",) if len(self.run.clocks) > 1 else ()
        return (*self.run.story.classes, *(("cpu", *late) if self.starved else ()))

    @property
    def causes(self) -> tuple[str, ...]:
        """Those that may come first; "" for none. Of two ranks that wait for CPUs, one is late."""
        late = (STRAGGLER,) if len(self.run.clocks) > 1 else ()
        return (*(self.run.story.causes or ("",)), *((*STARVATION, *late) if self.starved else ()))

    @property
    def bounds_hold(self) -> bool:
        """Proved and lower bound below the truth, the upper one above it."""
        told = self.answer
        below = max(told.proved or 0.0, told.lower or 0.0)
        above = 1.0 if told.upper is None else told.upper
        return below <= self.truth.idle + ROUNDING and above >= self.truth.without_work - ROUNDING

    @property
    def class_right(self) -> bool:
        """The class is one of those that are right."""
        return self.answer.bound_by in self.classes

    @property
    def cause_right(self) -> bool:
        """The first cause is right; nothing is blamed where nothing is to blame."""
        said = self.answer.first
        return ("" if said == SAYS_NOTHING else said) in self.causes

    @property
    def line_right(self) -> bool | None:
        """The first finding names a line that is to blame; None where none is."""
        lines = self.run.story.lines
        if not lines or self.answer.first in STARVATION:
            return None
        # a recording may be older than this checkout, or from another one: the path within it counts
        wanted = {(self.run.story.program.parts[-WITHIN:], line) for line in lines}
        return any((Path(file).parts[-WITHIN:], line) in wanted for file, line in self.answer.lines)

    @property
    def screen_right(self) -> bool:
        """The screen's one line at 80 columns names the right class, cause and line, and nothing else."""
        said, story = self.screen, self.run.story
        if not said.names_class(self.classes):
            return False
        if said.cause not in self.causes:
            return False
        return not story.lines or said.cause in STARVATION or said.names_line(story.program, story.lines)


def judged(run: Run) -> Verdict:
    """Asks ``gputop explain`` and holds its answer against the trace."""
    answer, report = explained(run), explain(run.recording)
    text = without_names(report_to_text(report), run.story.program)
    words = foreign(text, (*run.story.loads, "python")), false_levels(report)
    return Verdict(run, answer, truth_of(run, answer.span_ns), screen_line(run), *map(tuple, words))


One = TypeVar("One", bound=Judged)


@dataclass(frozen=True)
class Compared(Generic[One]):
    """A program before and after a change."""

    pair: Pair
    before: One
    after: One
    difference: Difference
    may_abstain: ClassVar[bool] = False

    @property
    def clocks(self) -> float:
        """Time of a unit after over before, by the programs' own clocks."""
        return self.after.run.unit_ns / self.before.run.unit_ns

    @property
    def direction_right(self) -> bool:
        """Faster is called faster, slower slower; where the clocks hardly differ, a small ratio is right."""
        said = self.difference.ratio
        if said is None:
            return self.may_abstain
        if abs(self.clocks - 1) <= SAME:
            return abs(said - 1) <= SAME + RATIO
        return (said < 1) == (self.clocks < 1)

    @property
    def ratio_right(self) -> bool:
        """The ratio is near that of the clocks."""
        said = self.difference.ratio
        return self.may_abstain if said is None else abs(said / self.clocks - 1) <= RATIO

    @property
    def gain_ns(self) -> float:
        """What the change won, over the units of the run before it; ranks win the same time side by side.

        Units of the warm-up count like the others, as far as there was time for them.
        """
        run = self.before.run
        units = max(clock["units"] + clock["warm_up"] for clock in run.clocks)
        units = min(units, self.before.answer.span_ns / run.unit_ns)
        return (run.unit_ns - self.after.run.unit_ns) * units


class Change(Compared[Verdict]):
    """One pair judged."""

    @property
    def promised_ns(self) -> int | None:
        """What the finding promised whose cause the change removes; None where no cause is found.

        A program that is starved of CPU is told that first. The change leaves that as it is, so what counts
        is the finding about the story's own cause, where there is one.
        """
        said = self.before.answer
        causes = set(self.before.run.story.causes) - set(STARVATION)
        own = (one for one in said.findings if one["cause"] in causes)
        promising = next(own, None) if said.first in STARVATION else None
        return said.max_gain_ns if promising is None else int(promising["max_gain_ns"])

    @property
    def gain_holds(self) -> bool | None:
        """The gain is at most what was promised; where the change is advised first, at least half."""
        promised = self.promised_ns
        if not self.pair.removes_cause or self.gain_ns <= 0:
            return None
        if promised is None:
            return False
        first = self.before.answer.first not in STARVATION
        return self.gain_ns <= promised and (not first or promised <= 2 * self.gain_ns)


def changed(pair: Pair, before: Verdict, after: Verdict) -> Change:
    """Asks ``gputop diff`` and holds its answer against the programs' clocks."""
    return Change(pair, before, after, compared(before.run, after.run))
