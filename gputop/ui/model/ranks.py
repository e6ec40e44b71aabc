"""The ranks of a job on this machine: who comes last to the collectives, who waits, what makes it late."""

from __future__ import annotations

from gputop.analysis.answer.picture import RankTimes
from gputop.analysis.answer.report import Report
from gputop.engine.frame import Frame
from gputop.format import escape_text, format_count, format_ns, format_percent
from gputop.ui.model.look import Glyphs, Line, fit_line


def rank_lines(report: Report | None, frame: Frame, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """A heading, and a line for each rank, who is last most often first; those of ``pid`` are marked.

    ``LAST%`` is the share of the collectives in which it came last, ``LATE`` how long it came after the first
    rank and ``WAITS`` how long before the last one, a collective; ``FINDING`` the largest one of its own.
    """
    ranks = report.ranks.ranks if report is not None and report.ranks is not None else ()
    rows = {row.pid: row for row in frame.processes}
    head = f"  {'RANK':>5} {'PID':>8} {'GPU':<8} {'LAST%':>6} {'LATE':>8} {'WAITS':>8} {'COLL':>6}  FINDING"
    lines: list[Line] = [((head, "head"),)]
    for one in ranks:
        row = rows.get(one.pid)
        told = dict(row.belongs).get("rank") if row is not None else None
        each = max(one.collectives, 1)
        last = 100 * one.last / each
        spans = [
            (f"{'>' if one.pid == pid else ' '} {'-' if told is None else told:>5} {one.pid:>8} ", "value"),
            (f"{one.brief_gpu[:8] or '-':<8} ", "dim"),
            (f"{format_percent(last):>6} ", "warn" if last >= 50 and len(ranks) > 2 else "value"),
            (f"{format_ns(one.late_ns / each):>8} {format_ns(one.ahead_ns / each):>8} ", "value"),
            (f"{format_count(one.collectives):>6}  ", "dim"),
            (escape_text(_finding(report, one), ascii_only=glyphs.ascii), ""),
        ]
        lines.append(fit_line(spans, width, ellipsis=glyphs.ellipsis))
    return lines


def _finding(report: Report | None, one: RankTimes) -> str:
    """The title of the rank's largest finding."""
    from gputop.analysis.findings.gap_findings import LATE  # loaded long before there is a report

    own = [found for found in report.findings if found.pid == one.pid] if report is not None else []
    return next((found.title for found in own if found.cause not in LATE), "")
