"""Parts of an explanation for other tools: pieces of idle time, findings, lost records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.report import Report
from gputop.analysis.causes.cause import in_order
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.findings.findings import Outcome
from gputop.api.looking import ReportExtras, looked_at
from gputop.api.reading import SILENT, Progress
from gputop.api.session import Session

UNEXPLAINED = "not explained"


@dataclass(frozen=True, slots=True)
class IdlePieces:
    """Pieces of GPU idle time, those of one GPU by begin and disjoint."""

    gpu: list[str]  # label of the GPU of each
    # begin, end: CLOCK_MONOTONIC, ns
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    cause: list[str]  # ``C12``, or ``""`` without one
    title: list[str]  # title of the cause
    level: list[str]  # ``proved``, ``strong`` (proved under an assumption) or ``estimated``
    pid: npt.NDArray[np.int64]
    tid: npt.NDArray[np.int64]  # the thread at the end of its chain


@dataclass(frozen=True, slots=True)
class ExplainedRecording:
    """An explained recording; ``lost`` are (begin, end) of stretches with missing records."""

    report: Report
    idle: IdlePieces
    lost: tuple[tuple[int, int], ...]


_Found = tuple[IdlePieces, tuple[tuple[int, int], ...]]


def explained(session: Session, progress: Progress = SILENT) -> ExplainedRecording:
    """Explain a recording for export.

    Raises:
        NoCallsError: It was recorded without eBPF.
        GputopError: It cannot be read or understood.
    """
    report, (idle, lost) = looked_at(session, ReportExtras(_pieces, _joined), progress)
    return ExplainedRecording(report, idle, lost)


def _pieces(report: Report, scene: AttributionContext, outcome: Outcome) -> _Found:
    gaps, segments = scene.gaps, scene.segments
    labels = scene.analysis.gpu.devices.labels
    names = [(cause.number, cause.title) for cause in in_order()] + [("", UNEXPLAINED)]
    keep = np.flatnonzero(segments.end > segments.begin)
    device = gaps.device[segments.gap[keep]]
    order = keep[np.lexsort((segments.begin[keep], device))]
    gap = segments.gap[order]
    causes = [names[row] for row in outcome.cause[order].tolist()]
    threads, thread = scene.evidence.threads, segments.thread[order]
    known = thread >= 0
    idle = IdlePieces(
        gpu=[labels[row] for row in gaps.device[gap].tolist()],
        begin=segments.begin[order],
        end=segments.end[order],
        cause=[number for number, _ in causes],
        title=[title for _, title in causes],
        level=[
            "estimated" if guessed else "proved" if proved and report.coverage else "strong"
            for proved, guessed in zip(gaps.proved[gap].tolist(), gaps.estimated[gap].tolist(), strict=True)
        ],
        pid=np.where(known, threads.pid[thread], 0),
        tid=np.where(known, threads.tid[thread], 0),
    )
    return idle, tuple(zip(*(column.tolist() for column in scene.evidence.lost), strict=True))


def _joined(older: _Found, newer: _Found) -> _Found:
    (before, lost), (after, more) = older, newer
    both = IdlePieces(
        before.gpu + after.gpu,
        np.concatenate([before.begin, after.begin]),
        np.concatenate([before.end, after.end]),
        before.cause + after.cause,
        before.title + after.title,
        before.level + after.level,
        np.concatenate([before.pid, after.pid]),
        np.concatenate([before.tid, after.tid]),
    )
    return both, tuple(dict.fromkeys((*lost, *more)))
