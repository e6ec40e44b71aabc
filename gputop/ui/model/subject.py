"""What the screen is about before anybody chooses: the process of the verdict, and who uses no CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.engine.frame import Frame, ProcessRow
from gputop.format import escape_text
from gputop.playback.feed import Explained
from gputop.ui.model.tree import ancestors, parents_of
from probes import api
from probes.meaning import Role

if TYPE_CHECKING:
    from gputop.explain.answer.report import Report

NOTHING = "no call gave a GPU work yet"
_GIVING = frozenset(row.name for row in api.BY_OP if row.role in (Role.ENQUEUE, Role.COPY_SYNC))


def subject_of(explained: Explained, frame: Frame, started: int | None) -> int | None:
    """The process to select while the user has chosen none; None where any will do.

    Args:
        explained: The verdict: what it is about comes first.
        frame: The processes that are there.
        started: The process that gputop was told to watch, which may be a shell around the one that counts.
    """
    there = {row.pid: row for row in frame.processes}
    told = _of_report(explained.report) if explained.report is not None else None
    if told in there:
        return told
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


def nothing_yet(frame: Frame | None) -> str:
    """What is said where nothing is known of a GPU: that nobody uses CUDA, that work is given, or neither."""
    if frame is None or not frame.processes:
        return NOTHING
    if any(gives_work(row) for row in frame.processes):
        return "a GPU is given work: how it is used is not known yet"
    if all(map(without_cuda, frame.processes)):
        if len(frame.processes) > 1:
            return f"none of {len(frame.processes)} processes has used CUDA so far"
        return f"{escape_text(frame.processes[0].name)} ({frame.processes[0].pid}) has not used CUDA so far"
    return NOTHING


def gives_work(row: ProcessRow) -> bool:
    """Whether a call that gives a GPU work ended in the window."""
    return any(call.api in _GIVING and call.count for call in row.calls)


def without_cuda(row: ProcessRow) -> bool:
    """Whether a process has made no CUDA call that is known of, and is known to be on no GPU."""
    return not row.gpus and not row.calls and not row.calls_per_second and not row.gpu_memory_bytes
