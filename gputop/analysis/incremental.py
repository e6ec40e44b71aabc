"""Light analyses of the newest second, between full explanations.

A full explanation of ten seconds costs 30 ms to one second of CPU, depending on the number of events, so it
is made every few seconds. Between two of them only newer records are analysed: proved idle time, pending work
and the cause of each piece. These update the figures and the order of the causes (report_update.py);
estimates, chains, advice, steps and gains are those of the last full explanation.
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

# how far back a light analysis reaches
LEAST_REACH_NS, USUAL_REACH_NS, MOST_REACH_NS = 400_000_000, 1_000_000_000, 3_000_000_000
LEAST_NEW_NS = 150_000_000  # analysed again: calls and waits under way have ended by then
DEAR_S, CHEAP_S = 0.02, 0.01  # CPU of an analysis above which the reach shrinks, and below which it grows


@dataclass(frozen=True, slots=True)
class Whole:
    """A full explanation, with the ledger that later analyses update."""

    verdict: Verdict
    ledger: Ledger

    @property
    def counted(self) -> Counted:
        """The report's figures by time column."""
        assert self.verdict.counted is not None
        return self.verdict.counted


def explained(window: Window, effort: Effort = LIVE) -> Whole:
    """Return the full explanation of a window."""
    verdict, ledger, scene, outcome = window.examined(effort)
    counted = count(scene, outcome.cause, light=False)
    return Whole(replace(verdict, counted=counted), ledger)


class Fresh:
    """The current verdict: the last full explanation, updated by light analyses."""

    def __init__(self) -> None:
        self._sums = ColumnSums()
        self._whole: Whole | None = None
        self._before: Before | None = None
        self._lanes: Lanes | None = None
        self._settled_ns = 0
        self._reach_ns = USUAL_REACH_NS
        self.contradicted = False  # True if the last analysis contradicts the last full explanation

    def consume(self, whole: Whole) -> Verdict:
        """Replace the full explanation and return its verdict."""
        verdict, lanes = whole.verdict, self._lanes
        self._whole, self._before = whole, Before(verdict.report, whole.ledger, whole.counted.sums())
        self._sums.put(whole.counted)
        self.contradicted = False
        self._lanes = verdict.lanes
        if lanes is not None and lanes.first + lanes.columns > verdict.lanes.first:  # newer columns stay
            self._lanes = joined(lanes, verdict.lanes, verdict.lanes.first)
        return verdict

    def look(self, window: Window, rarer: int = 1) -> Verdict | None:
        """Return the verdict at the window's newest mark; None before the first full explanation.

        Args:
            window: The newest records.
            rarer: How many times less often than usual this is called; the reach grows by that factor.
        """
        whole, before = self._whole, self._before
        if whole is None or before is None:
            return None
        began = time.thread_time()
        end = window.end_ns
        low = max(self._settled_ns, end - rarer * self._reach_ns, window.begin_ns) // COLUMN_NS * COLUMN_NS
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
        cpu_s = (time.thread_time() - began) / rarer
        if cpu_s > DEAR_S:
            self._reach_ns = max(int(self._reach_ns * 0.8), LEAST_REACH_NS)
        elif cpu_s < CHEAP_S:
            self._reach_ns = min(int(self._reach_ns * 1.25), MOST_REACH_NS)
        age = end - whole.verdict.end_ns
        steps, called_ns = whole.verdict.steps, window.called_ns
        return Verdict(report, end, window.start_ns, self._lanes, age, steps, called_ns=called_ns)


def seen(window: Window, stretch: tuple[int, int]) -> tuple[AttributionContext, Ints]:
    """Return (context, catalogue row of each segment's cause) of the newest time, without estimates."""
    evidence = window.newest(stretch[0])
    gpu = GpuTime(evidence, stretch)
    scene = AttributionContext(Analysis(evidence, gpu, gpu.gaps, *walk(evidence, gpu.gaps)), with_steps=False)
    return scene, owners(scene)


# The schedule: the cost of an explanation sets when the next is due, so that all use a fixed share of a core.

PERIOD_S = 0.7  # between two explanations: a third repetition is reported within a second
SHARE = 0.015  # of a core, of full explanations
HURRIED_SHARE = 0.06  # while new records contradict the explanation on the screen
IN_VAIN = 2  # explanations contradicted at once, after which ``HURRIED_SHARE`` is halved; again after as many
FIRST_CAUSES = 2  # as the panel has
CALM = 2  # times less often while two explanations in a row name the same causes
LOOK_SHARE = 0.012  # of a core, of light analyses
LONGEST_S = 0.9  # between two light analyses, so that one comes at the first mark after it
FIRST_NS, FIRST_SHARE = 5_000_000_000, 0.03  # a larger share while the GPU has worked for less than this


class ExplainSchedule:
    """When the next full explanation is due.

    Attributes:
        slower: How many times less often than usual.
    """

    slower = 1

    def __init__(self, share: float = SHARE, longest_s: float = math.inf) -> None:
        self._share, self._longest_s = share, longest_s
        self._began, self._wait_s = 0.0, 0.0
        self._contradicted = 0  # explanations in a row, contradicted by the next records
        self._named: object = None
        self._calm = 1

    def is_due(self, *, contradicted: bool) -> bool:
        """True if the next one is due; ``contradicted``: new records contradict the last one."""
        if contradicted:
            return self.due_at_once
        self._contradicted = 0
        return self.due

    @property
    def due(self) -> bool:
        """True if enough time has passed."""
        return time.monotonic() >= self._began + self.slower * self._calm * self._wait_s

    @property
    def due_at_once(self) -> bool:
        """True if enough time has passed at the higher share, which falls with each vain explanation."""
        times = min(1 << (self._contradicted // IN_VAIN), HURRIED_SHARE / self._share)
        hurried = self.slower * times * self._wait_s * self._share / HURRIED_SHARE
        return time.monotonic() >= self._began + max(hurried, PERIOD_S)

    def explain(self, make: Callable[[], Whole]) -> Whole:
        """Explain; the cost sets when the next one is due."""
        began, cpu = time.monotonic(), time.thread_time()
        made = make()
        report = made.verdict.report
        first = report.span_ns < FIRST_NS
        share = self._share * (FIRST_SHARE / SHARE if first else 1)
        self._began = began
        self._wait_s = max(PERIOD_S, min((time.thread_time() - cpu) / share, self._longest_s))
        causes = [(one.cause, one.kind, one.pid) for one in report.findings[:FIRST_CAUSES]]
        named = report.diagnosis.kind if report.diagnosis else None, causes
        # while the window still fills, each knows more than the one before
        self._calm = CALM if not first and named == self._named else 1
        self._named = named
        self._contradicted += 1
        return made


class Looks:
    """When the next light analysis is due: as often as its share allows, at least once a second.

    Attributes:
        slower: How many times less often than usual.
    """

    slower = 1

    def __init__(self) -> None:
        self._due = 0.0

    @property
    def due(self) -> bool:
        """True if enough time has passed."""
        return time.monotonic() >= self._due

    def look(self, fresh: Fresh, window: Window) -> Verdict | None:
        """Analyse the newest time; the cost sets when the next analysis is due."""
        began, cpu = time.monotonic(), time.thread_time()
        verdict = fresh.look(window, self.slower)
        self._due = began + self.slower * min((time.thread_time() - cpu) / LOOK_SHARE, LONGEST_S)
        return verdict
