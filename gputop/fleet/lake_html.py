"""The HTML page of a lake: most expensive causes, late ranks, coverage and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gputop.fleet.lake.lake_summary import LakeSummary, TopRows
from gputop.fleet.lake.questions import GROUPS
from gputop.fleet.ranks.stragglers import Stragglers
from gputop.format import NS_PER_S, format_count, format_hours, format_ns, format_percent
from gputop.query.database import QueryResult
from gputop.report_page.document import document
from gputop.report_page.markup import figure, items, sentence, table, text

ROWS: Final = 300  # of each table, which keeps the page below 2 MB
_HOUR: Final = 3_600 * NS_PER_S
_TITLES: Final = {"cause": "By cause", "line": "By line", "user": "By user", "job": "By job"}
_HEADS: Final = {
    "gpu_hours": "GPU time lost", "proved_hours": "proved", "share": "share of GPU time",
    "sessions": "recordings", "path": "recording", "gpu_time_hours": "GPU time",
    "idle_least_hours": "idle at least", "idle_most_hours": "idle at most", "lost_events": "events lost",
    "loss_ms": "GPU time lost", "late_rank": "late rank", "late_ms": "late by", "last": "comes last",
    "clock_error_ms": "clocks may be off by", "seen": "ranks seen",
}  # fmt: skip
_SHARES: Final = frozenset({"share", "last"})
_COUNTS: Final = frozenset(
    {"sessions", "lost_events", "rank", "late_rank", "seen", "ranks", "collectives", "line"}
)
_RANKS: Final = (
    "job", "late_rank", "host", "process", "late_ms", "share", "last", "gpu_hours", "causes", "title", "file",
    "line", "function", "seen", "ranks", "collectives", "clock_error_ms", "communicator", "path",
)  # fmt: skip
_OTHERS: Final = ("job", "communicator", "seen", "ranks", "collectives", "clock_error_ms", "why")


def fleet_page(summary: LakeSummary, name: str) -> str:
    """Return the page; each figure of a table equals that of ``gputop fleet … --json``."""
    known = summary.coverage
    about = (
        f"recordings: {format_count(known['recordings'])}, hosts: {format_count(known['hosts'])}, recorded: "
        f"{_hours(known['recorded_ns'])}, GPU time: {_hours(known['gpu_ns'])}, events lost: "
        f"{format_count(known['lost_events'] or 0)}"
    )
    hours = "".join(
        _table(_TITLES[by], summary.overviews[by], f"gputop fleet overview --by {by}") for by in GROUPS
    )
    sections = (
        ("Most expensive", hours or '<p class="note">no finding of GPU idle time</p>'),
        ("Late ranks", _ranks(summary.ranks)),
        ("Coverage and losses", _coverage(summary)),
        (
            "Findings and recordings",
            _table("Findings, most expensive first", summary.findings, "gputop fleet findings")
            + _table("Recordings", summary.sessions, "gputop fleet sql"),
        ),
    )
    return document(f"gputop fleet report: {name}", [("recordings", about)], _first(summary), sections)


def _first(summary: LakeSummary) -> str:
    """The first sentences, and the GPU time as parts that add up."""
    known, (dearest, *_) = summary.coverage, (*summary.overviews["cause"].answer.rows, None)
    span, least, most = (int(known[key] or 0) for key in ("gpu_ns", "idle_least_ns", "idle_most_ns"))
    if not span:
        return f'<p class="verdict">{sentence("No recording here has GPU data.")}</p>'
    html = (
        f"Of {_hours(span)} of GPU time, GPUs were idle for {_percent(least, span)} to "
        f"{_percent(most, span)} %; findings explain {_hours(known['explained_ns'] or 0)}."
    )
    if dearest is not None:
        row = dict(zip(summary.overviews["cause"].answer.columns, dearest, strict=True))
        html += (
            f" Most is lost by {row['title']} [{row['cause']}]: {format_hours(row['gpu_hours'])}, "
            f"{format_percent(100 * row['share'])} % (recordings: {row['sessions']})."
        )
    if summary.ranks.late:
        many = f"{summary.ranks.late} of {_all(summary.ranks)}"
        html += f" A late rank keeps others waiting in {many} communicators."
    parts = (
        ("busy", "certainly busy", span - most),
        ("unknown", "busy or idle, uncertain", most - least),
        ("proved", "certainly idle", least),
    )
    at, rects, words = 0.0, [], []
    for kind, about, ns in parts:
        share = 100 * ns / span
        rects.append(f'<rect class="{kind}" x="{at:.2f}%" width="{share:.2f}%" height="14"/>')
        at += share
        words.append(f"{about} {figure('', ns, _hours(ns))} ({format_percent(share)} %)")
    bar = f'<svg class="bar" role="img" aria-label="GPU time">{"".join(rects)}</svg>'
    return (
        f'<p class="verdict">{sentence(html)}</p><div class="account"><b>GPU time</b>: '
        f"{', '.join(words)}{bar}</div>"
    )


def _ranks(ranks: Stragglers) -> str:
    late = _chosen(ranks.answer, _RANKS, late=True)
    others = _chosen(ranks.answer, _OTHERS, late=False)
    summary = (
        f"communicators: {_all(ranks)}; with a late rank: {ranks.late}, without: {ranks.healthy}, "
        f"not known: {ranks.unknown}"
    )
    notes = [summary]
    if ranks.unnumbered:
        notes.append(
            f"processes that call collectives of communicators that were not seen made: {ranks.unnumbered}"
        )
    elsewhere = "gputop fleet stragglers --all"
    return (
        _table("Ranks that other ranks wait for", TopRows(late, ranks.late), elsewhere)
        + items(notes, "notes")
        + _table("Of the other communicators", TopRows(others, _all(ranks) - ranks.late), elsewhere)
    )


def _chosen(answer: QueryResult, columns: Sequence[str], *, late: bool) -> QueryResult:
    """Rows with a late rank, or those without, in the columns that apply to them."""
    where = [answer.columns.index(name) for name in columns]
    whose = answer.columns.index("late_rank")
    rows = [row for row in answer.rows if (row[whose] is not None) == late][:ROWS]
    return QueryResult(
        tuple(columns), tuple(tuple(row[place] for place in where) for row in rows), more=False
    )


def _coverage(summary: LakeSummary) -> str:
    known = summary.coverage
    rows = (
        ("GPU time recorded", "gpu_ns"),
        ("certainly idle", "idle_least_ns"),
        ("idle at most", "idle_most_ns"),
        ("idle, explained by a finding", "explained_ns"),
        ("idle in gaps too small for a finding", "small_ns"),
        ("idle, unexplained", "unexplained_ns"),
        ("excluded: records are lost", "unknown_ns"),
    )
    cells = [[text(about), figure(key, known[key], _hours(known[key]))] for about, key in rows]
    sums = table("GPU time", ("what", "#GPU time"), cells)
    wrong = summary.wrong
    notes = [
        f"events lost: {known['lost_events'] or 0}; recordings with losses: {known['lossy']}",
        f"files that are torn: {wrong.get('torn', 0)}, with losses: {wrong.get('lossy', 0)}, "
        f"unreadable: {wrong.get('unreadable', 0)}",
    ]
    if known["without_gpu"]:
        notes.append(f"recordings without GPU data: {known['without_gpu']}")
    if known["unkept_ns"]:
        notes.append(f"time with sums only, not explained: {format_ns(known['unkept_ns'])}")
    files = _table("Problems of files", summary.problems, "gputop fleet sql 'FROM problems'")
    return sums + items(notes, "notes") + files


def _table(name: str, part: TopRows, elsewhere: str) -> str:
    answer = part.answer
    if not answer.rows:
        return ""
    figures = [_is_figure(column) for column in answer.columns]
    heads = [
        ("#" if is_figure else "") + _HEADS.get(column, column)
        for column, is_figure in zip(answer.columns, figures, strict=True)
    ]
    rows = ([_cell(*cell) for cell in zip(answer.columns, row, strict=True)] for row in answer.rows)
    left_out = part.total - len(answer.rows)
    return table(name, heads, rows, f"{left_out} more rows: {elsewhere}" if left_out else "")


def _is_figure(column: str) -> bool:
    return column in _SHARES | _COUNTS or column.endswith(("_hours", "_ms"))


def _cell(column: str, value: Any) -> str:
    if not _is_figure(column):
        return "-" if value is None else text(value)
    if value is None:
        shown = "-"
    elif column.endswith("_hours"):
        shown = format_hours(value)
    elif column.endswith("_ms"):
        shown = format_ns(value * 1e6)
    elif column in _SHARES:
        shown = f"{format_percent(100 * value)} %"
    else:
        shown = str(value)
    return figure("", value, shown)


def _hours(ns: int | None) -> str:
    return format_hours(None if ns is None else ns / _HOUR)


def _percent(part: int, whole: int) -> str:
    return format_percent(100 * part / whole)


def _all(ranks: Stragglers) -> int:
    """Number of communicators with several ranks."""
    return ranks.late + ranks.healthy + ranks.unknown
