"""The page of a recording, as one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from gputop.analysis.answer.kernel_report import exact_texts, kernel_texts
from gputop.analysis.answer.picture import rank_texts
from gputop.analysis.answer.report import Report
from gputop.api.looking import pictured
from gputop.api.reading import SILENT, Progress
from gputop.api.session import Session
from gputop.documents import fields
from gputop.engine.session_totals import Stats
from gputop.exchange.stacks import stack_times
from gputop.format import NS_PER_S, format_bytes, format_count, format_ns
from gputop.report_page.document import document
from gputop.report_page.findings_html import findings, rest, verdict
from gputop.report_page.flame_html import flame
from gputop.report_page.latency import latencies
from gputop.report_page.markup import items, sentence
from gputop.report_page.timeline_html import timeline
from gputop.report_page.totals_html import tables

_MOST_COMMANDS = 6


def report_page(session: Session, name: str, progress: Progress = SILENT) -> str:
    """Return one HTML page of a recording; its figures are those of ``gputop explain --json`` and ``stats``.

    Raises:
        NoCallsError: It was recorded without eBPF.
        GputopError: It cannot be read or understood.
    """
    report, picture = pictured(session, progress)
    progress.goes_on("adding up")
    totals, stacks = session.totals(), stack_times(session)
    graphs = flame(stacks.calls, stacks.names, "Time inside calls, by line")
    graphs += flame(stacks.kernels, stacks.names, "Time on the GPU, by line and kernel")
    graphs += flame(stacks.waits, stacks.names, "Time off the CPU between calls, by line")
    sections = (
        ("Timeline", timeline(picture.lanes, report, picture.names)),
        ("Findings", findings(report) + rest(report)),
        *_listed(report),
        ("Durations of calls", latencies(totals)),
        ("Lines", graphs or '<p class="note">no lines were recorded</p>'),
        ("Totals", tables(totals) + items(totals.problems, "notes")),
    )
    title, held = f"gputop report: {name}", {"explain": fields.document(report)}
    return document(title, _about(session, totals), verdict(report), sections, held)


def _listed(report: Report) -> Iterable[tuple[str, str]]:
    """Yield sections that only some recordings have: ranks, kernels."""
    for head, texts in (
        ("Ranks", rank_texts(report.ranks) if report.ranks is not None else []),
        ("Kernels", kernel_texts(report.kernels) if report.kernels is not None else []),
        ("On the GPU", exact_texts(report.exact) if report.exact is not None else []),
    ):
        if texts:
            yield head, f"<p>{sentence(texts[0])}</p>{items((one.strip() for one in texts[1:]), 'listed')}"


def _about(session: Session, totals: Stats) -> Iterable[tuple[str, str]]:
    header = session.header
    begun = datetime.fromtimestamp(totals.start_wall_ns / NS_PER_S, tz=timezone.utc)
    yield "recorded", f"{begun:%Y-%m-%d %H:%M:%S} UTC, {format_ns(totals.duration_ns)}"
    called = [one for one in totals.processes if one.calls]
    for process in called[:_MOST_COMMANDS]:
        yield "program", f"{process.command or process.name} ({process.pid})"
    if len(called) > _MOST_COMMANDS:
        yield "program", f"and {len(called) - _MOST_COMMANDS} more"
    machine = header.get("machine")
    if isinstance(machine, dict):
        yield "machine", ", ".join(_of_machine(machine))
    if header.get("driver"):
        yield "driver", str(header["driver"])
    yield "gputop", str(header.get("gputop", "unknown version"))
    yield "events", f"{format_count(totals.events)}, {totals.lost.events} lost"


def _of_machine(machine: Mapping[str, Any]) -> Iterable[str]:
    if machine.get("host"):
        yield str(machine["host"])
    if isinstance(machine.get("cpus"), int):
        yield f"{machine['cpus']} CPUs"
    if isinstance(machine.get("memory_bytes"), int):
        yield format_bytes(machine["memory_bytes"])
    if machine.get("kernel"):
        yield f"Linux {machine['kernel']}"
    if machine.get("architecture"):
        yield str(machine["architecture"])
