"""GPU idle time by cause, summed over explanations with overlapping windows; and a histogram of steps."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gputop.analysis.answer.picture import COLUMN_NS
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.report_update import Key, OfCause, OfGpu, Row
from gputop.analysis.window import Verdict
from gputop.engine.calls.histogram import Ints

_CATALOGUE = {cause.number: row for row, cause in enumerate(CATALOGUE)}
# a step's length, ns: from 1 ms to a minute
STEP_BOUNDS = tuple(1 << power for power in range(20, 37, 2))


@dataclass(slots=True)
class GpuIdleTime:
    """One GPU, ns: time observed, and bounds of its idle time."""

    observed: int = 0
    idle: int = 0
    idle_upper: int = 0


class _New:
    """The part of a window's figures that lies after a moment."""

    def __init__(self, verdict: Verdict, since_ns: int) -> None:
        self._counted = verdict.counted
        self._even = (verdict.end_ns - since_ns) / verdict.report.duration_ns
        self._since_ns = since_ns

    def part(self, whole_ns: int, *keys: Key) -> int:
        """Return the new part of a figure, by when its keys were counted; evenly if none was."""
        counted = self._counted
        columns = [counted.figures[key] for key in keys if key in counted.figures] if counted else []
        total = sum(int(column.sum()) for column in columns)
        if counted is None or not total:
            return round(whole_ns * self._even)
        # the column in which the previous window ended is new in part
        edges = (counted.first + np.arange(counted.columns)) * COLUMN_NS
        fresh = np.clip((edges + COLUMN_NS - self._since_ns) / COLUMN_NS, 0, 1)
        return round(whole_ns * sum(float(column @ fresh) for column in columns) / total)


@dataclass(slots=True)
class StepHistogram:
    """Steps of a process: number up to each bound and beyond all, and the sum of ns."""

    counts: Ints = field(default_factory=lambda: np.zeros(len(STEP_BOUNDS) + 1, np.int64))
    sum_ns: int = 0


class Idle:
    """Consumes verdicts in the explaining thread; other threads read under ``held``.

    Windows of ten seconds overlap: only the new part of each counts, by the time columns of its report.
    """

    def __init__(self) -> None:
        self.held = threading.Lock()
        self.gpus: dict[str, GpuIdleTime] = {}  # by label: "GPU 0"
        self.causes: dict[tuple[int, str, str], int] = {}  # (process, cause, level) -> ns at least
        self.steps: dict[int, StepHistogram] = {}
        self._end_ns = 0

    def consume(self, verdict: Verdict) -> None:
        report = verdict.report
        begin_ns = verdict.end_ns - report.duration_ns
        if report.duration_ns <= 0 or verdict.end_ns <= max(self._end_ns, begin_ns):
            return
        new = _New(verdict, max(self._end_ns, begin_ns))
        self._end_ns = verdict.end_ns
        with self.held:
            for gpu in report.gpus:
                row, of = self.gpus.setdefault(gpu.label, GpuIdleTime()), partial(OfGpu, gpu.label)
                row.observed += new.part(gpu.span_ns, of(Row.SPAN))
                row.idle += new.part(gpu.idle.lower, of(Row.PROVED))
                maybe = (of(one) for one in (Row.PROVED, Row.ASSUMED, Row.ESTIMATED, Row.OPEN))
                row.idle_upper += new.part(gpu.idle.upper, *maybe)
            for finding in report.findings:
                if finding.kind == "idle":
                    of_cause = partial(OfCause, _CATALOGUE.get(finding.cause, -1), finding.pid)
                    key = finding.pid, finding.cause, str(finding.level)
                    ns = new.part(finding.loss.lower, of_cause(Row.PROVED), of_cause(Row.ASSUMED))
                    self.causes[key] = self.causes.get(key, 0) + ns

    def consume_step(self, pid: int, ns: int) -> None:
        with self.held:
            row = self.steps.setdefault(pid, StepHistogram())
            row.counts[np.searchsorted(STEP_BOUNDS, ns)] += 1
            row.sum_ns += ns

    def forget(self, living: set[int]) -> None:
        """Drop processes that are no longer counted."""
        with self.held:
            self.steps = {pid: row for pid, row in self.steps.items() if pid in living}
            self.causes = {key: ns for key, ns in self.causes.items() if key[0] in living}
