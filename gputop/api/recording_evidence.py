"""A whole recording as evidence for an explanation."""

from __future__ import annotations

from dataclasses import replace

from gputop.analysis.answer.report import Report
from gputop.analysis.build import examine
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.findings.findings import Outcome
from gputop.api.holes import about_holes
from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.engine.malloc_tuning import release_free_memory
from gputop.errors import NoCallsError

_ENOUGH = 1 << 20  # rows: their columns are large enough for the kernel's huge pages


def evidence_of(session: Session, progress: Progress = SILENT) -> Evidence:
    """Read all of a recording.

    Raises:
        NoCallsError: It was recorded without eBPF.
        SessionDamagedError: This gputop does not understand its data.
        SessionClosedError: The session is closed.
    """
    reader = reader_of(checked(session))
    with understood(session.path):
        gatherer = Gatherer(reader.header)
        joined = 0
        items = reader.items_between(-1, len(reader.marks))
        for item in progress.through(items, len(reader.marks)):
            if gatherer.feed(item) and sum(tick.rows for tick in gatherer.ticks[joined:-1]) > _ENOUGH:
                gatherer.join(joined)
                joined += 1
        evidence = assemble(gatherer, consume=True)
        release_free_memory()  # fragments too small for large arrays
        return evidence


def checked(session: Session) -> Session:
    """Return the session.

    Raises:
        NoCallsError: It was recorded without eBPF.
    """
    if not session.calls_observed:
        raise NoCallsError(
            f"{session.path} was recorded without eBPF, so it holds no CUDA calls and no waits to "
            "explain: record it as root"
        )
    return session


def examined(session: Session, progress: Progress = SILENT) -> tuple[Report, AttributionContext, Outcome]:
    """Read and explain all of a recording; return its report and the sources of that.

    Raises:
        GputopError: As of ``evidence_of``.
    """
    evidence = evidence_of(session, progress)
    progress.goes_on("explaining")
    with understood(session.path):
        report, scene, outcome = examine(evidence)
    return replace(report, notes=(*about_holes(session), *report.notes)), scene, outcome
