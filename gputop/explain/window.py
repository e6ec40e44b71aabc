"""The newest part of what is observed, of bounded size, explained as a whole recording would explain it."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gputop.engine.apart import apart
from gputop.engine.switches import OpenThreads
from gputop.explain.answer.report import Report
from gputop.explain.build import examine
from gputop.explain.evidence.assemble import assemble, group_ends
from gputop.explain.evidence.effort import LIVE
from gputop.explain.evidence.evidence import Evidence, Gatherer, Table
from gputop.explain.evidence.tick import Tick
from gputop.explain.lanes import Lanes, lanes_of
from gputop.explain.onestep import OneStep, typical_steps
from gputop.explain.proofs.retention import carried
from probes.schema import Kind
from probes.source import Item

WINDOW_NS = 10_000_000_000  # what a live explanation is about
SLACK_NS = 2_000_000_000  # kept beyond it: calls and waits that began before the window
FOLD_NS = 2_000_000_000  # this much at a time is reduced to what is carried over
MOST_ROWS = 1_000_000  # calls, stays and stints kept; where they come faster the window is shorter
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
        steps: One step of each process that repeats something.
    """

    report: Report
    end_ns: int
    start_ns: int
    lanes: Lanes
    steps: tuple[OneStep, ...] = ()


class Window:
    """Takes items in and drops the old ones, but for what proofs may still rest on (retention.py)."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._gatherer = Gatherer(header)
        self._start_ns = int(header.get("start_ns", 0))
        self._folded_ns = 0
        self._lost: deque[tuple[int, int]] = deque([(0, 0)])  # (mark, events lost up to it)

    @property
    def end_ns(self) -> int:
        """The newest mark; 0 before the first."""
        return self._lost[-1][0]

    @property
    def carried_rows(self) -> int:
        """Rows kept of what was dropped."""
        return self._gatherer.ticks[0].rows if self._folded_ns else 0

    def feed(self, item: Item) -> bool:
        """Takes one item in; True when it closed a tick."""
        if not self._gatherer.feed(item):
            return False
        gatherer = self._gatherer
        self._lost.append((gatherer.ticks[-2].mark_ns, max(gatherer.counted_lost, gatherer.losses.records)))
        self._shorten()
        gatherer.facts.forget(self.end_ns - WINDOW_NS - SLACK_NS)
        return True

    def verdict(self) -> Verdict:
        """Explains the window before the newest mark."""
        end = self.end_ns
        low = max(end - WINDOW_NS, self._start_ns, self._folded_ns)
        before = [count for mark, count in self._lost if mark <= low]
        lost = self._lost[-1][1] - (before[-1] if before else 0)
        evidence = replace(self.evidence(), lost_events=lost)
        report, scene, outcome = examine(evidence, None, (low, end), LIVE)
        lanes = lanes_of(scene, outcome, report, self._start_ns)
        steps = typical_steps(scene, outcome, proved=report.coverage)
        return Verdict(report, end, self._start_ns, lanes, steps)

    def evidence(self) -> Evidence:
        """What the window rests on: what is kept, and what is carried over."""
        return assemble(self._gatherer, self._base_ns(self.end_ns))

    def compact(self) -> Window:
        """At a mark: a copy that holds nothing but what is carried over, to go on from here later."""
        other = apart(self)
        other._fold(len(self._gatherer.ticks) - 1)
        return other

    # -- what is too old --------------------------------------------------------------------------

    def _base_ns(self, end_ns: int) -> int:
        return max(self._start_ns, end_ns - _REACH_NS)

    def _shorten(self) -> None:
        ticks, end = self._gatherer.ticks, self.end_ns
        old = sum(tick.mark_ns <= end - WINDOW_NS - SLACK_NS for tick in ticks[:-1])
        if ticks[0].mark_ns <= end - WINDOW_NS - SLACK_NS - FOLD_NS:
            self._fold(old)
        elif sum(tick.rows for tick in ticks) > MOST_ROWS and len(ticks) > 3:
            self._fold(len(ticks) // 2)

    def _fold(self, count: int) -> None:
        """Reduces the oldest ticks to one that holds what is carried over."""
        gatherer = self._gatherer
        boundary = gatherer.ticks[count - 1].mark_ns
        part = copy.copy(gatherer)
        part.ticks, part.open, part.end_ns = gatherer.ticks[:count], OpenThreads(), boundary
        lives = [table[table["at"] <= boundary] for table in gatherer.lives]
        part.lives = lives
        calls, inner, slices = carried(assemble(part, self._base_ns(boundary)))
        tick = Tick(calls=[calls], inner=[inner], slices=[slices])
        tick.close(boundary)
        gatherer.ticks[:count] = [tick]
        gatherer.lives = [_living(np.concatenate(gatherer.lives), boundary)] if gatherer.lives else []
        gatherer.losses.forget(boundary)
        self._keep_samples(boundary)
        self._folded_ns = boundary

    def _keep_samples(self, boundary: int) -> None:
        """Of what NVML said the window's part, and the newest that lists GPUs."""
        gpus = self._gatherer.gpus
        listing = [sample for sample in gpus if sample.data.get("gpus")][-1:]
        kept = [sample for sample in gpus if sample.time_ns > boundary]
        self._gatherer.gpus = kept if listing and listing[0] in kept else [*listing, *kept]
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
