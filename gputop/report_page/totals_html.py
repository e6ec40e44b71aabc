"""Totals as tables that sort: calls, lines, waits, threads."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.engine.frame import CallRow
from gputop.engine.session_totals import ProcessTotals, Stats
from gputop.format import format_bytes, format_count, format_ns
from gputop.report_page.markup import figure, table, text

_MOST = 300  # rows of a table: a page of some hundred kB

Row = tuple[int, list[str]]  # what it is ordered by, its cells


def tables(totals: Stats) -> str:
    calls = [row for process in totals.processes for row in _calls(process)]
    lines = [row for process in totals.processes for row in _lines(process)]
    waits = [row for process in totals.processes for row in _waits(process)]
    threads = [row for process in totals.processes for row in _threads(process)]
    spent = ["#p50", "#p95", "#p99", "#max"]
    states = ["#on a CPU", "#waits for a CPU", "#blocked"]
    return (
        _table("Calls", ["process", "call", "layer", "#count", "#errors", "#bytes", "#sum", *spent], calls)
        + _table("Lines that call", ["process", "line", "call", "#count", "#sum"], lines)
        + _table("Lines that wait between calls", ["process", "line", "#count", "#sum"], waits)
        + _table("Threads", ["process", "thread", "#voluntary", "#involuntary", *states], threads)
    )


def _table(name: str, heads: Sequence[str], rows: list[Row]) -> str:
    rows.sort(key=lambda row: -row[0])
    if not rows:
        return ""
    more = f"{len(rows) - _MOST} more rows: gputop stats" if len(rows) > _MOST else ""
    return table(name, heads, (cells for _, cells in rows[:_MOST]), more)


def _who(process: ProcessTotals) -> str:
    return text(f"{process.name} ({process.pid})")


def _time(ns: int) -> str:
    return figure("", ns, format_ns(ns))


def _count(count: int) -> str:
    return figure("", count, format_count(count))


def _inside(call: CallRow) -> str:
    """Return a note for a nested call; its times are "at most" where the outer call's stand for them."""
    note = "nested, at most" if call.at_most else "nested"
    return f' <small class="note">{note}</small>' if call.nested else ""


def _calls(process: ProcessTotals) -> list[Row]:
    return [
        (
            call.sum_ns,
            [
                _who(process),
                text(call.api) + _inside(call),
                text(call.layer),
                _count(call.count),
                _count(call.errors),
                figure("", call.bytes, format_bytes(call.bytes)),
                *map(_time, (call.sum_ns, call.p50_ns, call.p95_ns, call.p99_ns, call.max_ns)),
            ],
        )
        for call in process.calls
    ]


def _lines(process: ProcessTotals) -> list[Row]:
    return [
        (
            row.sum_ns,
            [_who(process), text(row.line.text()), text(row.api), _count(row.count), _time(row.sum_ns)],
        )
        for row in process.lines
    ]


def _waits(process: ProcessTotals) -> list[Row]:
    return [
        (row.sum_ns, [_who(process), text(row.line.text()), _count(row.count), _time(row.sum_ns)])
        for row in process.waits
    ]


def _threads(process: ProcessTotals) -> list[Row]:
    return [
        (
            row.on_cpu_ns + row.runnable_ns + row.blocked_ns,
            [
                _who(process),
                text(f"{row.name} ({row.tid})"),
                _count(row.voluntary_switches),
                _count(row.involuntary_switches),
                *map(_time, (row.on_cpu_ns, row.runnable_ns, row.blocked_ns)),
            ],
        )
        for row in process.threads
    ]
