"""The process to select before the user chooses one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.feed import Explained
from gputop.ui.model.listing.tree import ancestors, parents_of

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report


def subject_of(explained: Explained, frame: Frame, started: int | None) -> int | None:
    """Return the process to select while the user has chosen none, or None.

    Args:
        explained: The explanation, whose process comes first.
        frame: The current processes.
        started: The process that gputop was started for, maybe a shell around the CUDA program.
    """
    there = {row.pid: row for row in frame.processes}
    reported = _of_report(explained.report) if explained.report is not None else None
    if reported in there:
        return reported
    if started is None:
        return None
    parents = parents_of(frame.processes)
    family = [row for row in frame.processes if started in (row.pid, *ancestors(row.pid, parents))]
    busiest = max(family, key=lambda row: row.calls_per_second, default=None)
    if busiest is not None and busiest.calls_per_second:
        return busiest.pid
    return started if started in there else None


def _of_report(report: Report) -> int | None:
    lead = report.diagnosis.lead if report.diagnosis is not None else None
    if report.findings:
        return report.findings[lead or 0].pid
    return report.steps.pid if report.steps is not None else None


def without_cuda(row: ProcessRow) -> bool:
    """True if a process has no known CUDA call and no known GPU."""
    return not row.gpus and not row.calls and not row.calls_per_second and not row.gpu_memory_bytes
