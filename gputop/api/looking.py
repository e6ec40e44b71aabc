"""An explanation with results from its sources, of a recording of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from gputop.analysis.answer.picture import Lanes
from gputop.analysis.answer.report import Report
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.lanes import joined as joined_lanes
from gputop.analysis.lanes import lanes_of, marked
from gputop.analysis.ledger import Ledger, merge, report_of
from gputop.analysis.window import Stretch
from gputop.api.holes import about_holes, unkept_of
from gputop.api.reading import SILENT, Progress, understood
from gputop.api.recording_evidence import checked, examined
from gputop.api.session import Session
from gputop.api.stretches import MEMORY, Explaining, PartByPart, fits, joined

LONG_THREADS = 16  # with lanes, of a recording in parts: 64 would need 600 MB for ten hours

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ReportExtras(Generic[Found]):
    """Further results of an explanation; both are functions of modules, for other processes.

    Attributes:
        of: Returns them from a report and its sources.
        join: Joins those of two parts, the earlier one first.
    """

    of: Callable[[Report, AttributionContext, Outcome], Found]
    join: Callable[[Found, Found], Found]


def _look(window: Stretch, until_ns: int, view: ReportExtras[Found]) -> tuple[Ledger, Found] | None:
    part = window.part(until_ns)
    if part is None:
        return None
    ledger, scene, outcome = part
    return ledger, view.of(report_of(ledger), scene, outcome)


def _both(
    earlier: tuple[Ledger, Found], later: tuple[Ledger, Found], view: ReportExtras[Found]
) -> tuple[Ledger, Found]:
    return merge(earlier[0], later[0]), view.join(earlier[1], later[1])


def looked_at(
    session: Session, view: ReportExtras[Found], progress: Progress = SILENT
) -> tuple[Report, Found]:
    """Explain a recording, in parts if it does not fit into ``MEMORY``.

    Args:
        view: The further results.

    Raises:
        NoCallsError: It was recorded without eBPF.
        EndedEarlyError: It was interrupted.
        GputopError: It cannot be read or understood.
    """
    if fits(MEMORY, checked(session)):
        report, scene, outcome = examined(session, progress)
        with understood(session.path):
            return report, view.of(report, scene, outcome)
    progress.goes_on("explaining")
    work = Explaining(dict(session.header), unkept=tuple(unkept_of(session)))
    parts = PartByPart(work.header, partial(_look, view=view), partial(_both, view=view))
    ledger, found = joined(parts, session, MEMORY, progress) or (None, None)
    report = work.report(ledger)
    assert found is not None  # else ``report`` has raised
    return replace(report, notes=(*about_holes(session), *report.notes)), found


@dataclass(frozen=True, slots=True)
class Pictured:
    """The lanes of a recording, and the names of its threads."""

    lanes: Lanes
    names: dict[int, str]


def pictured(session: Session, progress: Progress = SILENT) -> tuple[Report, Pictured]:
    """Return the report of a recording, and its lanes.

    Raises:
        GputopError: As of ``looked_at``.
    """
    report, found = looked_at(session, ReportExtras(_picture, _joined), progress)
    # a part marks its own worst moments, not those of the whole
    return report, replace(found, lanes=marked(found.lanes, report, report.start_ns))


def _picture(report: Report, scene: AttributionContext, outcome: Outcome) -> Pictured:
    facts, threads = scene.evidence.facts, scene.evidence.threads
    both = zip(threads.tid.tolist(), threads.pid.tolist(), strict=True)
    names = {int(tid): facts.thread_name(int(tid), int(pid)) for tid, pid in both}
    return Pictured(lanes_of(scene, outcome, report, report.start_ns), names)


def _joined(older: Pictured, newer: Pictured) -> Pictured:
    lanes = joined_lanes(older.lanes, newer.lanes, older.lanes.first)
    lanes = replace(lanes, threads=lanes.threads[:LONG_THREADS])
    shown = {lane.tid for lane in lanes.threads}
    names = {tid: name for tid, name in (older.names | newer.names).items() if tid in shown}
    return Pictured(lanes, names)
