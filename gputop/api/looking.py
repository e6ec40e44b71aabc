"""An explanation with something of what it was made from, of a recording of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from gputop.analysis.answer.picture import Lanes
from gputop.analysis.answer.report import Report
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.lanes import joined as joined_lanes
from gputop.analysis.lanes import lanes_of, marked
from gputop.analysis.ledger import Ledger, report_of
from gputop.analysis.window import Carried, Stretch
from gputop.api.holes import about_holes, unkept_of
from gputop.api.reading import Progress, understood
from gputop.api.recording_evidence import checked, examined
from gputop.api.session import Session
from gputop.api.stretches import MEMORY, Explaining, filled, fits, joined
from gputop.parts.mapreduce import Segment

LONG_THREADS = 16  # have lanes where a recording is read in parts: 64 of ten hours would take 600 MB

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ReportExtras(Generic[Found]):
    """What of an explanation is wanted beside its report; by functions of modules, for other processes.

    Attributes:
        of: Takes it from a report and what that was made from.
        join: Joins that of two parts, the earlier one first.
    """

    of: Callable[[Report, AttributionContext, Outcome], Found]
    join: Callable[[Found, Found], Found]


@dataclass(frozen=True, slots=True)
class _Looking(Generic[Found]):
    """Explains a recording part by part (``gputop.parts.mapreduce.ChainedWork``)."""

    work: Explaining
    view: ReportExtras[Found]

    def begin(self) -> Carried:
        """Nothing is known before the recording."""
        return self.work.begin()

    def follow(
        self, segment: Segment, before: Carried
    ) -> tuple[Carried | None, Callable[[], tuple[Ledger, Found] | None]]:
        """What the next part must know, and how to explain this one."""
        return filled(segment, before, self._look)

    def _look(self, window: Stretch, until_ns: int) -> tuple[Ledger, Found] | None:
        part = window.part(until_ns)
        if part is None:
            return None
        ledger, scene, outcome = part
        return ledger, self.view.of(report_of(ledger), scene, outcome)

    def merge(
        self, earlier: tuple[Ledger, Found] | None, later: tuple[Ledger, Found] | None
    ) -> tuple[Ledger, Found] | None:
        """Of two parts; None where a part holds no time."""
        if earlier is None or later is None:
            return earlier or later
        ledger = self.work.merge(earlier[0], later[0])
        assert ledger is not None
        return ledger, self.view.join(earlier[1], later[1])

    def finish(self, whole: tuple[Ledger, Found] | None) -> tuple[Report, Found | None]:
        """The report of all parts, and what was wanted beside it."""
        report = self.work.finish(whole and whole[0])
        return report, whole and whole[1]


def looked_at(
    session: Session, view: ReportExtras[Found], progress: Progress | None = None
) -> tuple[Report, Found]:
    """Explains a recording, in parts where it does not fit into ``MEMORY``.

    Args:
        session: The recording.
        view: What is wanted beside the report.
        progress: Reports how far the work is.

    Raises:
        NoCallsError: It was recorded without eBPF.
        EndedEarlyError: It was interrupted.
        GputopError: It cannot be read or understood.
    """
    if fits(checked(session), MEMORY):
        report, scene, outcome = examined(session, progress)
        with understood(session.path):
            return report, view.of(report, scene, outcome)
    if progress is not None:
        progress.goes_on("explaining")
    work = _Looking(Explaining(dict(session.header), unkept=tuple(unkept_of(session))), view)
    report, found = work.finish(joined(work, session, MEMORY, progress))
    assert found is not None  # finish has complained
    return replace(report, notes=(*about_holes(session), *report.notes)), found


@dataclass(frozen=True, slots=True)
class Pictured:
    """The lanes of a recording, and what its threads are called."""

    lanes: Lanes
    names: dict[int, str]


def pictured(session: Session, progress: Progress | None = None) -> tuple[Report, Pictured]:
    """The report of a recording, and its lanes.

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
