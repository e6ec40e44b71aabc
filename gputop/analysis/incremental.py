"""The verdict of this second: cheap looks at the newest time, added to what was explained at length before.

A whole explanation of ten seconds takes from 30 ms to one second of CPU, by how much happens in them, so it
comes every few seconds. Between two of them only what is newer is looked at: when the GPUs were provably idle
and had work, and which cause takes which piece. Its sums (columnsums.py) make the figures and the order of
the causes; estimates, chains, advice, the step and what a fix wins are those of the last whole explanation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gputop.analysis.answer.picture import COLUMN_NS, Lanes
from gputop.analysis.chains.analysis import Analysis, walk
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.columns import LIVE, Effort, Ints
from gputop.analysis.findings.findings import Outcome, owners
from gputop.analysis.lanes import joined, lanes_of
from gputop.analysis.ledger import Ledger
from gputop.analysis.proofs.gaps import GpuTime
from gputop.analysis.report_update import Before, ColumnSums, Counted, Now, count, renewed
from gputop.analysis.window import WINDOW_NS, Verdict, Window

LEAST_REACH_NS, USUAL_REACH_NS, MOST_REACH_NS = (
    400_000_000,
    1_000_000_000,
    3_000_000_000,
)  # how far a look goes
LEAST_NEW_NS = 150_000_000  # looked at once more: calls and waits that had not ended are known by then
DEAR_S, CHEAP_S = 0.02, 0.01  # CPU of a look, above which it goes less far back, and below which farther


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole explanation, as looks go on from it."""

    verdict: Verdict
    ledger: Ledger

    @property
    def counted(self) -> Counted:
        """What the verdict's report sums up, by columns."""
        assert self.verdict.counted is not None
        return self.verdict.counted


def explained(window: Window, effort: Effort = LIVE) -> Whole:
    """All of the window, at length."""
    verdict, ledger, scene, outcome = window.examined(effort)
    return Whole(replace(verdict, counted=count(scene, outcome.cause, light=False)), ledger)


class Fresh:
    """Goes on from whole explanations with looks at what is newer.

    Attributes:
        contradicted: Whether the last look saw something else than the last whole explanation.
    """

    def __init__(self) -> None:
        self._sums = ColumnSums()
        self._whole: Whole | None = None
        self._before: Before | None = None
        self._lanes: Lanes | None = None
        self._settled_ns = 0
        self._reach_ns = USUAL_REACH_NS
        self.contradicted = False

    def consume(self, whole: Whole) -> Verdict:
        """Consumes a whole explanation; returns what is known with it."""
        verdict = whole.verdict
        self._whole, self._before = whole, Before(verdict.report, whole.ledger, whole.counted.sums())
        self._sums.put(whole.counted)
        self.contradicted = False
        # what has been seen since stays
        newer = self._lanes is not None and self._lanes.first + self._lanes.columns > verdict.lanes.first
        self._lanes = (
            joined(self._lanes, verdict.lanes, verdict.lanes.first)
            if newer and self._lanes
            else verdict.lanes
        )
        return verdict

    def look(self, window: Window, rarer: int = 1) -> Verdict | None:
        """The verdict at the window's newest mark; None before the first whole explanation.

        Args:
            window: The newest records.
            rarer: How many times less often than usual it looks: it goes as much farther back, so that as
                little as usual is never looked at.
        """
        whole, before = self._whole, self._before
        if whole is None or before is None:
            return None
        began = time.thread_time()
        end = window.end_ns
        low = self._low(end, window.begin_ns, rarer)
        scene, owner = seen(window, (low, end))
        counted = count(scene, owner, light=True)
        self._sums.put(counted)
        gpu = scene.analysis.gpu
        settled = min((span.end for span in gpu.spans), default=end)
        self._settled_ns = max(min(settled, end - LEAST_NEW_NS), low)
        sums = self._sums.sums(window.begin_ns // COLUMN_NS, -(-end // COLUMN_NS))
        now = Now(sums, scene, owner, (window.begin_ns, end))
        report, self.contradicted = renewed(before, now)
        outcome = Outcome((), (), 0, 0, owner)
        lanes = before.presumed(counted, lanes_of(scene, outcome, report, window.start_ns))
        first = (end - WINDOW_NS) // COLUMN_NS
        self._lanes = lanes if self._lanes is None else joined(self._lanes, lanes, first)
        self._pay((time.thread_time() - began) / rarer)
        age = end - whole.verdict.end_ns
        steps, called_ns = whole.verdict.steps, window.called_ns
        return Verdict(report, end, window.start_ns, self._lanes, age, steps, called_ns=called_ns)

    def _low(self, end_ns: int, begin_ns: int, rarer: int) -> int:
        """From where to look: what is not settled, as far as there is time for it; where a column begins."""
        low = max(self._settled_ns, end_ns - rarer * self._reach_ns, begin_ns)
        return low // COLUMN_NS * COLUMN_NS

    def _pay(self, cpu_s: float) -> None:
        if cpu_s > DEAR_S:
            self._reach_ns = max(int(self._reach_ns * 0.8), LEAST_REACH_NS)
        elif cpu_s < CHEAP_S:
            self._reach_ns = min(int(self._reach_ns * 1.25), MOST_REACH_NS)


def seen(window: Window, stretch: tuple[int, int]) -> tuple[AttributionContext, Ints]:
    """(the scene, the row of the catalogue of each segment) of the newest time, without estimates."""
    evidence = window.newest(stretch[0])
    gpu = GpuTime(evidence, stretch)
    scene = AttributionContext(Analysis(evidence, gpu, gpu.gaps, *walk(evidence, gpu.gaps)), with_steps=False)
    return scene, owners(scene)


# When the next explanation is due: by what the last one cost, so that all take a fixed share of a core.

PERIOD_S = 0.7  # between two explanations, so that what repeats for the third time is told within a second
SHARE = 0.015  # of a core: an explanation that costs more comes less often
HURRIED_SHARE = 0.06  # while what is seen contradicts the explanation that is shown
IN_VAIN = 2  # explanations that were contradicted at once: then half of it, after as many more a quarter
FIRST_CAUSES = 2  # as the panel has
CALM = 2  # times less often while one explanation names the same causes as the one before
LOOK_SHARE = 0.012  # of a core, of looks at what is newest
LONGEST_S = 0.9  # between two of them, so that one comes at the first mark after it
FIRST_NS, FIRST_SHARE = 5_000_000_000, 0.03  # while the GPU has worked for less than this there is most news


class ExplainSchedule:
    """Decides when the next whole explanation is due.

    Attributes:
        slower: How many times less often than usual.
    """

    slower = 1

    def __init__(self, share: float = SHARE, longest_s: float = math.inf) -> None:
        self._share, self._longest_s = share, longest_s
        self._began, self._wait_s = 0.0, 0.0
        self._contradicted = 0  # explanations in a row that what was seen next contradicted
        self._named: object = None
        self._calm = 1

    def is_due(self, *, contradicted: bool) -> bool:
        """Whether the next one is due, where what is seen does or does not contradict the last."""
        if contradicted:
            return self.due_at_once
        self._contradicted = 0
        return self.due

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return time.monotonic() >= self._began + self.slower * self._calm * self._wait_s

    @property
    def due_at_once(self) -> bool:
        """The same while what is seen contradicts what was explained: it may cost more then.

        Where haste does not help, because no explanation agrees with what follows it, it ends.
        """
        times = min(1 << (self._contradicted // IN_VAIN), HURRIED_SHARE / self._share)
        hurried = self.slower * times * self._wait_s * self._share / HURRIED_SHARE
        return time.monotonic() >= self._began + max(hurried, PERIOD_S)

    def explain(self, make: Callable[[], Whole]) -> Whole:
        """Explains; the next is due the later, the more this one costs."""
        began, cpu = time.monotonic(), time.thread_time()
        made = make()
        first = made.verdict.report.span_ns < FIRST_NS
        share = self._share * (FIRST_SHARE / SHARE if first else 1)
        self._began, self._wait_s = (
            began,
            max(PERIOD_S, min((time.thread_time() - cpu) / share, self._longest_s)),
        )
        named = _named(made)
        # while the window still fills, each knows more than the one before
        self._calm = CALM if not first and named == self._named else 1
        self._named = named
        self._contradicted += 1
        return made


def _named(made: Whole) -> object:
    """What the panel names: the kind of program, and the causes in their order."""
    report = made.verdict.report
    findings = tuple((one.cause, one.kind, one.pid) for one in report.findings[:FIRST_CAUSES])
    return report.diagnosis.kind if report.diagnosis else None, findings


class Looks:
    """Decides when the next look at the newest time is due: as often as it can, and once a second at least.

    Attributes:
        slower: How many times less often than usual.
    """

    slower = 1

    def __init__(self) -> None:
        self._due = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return time.monotonic() >= self._due

    def look(self, fresh: Fresh, window: Window) -> Verdict | None:
        """Looks; the next is due the later, the more this one costs."""
        began, cpu = time.monotonic(), time.thread_time()
        verdict = fresh.look(window, self.slower)
        self._due = began + self.slower * min((time.thread_time() - cpu) / LOOK_SHARE, LONGEST_S)
        return verdict
