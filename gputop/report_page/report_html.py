"""The page about a recording: everything that is shown, in one text."""

from __future__ import annotations

from gputop.api.looking import Pictured, pictured
from gputop.api.reading import Progress
from gputop.api.session import Session
from gputop.engine.stats import Stats
from gputop.exchange.stacks import StackTimes, stack_times
from gputop.explain.answer.output import report_to_json
from gputop.explain.answer.report import Report
from gputop.format import format_clock, format_count, format_ns
from gputop.report_page.document import document
from gputop.report_page.findings_html import findings, rest, verdict
from gputop.report_page.flame_html import flame
from gputop.report_page.latency import latencies
from gputop.report_page.markup import items
from gputop.report_page.timeline_html import timeline
from gputop.report_page.totals_html import tables


def report_page(session: Session, name: str, progress: Progress | None = None) -> str:
    """One HTML page about a recording; its figures are those of ``gputop explain --json`` and ``stats``.

    Args:
        session: The recording.
        name: What the page calls it.
        progress: Is told how far the work is.

    Raises:
        NoCallsError: It was recorded without eBPF.
        GputopError: It cannot be read or understood.
    """
    report, picture = pictured(session, progress)
    if progress is not None:
        progress.goes_on("adding up")
    return _page(session, name, report, picture, session.totals(), stack_times(session))


def _page(
    session: Session,
    name: str,
    report: Report,
    picture: Pictured,
    totals: Stats,
    stacks: StackTimes,
) -> str:
    graphs = flame(stacks.calls, stacks.names, "Time inside calls, by line")
    graphs += flame(stacks.waits, stacks.names, "Time off the CPU between calls, by line")
    sections = (
        ("Timeline", timeline(picture.lanes, report, picture.names)),
        ("Findings", findings(report) + rest(report)),
        ("Durations of calls", latencies(totals)),
        ("Lines", graphs or '<p class="note">no lines were recorded</p>'),
        ("Totals", tables(totals) + items(totals.problems, "notes")),
    )
    return document(
        f"gputop report: {name}",
        _about(session, totals),
        verdict(report),
        sections,
        {"explain": report_to_json(report)},
    )


def _about(session: Session, totals: Stats) -> str:
    header = session.header
    machine = header.get("machine")
    kernel = machine.get("kernel") if isinstance(machine, dict) else None
    parts = [
        f"{format_ns(totals.duration_ns)} recorded at {format_clock(totals.start_wall_ns, 0)} UTC",
        f"{format_count(totals.events)} events, {totals.lost.events} lost",
        f"Linux {kernel}" if kernel else "",
        f"driver {header.get('driver')}" if header.get("driver") else "",
    ]
    return ", ".join(part for part in parts if part)
