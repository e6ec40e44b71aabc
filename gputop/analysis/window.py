"""The newest part of what is observed, of bounded size, explained as a whole recording would explain it."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gputop.analysis.answer.picture import Lanes, OneStep
from gputop.analysis.answer.report import Report
from gputop.analysis.build import ledger_of
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.assembly import assemble, group_ends
from gputop.analysis.evidence.columns import LIVE, Effort
from gputop.analysis.evidence.evidence import Evidence, Table, Tick
from gputop.analysis.evidence.gatherer import End, Ends, Gatherer, sample_before
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.lanes import lanes_of, typical_steps
from gputop.analysis.ledger import Ledger, report_of
from gputop.analysis.proofs.retention import carried
from gputop.analysis.report_update import Counted
from gputop.engine.calls.failed_calls import between
from gputop.engine.fork_state import apart
from gputop.engine.threads.switches import OpenThreads
from probes.samples import listed_gpus
from probes.schema import Kind
from probes.source import MARK, Item, Sample

WINDOW_NS = 10_000_000_000  # what a live explanation is about
SLACK_NS = 2_000_000_000  # kept beyond it: calls and waits that began before the window
FOLD_NS = 2_000_000_000  # this much at a time is reduced to what is carried over
NEAR_NS = 500_000_000  # kept before what is looked at most often: of calls that are longer less is proved
MOST_ROWS = 1_000_000  # calls, stays and on-CPU slices kept; where they come faster the window is shorter
MOST_TICKS = 4096  # the same of marks, which come twenty a second at most
CLOSING_NS = 40_000_000  # a mark so soon after another closes a recording, which ended with its program
FIRST_LOOK = "a first look at the last moments before this one: the seconds before them are still being read"
LATE = (
    "only the last seconds before this moment were read: of streams that were used before them nothing is "
    "known, so some of what gputop explain calls proved is strong here"
)
# keys of the analysis hold 39 hours; a session may last longer (evidence.py)
_REACH_NS = 1 << 46


@dataclass(frozen=True, slots=True)
class Verdict:
    """An explanation of the time before a moment.

    Attributes:
        report: The explanation.
        end_ns: The moment: a mark, CLOCK_MONOTONIC.
        start_ns: Start of the session: what the report's moments count from.
        lanes: The same time column by column.
        detail_age_ns: How much older than the figures the chains, advice, steps and what a fix wins are: they
            come less often where there are many events (fresh.py).
        steps: One step of each process that repeats something.
        first_look: Whether it is about less than an explanation is, and another of this moment follows.
        ended: The end of the last process that made CUDA calls, where none lives.
        called_ns: About when the newest CUDA call ended; 0: there was none so far.
        counted: The figures that the report sums up, by columns of time, of a live explanation.
    """

    report: Report
    end_ns: int
    start_ns: int
    lanes: Lanes
    detail_age_ns: int = 0
    steps: tuple[OneStep, ...] = ()
    first_look: bool = False
    ended: End | None = None
    called_ns: int = 0
    counted: Counted | None = field(default=None, compare=False)


class Window:
    """Consumes items and drops the old ones, but for what proofs may still rest on (retention.py)."""

    def __init__(self, header: Mapping[str, Any], *, late_ns: int = 0, length_ns: int = WINDOW_NS) -> None:
        """Start with nothing.

        Args:
            header: Of the session.
            late_ns: It is given nothing of the time before this, and says so; 0: it is given all.
            length_ns: How long the time is that an explanation is about.
        """
        self._length_ns = length_ns
        self._late = late_ns > 0
        self._gatherer = Gatherer(header)
        self._start_ns = int(header.get("start_ns", 0))
        self._folded_ns = late_ns
        self._rows = 0  # in the ticks that have ended
        self._lost: deque[tuple[int, int]] = deque([(0, 0)])  # (mark, events lost up to it)
        # what is carried over to the newest part, and the mark from which on that begins
        self._near: list[Tick] = []
        self._near_ns = 0
        self._ends = Ends()
        self._ended_ns = 0  # the mark at which the last process that made CUDA calls had ended

    @property
    def end_ns(self) -> int:
        """The newest mark; 0 before the first."""
        return self._lost[-1][0]

    @property
    def ended(self) -> End | None:
        """The end of the last process that made CUDA calls, where none lives."""
        return self._ends.last

    @property
    def called_ns(self) -> int:
        """About when the newest CUDA call ended; 0: there was none."""
        return self._ends.called_ns

    @property
    def ended_ns(self) -> int:
        """The mark at which that process had ended; 0 where one lives."""
        return self._ended_ns

    @property
    def explained_ns(self) -> int:
        """The mark that an explanation ends with: the newest, or that at which nobody was left to explain."""
        return self._ended_ns if self._ended_ns > self._folded_ns else self.end_ns

    @property
    def carried_rows(self) -> int:
        """Rows kept of what was dropped."""
        return self._gatherer.ticks[0].rows if self._folded_ns else 0

    def feed(self, item: Item) -> bool:
        """Consumes one item; True when it closed a tick."""
        self._ends.consume(item)
        if not self._gatherer.feed(item):
            return False
        gatherer = self._gatherer
        self._lost.append((gatherer.ticks[-2].mark_ns, max(gatherer.counted_lost, gatherer.losses.records)))
        self._ends.at_mark(self.end_ns)
        if self._ends.last is None:
            self._ended_ns = 0
        elif not self._ended_ns or self.end_ns - self._ended_ns < CLOSING_NS:
            self._ended_ns = self.end_ns
        self._shorten()
        gatherer.facts.forget(self.end_ns - WINDOW_NS - SLACK_NS)
        return True

    @property
    def begin_ns(self) -> int:
        """Where the time begins that an explanation at the newest mark is about."""
        return max(self.explained_ns - self._length_ns, self._start_ns, self._folded_ns)

    @property
    def start_ns(self) -> int:
        """Start of the session: what moments are counted from."""
        return self._start_ns

    @property
    def lost_events(self) -> int:
        """How many events were lost in that time."""
        before = [count for mark, count in self._lost if mark <= self.begin_ns]
        return self._lost[-1][1] - (before[-1] if before else 0)

    def verdict(self, effort: Effort = LIVE) -> Verdict:
        """Explains the window before the newest mark, or before the end of all that used CUDA."""
        return self.examined(effort)[0]

    def examined(self, effort: Effort = LIVE) -> tuple[Verdict, Ledger, AttributionContext, Outcome]:
        """The same, and what it was made from."""
        evidence = replace(self.evidence(), lost_events=self.lost_events)
        ledger, scene, outcome = ledger_of(evidence, None, (self.begin_ns, self.explained_ns), effort)
        if self._late:
            ledger = replace(ledger, notes=(LATE, *ledger.notes))
        report = report_of(ledger)
        lanes = lanes_of(scene, outcome, report, self._start_ns)
        steps = typical_steps(scene, outcome, report)
        verdict = Verdict(
            report,
            self.explained_ns,
            self._start_ns,
            lanes,
            steps=steps,
            ended=self.ended,
            called_ns=self.called_ns,
        )
        return verdict, ledger, scene, outcome

    def newest(self, since_ns: int) -> Evidence:
        """What the time since a moment of the last seconds rests on: little, however much the window holds.

        The moment may be no earlier than that of the call before.
        """
        gatherer = self._gatherer
        marks = [tick.mark_ns for tick in gatherer.ticks[:-1]]
        base = max((mark for mark in marks if mark <= since_ns - NEAR_NS), default=0)
        if self._near_ns <= self._folded_ns:
            self._near, self._near_ns = [], 0  # all that is kept is newer
        if base > max(self._near_ns, self._folded_ns):
            old = [tick for tick in gatherer.ticks[:-1] if self._near_ns < tick.mark_ns <= base]
            self._near, self._near_ns = [self._reduced([*self._near, *old], base)], base
        part = copy.copy(gatherer)
        part.ticks = [*self._near, *(tick for tick in gatherer.ticks[:-1] if tick.mark_ns > self._near_ns)]
        return replace(self._known(part), lost_events=self.lost_events)

    def evidence(self) -> Evidence:
        """What the window rests on: what is kept, and what is carried over."""
        return self._known(self._gatherer)

    def _known(self, part: Gatherer) -> Evidence:
        evidence = assemble(part, self._base_ns(self.end_ns))
        # of no process all calls were seen
        return replace(evidence, complete=frozenset()) if self._late else evidence

    def compact(self) -> Window:
        """At a mark: a copy that holds nothing but what is carried over, to go on from here later."""
        other = apart(self)
        other._fold(len(self._gatherer.ticks) - 1)
        other._near, other._near_ns = [], 0
        return other

    def before(self) -> list[Sample]:
        """At a mark: what the explanation of what follows may rest on, for a file that begins there."""
        complete = self.evidence().complete
        held = self.compact()._gatherer
        return [*held.gpus, *sample_before(held.ticks[0], held.lives, complete, self.end_ns)]

    # -- what is too old --------------------------------------------------------------------------

    def _base_ns(self, end_ns: int) -> int:
        return max(self._start_ns, end_ns - _REACH_NS)

    def _shorten(self) -> None:
        ticks, end = self._gatherer.ticks, self.end_ns
        self._rows += ticks[-2].rows
        if ticks[0].mark_ns <= end - WINDOW_NS - SLACK_NS - FOLD_NS:
            self._fold(sum(tick.mark_ns <= end - WINDOW_NS - SLACK_NS for tick in ticks[:-1]))
        elif (self._rows > MOST_ROWS or len(ticks) > MOST_TICKS) and len(ticks) > 3:
            self._fold(len(ticks) // 2)

    def _fold(self, count: int) -> None:
        """Reduces the oldest ticks to one that holds what is carried over."""
        gatherer = self._gatherer
        boundary = gatherer.ticks[count - 1].mark_ns
        gatherer.ticks[:count] = [self._reduced(gatherer.ticks[:count], boundary)]
        self._rows = sum(tick.rows for tick in gatherer.ticks[:-1])
        gatherer.lives = [_living(np.concatenate(gatherer.lives), boundary)] if gatherer.lives else []
        gatherer.losses.forget(boundary)
        gatherer.activities.drop(boundary)
        gatherer.unkept = [one for one in gatherer.unkept if one[1] > boundary]
        self._keep_samples(boundary)
        self._folded_ns = boundary

    def _reduced(self, ticks: list[Tick], boundary: int) -> Tick:
        """The oldest ticks up to a mark as one that holds what is carried over."""
        part = copy.copy(self._gatherer)
        part.ticks, part.open, part.end_ns = ticks, OpenThreads(), boundary
        part.lives = [table[table["at"] <= boundary] for table in self._gatherer.lives]
        calls, inner, slices = carried(assemble(part, self._base_ns(boundary)))
        tick = Tick(calls=[calls], inner=[inner], slices=[slices])
        tick.close(boundary)
        return tick

    def _keep_samples(self, boundary: int) -> None:
        """The window's part of NVML's readings, and the newest that lists GPUs."""
        gpus = self._gatherer.gpus
        # of each host of a merged recording
        newest = {sample.data.get("host", 0): sample for sample in gpus if listed_gpus(sample)}
        kept = [sample for sample in gpus if sample.time_ns > boundary]
        here = {id(sample) for sample in kept}
        self._gatherer.gpus = [*(one for one in newest.values() if id(one) not in here), *kept]
        while len(self._lost) > 1 and self._lost[1][0] <= boundary:
            self._lost.popleft()


def _living(lives: Table, boundary: int) -> Table:
    """Births and ends without those of threads that had ended by then."""
    keep = np.ones(len(lives), np.bool_)
    for pid, at in group_ends(lives).items():
        if at <= boundary:
            keep &= (lives["pid"] != pid) | (lives["at"] > at)
    order = np.argsort(lives["at"], kind="stable")
    last: dict[int, int] = {}
    for row in order.tolist():
        last[int(lives["tid"][row])] = row
    gone = [
        tid
        for tid, row in last.items()
        # a birth of the process itself says that all of its calls were seen
        if lives["kind"][row] == Kind.EXIT and lives["at"][row] <= boundary and lives["pid"][row] != tid
    ]
    return lives[keep & ~np.isin(lives["tid"], gone)]


# A part of a long recording, explained with what its past and a little of its future say about it.

MOST_AHEAD = 40  # marks that are read beyond a part


@dataclass(frozen=True, slots=True)
class Carried:
    """What the part after a mark must know of the time before it.

    Attributes:
        window: The rows that proofs may rest on, who is who, what is open.
    """

    window: Stretch


class Stretch(Window):
    """Consumes one part as a whole: nothing of it is dropped."""

    def _shorten(self) -> None:
        """Nothing: the part was chosen so that it fits."""

    def carried(self) -> Carried:
        """At a mark: what the next part must know."""
        other = apart(self)
        other._fold(len(self._gatherer.ticks) - 1)
        return Carried(other)

    def fill(self, items: Iterable[Item]) -> None:
        """Consumes a part."""
        for item in items:
            self.feed(item)

    def look_ahead(self, items: Iterable[Item]) -> None:
        """Consumes items until the next call or until there are enough marks."""
        border, marks = self.end_ns, 0
        for item in items:
            self.feed(item)
            if isinstance(item, Sample) and item.kind == MARK:
                marks += 1
                fresh = any(
                    len(part) and int(part["begin"].max()) > border for part in self._gatherer.ticks[-2].calls
                )
                if fresh or marks == MOST_AHEAD:
                    return

    @property
    def last_ns(self) -> int:
        """The last that was observed: a mark, or a record behind it."""
        return self._gatherer.end_ns

    def part(
        self, until_ns: int, wanted: tuple[int, int] | None = None
    ) -> tuple[Ledger, AttributionContext, Outcome] | None:
        """Explains from the border before up to a moment.

        Args:
            until_ns: The moment, CLOCK_MONOTONIC.
            wanted: Only what lies between these; None where nothing does.
        """
        evidence = self.evidence()
        low, high = wanted or (0, until_ns)
        low = max(self._start_ns or evidence.start_ns, self._folded_ns, low)
        high = min(until_ns, high)
        unkept = evidence.unkept
        if low >= high or ((unkept[0] <= low) & (unkept[1] >= high)).any():
            return None
        before = [count for mark, count in self._lost if mark <= low]
        upto = [count for mark, count in self._lost if mark <= high]
        lost = (upto[-1] if upto else 0) - (before[-1] if before else 0)
        evidence = replace(evidence, lost_events=lost)
        ledger, scene, outcome = ledger_of(evidence, None, (low, high), part=True)
        if wanted is not None:
            ledger = replace(ledger, failures=between(ledger.failures, ledger.start_ns, wanted))
        return ledger, scene, outcome
