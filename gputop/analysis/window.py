"""A bounded window of the newest records, explained as a whole recording would be."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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

WINDOW_NS = 10_000_000_000  # length of a live explanation
SLACK_NS = 2_000_000_000  # kept beyond it: calls and waits that began before the window
FOLD_NS = 2_000_000_000  # this much at a time is reduced to the rows that are carried over
NEAR_NS = 500_000_000  # kept before the newest part; longer calls prove less there
MOST_ROWS = 1_000_000  # calls, stays and on-CPU slices kept; at higher rates the window is shorter
MOST_TICKS = 4096  # marks kept, likewise; there are at most twenty a second
CLOSING_NS = 40_000_000  # a mark so soon after another closes a recording, which ended with its program
FIRST_LOOK = "preliminary: only the last moment before this one is read; the seconds before it are being read"
LATE = (
    "only the last seconds before this moment were read: streams used before them are unknown, so some of "
    "what gputop explain calls proved is strong here"
)
# keys of the analysis hold 39 hours; a session may last longer (evidence/evidence.py)
_REACH_NS = 1 << 46


@dataclass(frozen=True, slots=True)
class Verdict:
    """An explanation of the time before a moment."""

    report: Report  # the explanation
    end_ns: int  # the moment: a mark, CLOCK_MONOTONIC
    start_ns: int  # start of the session, from which the report's moments count
    lanes: Lanes  # the same time column by column
    # how much older than the figures the chains, advice, steps and gains are (incremental.py)
    detail_age_ns: int = 0
    steps: tuple[OneStep, ...] = ()  # one step of each process with a loop
    first_look: bool = False  # True if it covers less than usual and the full one of this moment follows
    ended: End | None = None  # the end of the last process that made CUDA calls, where none lives
    called_ns: int = 0  # end of the newest CUDA call, approximately; 0: none so far
    # the report's figures by time column, of a live explanation
    counted: Counted | None = field(default=None, compare=False)


Own = TypeVar("Own", bound="Window")


class Window:
    """The newest items; of older ones only those that proofs may still need (retention.py)."""

    def __init__(self, header: Mapping[str, Any], *, late_ns: int = 0, length_ns: int = WINDOW_NS) -> None:
        """Start with nothing.

        Args:
            header: Of the session.
            late_ns: The time before this is missing, which a note reports; 0: nothing is missing.
            length_ns: Length of an explanation.
        """
        self.length_ns = length_ns  # of an explanation; may change from one mark to the next
        self._late = late_ns > 0
        self._gatherer = Gatherer(header)
        self.start_ns = int(header.get("start_ns", 0))  # start of the session, from which moments count
        self._folded_ns = late_ns
        self._rows = 0  # in the ticks that have ended
        self._lost: deque[tuple[int, int]] = deque([(0, 0)])  # (mark, events lost up to it)
        # rows carried over to the newest part, and the mark at which that begins
        self._near: list[Tick] = []
        self._near_ns = 0
        self._ends = Ends()
        # the mark at which the last process that made CUDA calls had ended; 0 where one lives
        self.ended_ns = 0

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
        """End of the newest CUDA call, approximately; 0: none."""
        return self._ends.called_ns

    @property
    def explained_ns(self) -> int:
        """The mark at the end of an explanation: the newest, or that at which the last process had ended."""
        return self.ended_ns if self.ended_ns > self._folded_ns else self.end_ns

    @property
    def carried_rows(self) -> int:
        """Rows carried over from dropped ticks."""
        return self._gatherer.ticks[0].rows if self._folded_ns else 0

    def feed(self, item: Item) -> bool:
        """Consume one item; True when it closed a tick."""
        self._ends.consume(item)
        if not self._gatherer.feed(item):
            return False
        gatherer = self._gatherer
        self._lost.append((gatherer.ticks[-2].mark_ns, max(gatherer.counted_lost, gatherer.losses.records)))
        self._ends.at_mark(self.end_ns)
        if self._ends.last is None:
            self.ended_ns = 0
        elif not self.ended_ns or self.end_ns - self.ended_ns < CLOSING_NS:
            self.ended_ns = self.end_ns
        self._shorten()
        gatherer.facts.forget(self.end_ns - WINDOW_NS - SLACK_NS)
        return True

    @property
    def begin_ns(self) -> int:
        """Begin of an explanation at the newest mark."""
        return max(self.explained_ns - self.length_ns, self.start_ns, self._folded_ns)

    @property
    def lost_events(self) -> int:
        """Events lost in that time."""
        before = [count for mark, count in self._lost if mark <= self.begin_ns]
        return self._lost[-1][1] - (before[-1] if before else 0)

    def verdict(self, effort: Effort = LIVE) -> Verdict:
        """Explain the window before the newest mark, or before the end of the last CUDA process."""
        return self.examined(effort)[0]

    def examined(self, effort: Effort = LIVE) -> tuple[Verdict, Ledger, AttributionContext, Outcome]:
        """Return the verdict and its sources."""
        evidence = replace(self.evidence(), lost_events=self.lost_events)
        ledger, scene, outcome = ledger_of(evidence, None, (self.begin_ns, self.explained_ns), effort)
        scene.drop_operations()  # lanes and sums need as much memory as the causes did
        if self._late:
            ledger = replace(ledger, notes=(LATE, *ledger.notes))
        report = report_of(ledger)
        # 80 bytes a step
        ledger = replace(ledger, loops={key: one.settled() for key, one in ledger.loops.items()})
        verdict = Verdict(
            report,
            self.explained_ns,
            self.start_ns,
            lanes_of(scene, outcome, report, self.start_ns),
            steps=typical_steps(scene, outcome, report),
            ended=self.ended,
            called_ns=self.called_ns,
        )
        return verdict, ledger, scene, outcome

    def newest(self, since_ns: int) -> Evidence:
        """Return the evidence of the time since a recent moment: little, however much the window holds.

        The moment must not be earlier than in the previous call.
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
        """Return the window's evidence: the ticks kept, and the rows carried over."""
        return self._known(self._gatherer)

    def _known(self, part: Gatherer) -> Evidence:
        evidence = assemble(part, self._base_ns(self.end_ns))
        # the first calls of every process are missing
        return replace(evidence, complete=frozenset()) if self._late else evidence

    def compact(self: Own) -> Own:
        """At a mark: return a copy with the carried rows only, from which to continue later."""
        other = apart(self)
        ticks = other._gatherer.ticks
        while True:  # as it would be in time: all at once takes several times the memory of the window
            until_ns = ticks[0].mark_ns + FOLD_NS
            ended = len(ticks) - 1
            other._fold(max(sum(tick.mark_ns <= until_ns for tick in ticks[:ended]), min(ended, 2)))
            if len(ticks) == 2:
                break
        other._near, other._near_ns = [], 0
        other._gatherer.failed.shorten()
        return other

    def before(self) -> list[Sample]:
        """At a mark: return the samples that later explanations need, for a file that begins there."""
        complete = self.evidence().complete
        held = self.compact()._gatherer
        return [*held.gpus, *sample_before(held.ticks[0], held.lives, complete, self.end_ns)]

    # -- old ticks --------------------------------------------------------------------------------

    def _base_ns(self, end_ns: int) -> int:
        return max(self.start_ns, end_ns - _REACH_NS)

    def _shorten(self) -> None:
        ticks, end = self._gatherer.ticks, self.end_ns
        self._rows += ticks[-2].rows
        kept_ns = end - self.length_ns - SLACK_NS
        if ticks[0].mark_ns <= kept_ns - FOLD_NS:
            some_ns = min(kept_ns, ticks[0].mark_ns + 2 * FOLD_NS)  # more where the length has become shorter
            count = sum(tick.mark_ns <= some_ns for tick in ticks[:-1])
            self._fold(count if count > 1 else sum(tick.mark_ns <= kept_ns for tick in ticks[:-1]))
        elif (self._rows > MOST_ROWS or len(ticks) > MOST_TICKS) and len(ticks) > 3:
            self._fold(len(ticks) // 2)

    def _fold(self, count: int) -> None:
        """Reduce the oldest ticks to one with the carried rows."""
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
        """Return the carried rows of the oldest ticks, up to a mark, as one tick."""
        part = copy.copy(self._gatherer)
        part.ticks, part.open, part.end_ns = ticks, OpenThreads(), boundary
        part.lives = [table[table["at"] <= boundary] for table in self._gatherer.lives]
        calls, inner, slices = carried(assemble(part, self._base_ns(boundary)))
        tick = Tick(calls=[calls], inner=[inner], slices=[slices])
        tick.close(boundary)
        return tick

    def _keep_samples(self, boundary: int) -> None:
        """Keep the window's NVML samples, and the newest one that lists GPUs."""
        gpus = self._gatherer.gpus
        # of each host of a merged recording
        newest = {sample.data.get("host", 0): sample for sample in gpus if listed_gpus(sample)}
        kept = [sample for sample in gpus if sample.time_ns > boundary]
        here = {id(sample) for sample in kept}
        self._gatherer.gpus = [*(one for one in newest.values() if id(one) not in here), *kept]
        while len(self._lost) > 1 and self._lost[1][0] <= boundary:
            self._lost.popleft()


def _living(lives: Table, boundary: int) -> Table:
    """Births and ends, without those of threads that had ended by then."""
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
        # a process whose birth is recorded has all of its calls recorded
        if lives["kind"][row] == Kind.EXIT and lives["at"][row] <= boundary and lives["pid"][row] != tid
    ]
    return lives[keep & ~np.isin(lives["tid"], gone)]


# A part of a long recording, explained with the carried rows of its past and a little of its future.

MOST_AHEAD = 40  # marks that are read beyond a part


class Stretch(Window):
    """One part of a recording; nothing of it is dropped. A compact one is the state for the next part."""

    def _shorten(self) -> None:
        """Nothing: the part was chosen so that it fits."""

    def fill(self, items: Iterable[Item]) -> None:
        """Consume a part."""
        for item in items:
            self.feed(item)

    def look_ahead(self, items: Iterable[Item]) -> None:
        """Consume items until the next call, or ``MOST_AHEAD`` marks."""
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
        """Time of the last mark or record."""
        return self._gatherer.end_ns

    def part(
        self, until_ns: int, wanted: tuple[int, int] | None = None
    ) -> tuple[Ledger, AttributionContext, Outcome] | None:
        """Explain from the border before up to a moment; None where nothing wanted or kept lies there.

        Args:
            until_ns: The moment, CLOCK_MONOTONIC.
            wanted: Only the time between these.
        """
        evidence = self.evidence()
        low, high = wanted or (0, until_ns)
        low = max(self.start_ns or evidence.start_ns, self._folded_ns, low)
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
