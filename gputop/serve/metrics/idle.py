"""How long GPUs were idle and why, added up from explanations whose windows overlap; and steps by length."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from gputop.analysis.window import Verdict
from gputop.engine.calls.histogram import Ints

# a step's length, ns: from 1 ms to a minute
STEP_BOUNDS = tuple(1 << power for power in range(20, 37, 2))


@dataclass(slots=True)
class GpuIdleTime:
    """One GPU, ns: how long it was looked at, and between which bounds it was idle."""

    observed: int = 0
    idle: int = 0
    idle_upper: int = 0


@dataclass(slots=True)
class StepHistogram:
    """The steps of a process: how many up to each bound, and beyond all; all their ns together."""

    counts: Ints = field(default_factory=lambda: np.zeros(len(STEP_BOUNDS) + 1, np.int64))
    sum_ns: int = 0


class Idle:
    """Takes verdicts in, in the thread that makes them; ``held`` lets others look.

    A window is ten seconds, and the next one begins before it ends: of each the share of its time that is new
    counts, as if what it tells were spread over it evenly.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.held = threading.Lock()
        self.gpus: dict[str, GpuIdleTime] = {}  # by label: "GPU 0"
        self.causes: dict[tuple[int, str, str], int] = {}  # (process, cause, level) -> ns at least
        self.steps: dict[int, StepHistogram] = {}
        self._end_ns = 0

    def take(self, verdict: Verdict) -> None:
        """Takes an explanation in."""
        report = verdict.report
        begin_ns = verdict.end_ns - report.duration_ns
        fresh = verdict.end_ns - max(self._end_ns, begin_ns)
        if report.duration_ns <= 0 or fresh <= 0:
            return
        self._end_ns = verdict.end_ns
        share = fresh / report.duration_ns
        with self.held:
            for gpu in report.gpus:
                row = self.gpus.setdefault(gpu.label, GpuIdleTime())
                row.observed += round(gpu.span_ns * share)
                row.idle += round(gpu.idle.lower * share)
                row.idle_upper += round(gpu.idle.upper * share)
            for finding in report.findings:
                if finding.kind == "idle":
                    key = finding.pid, finding.cause, str(finding.level)
                    self.causes[key] = self.causes.get(key, 0) + round(finding.loss.lower * share)

    def take_step(self, pid: int, ns: int) -> None:
        """Takes a step in."""
        with self.held:
            row = self.steps.setdefault(pid, StepHistogram())
            row.counts[np.searchsorted(STEP_BOUNDS, ns)] += 1
            row.sum_ns += ns

    def forget(self, living: set[int]) -> None:
        """Drops processes that are told of nowhere any more."""
        with self.held:
            self.steps = {pid: row for pid, row in self.steps.items() if pid in living}
            self.causes = {key: ns for key, ns in self.causes.items() if key[0] in living}
