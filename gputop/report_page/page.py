"""The page: style, script and everything that is shown in one text that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files

from gputop.engine.stats import Stats
from gputop.exchange.stacks import StackTimes, stack_times
from gputop.explain.answer.output import report_to_json
from gputop.explain.answer.picture import Lanes
from gputop.explain.answer.report import Report
from gputop.explain.lanes import lanes_of
from gputop.format import format_clock, format_count, format_ns
from gputop.library.evidence import examined
from gputop.library.reading import Progress, understood
from gputop.library.session import Session
from gputop.report_page.findings import findings, rest, verdict
from gputop.report_page.flame import flame
from gputop.report_page.latency import latencies
from gputop.report_page.markup import items, sentence, text
from gputop.report_page.tables import tables
from gputop.report_page.timeline import timeline


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
    evidence, report, scene, outcome = examined(session, progress)
    with understood(session.path):
        lanes = lanes_of(scene, outcome, report, report.start_ns)
        names = {int(tid): evidence.facts.thread_name(int(tid)) for tid in evidence.threads.tid.tolist()}
    if progress is not None:
        progress.goes_on("adding up")
    return _page(session, name, report, lanes, names, session.totals(), stack_times(session))


def _page(
    session: Session,
    name: str,
    report: Report,
    lanes: Lanes,
    names: dict[int, str],
    totals: Stats,
    stacks: StackTimes,
) -> str:
    folder = files("gputop.report_page")
    style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    graphs = flame(stacks.calls, stacks.names, "Time inside calls, by line")
    graphs += flame(stacks.waits, stacks.names, "Time off the CPU between calls, by line")
    sections = (
        ("Timeline", timeline(lanes, report, names)),
        ("Findings", findings(report) + rest(report)),
        ("How long calls took", latencies(totals)),
        ("Lines", graphs or '<p class="note">no lines were recorded</p>'),
        ("Totals", tables(totals) + items(totals.problems, "notes")),
    )
    body = "".join(f"<section><h2>{head}</h2>{content}</section>" for head, content in sections)
    # a document inside of the page, for programs: "<" could end the script that holds it
    document = json.dumps(report_to_json(report)).replace("<", "\\u003c")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(name)}: gputop report</title><style>{style}</style></head><body>"
        f"<header><h1>gputop report: {text(name)}</h1><p>{_about(session, totals)}</p></header>"
        f'<main>{verdict(report)}{body}</main><div id="told" role="status"></div>'
        f'<script type="application/json" id="explain">{document}</script><script>{script}</script>'
        "</body></html>\n"
    )


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


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
    return sentence(", ".join(part for part in parts if part))
