"""Durations of calls: a small histogram for each of the costliest functions."""

from __future__ import annotations

from gputop.engine.frame import CallRow
from gputop.engine.session_totals import Stats
from gputop.format import format_counted, format_ns, used_range
from gputop.report_page.markup import text

_SHOWN = 12
_WIDTH, _HEIGHT, _FOOT = 320, 90, 16


def latencies(totals: Stats) -> str:
    """Return the outermost functions with most time, each with the distribution of its calls."""
    rows = [
        (call, process.name, process.pid)
        for process in totals.processes
        for call in process.calls
        if not call.nested and call.count
    ]
    rows.sort(key=lambda row: -row[0].sum_ns)
    return f'<div class="plots">{"".join(_plot(*row) for row in rows[:_SHOWN])}</div>'


def _plot(call: CallRow, process: str, pid: int) -> str:
    first, end = used_range([call.histogram])
    bars = call.histogram[first:end]
    width, most = _WIDTH / max(len(bars), 1), max(bars, default=1) or 1
    rects = ""
    for number, count in enumerate(bars):
        if count:
            low, high = (format_ns(2**power) for power in (first + number, first + number + 1))
            title = f"{low} to {high}: {format_counted(count, 'call')}"
            rects += _bar(number * width, width, _HEIGHT * count / most, title)
    ends = (
        f'<text x="0" y="{_HEIGHT + 13}">{format_ns(2**first)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 13}" class="end">{format_ns(2**end)}</text>'
    )
    name = text(call.api)
    return (
        f"<figure><figcaption><b>{name}</b> {text(process)} ({pid})<br>{format_counted(call.count, 'call')}, "
        f"{format_ns(call.sum_ns)}; p50 {format_ns(call.p50_ns)}, p95 {format_ns(call.p95_ns)}, "
        f"p99 {format_ns(call.p99_ns)}, max {format_ns(call.max_ns)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" role="img" aria-label="durations of {name}">'
        f"{rects}{ends}</svg></figure>"
    )


def _bar(left: float, width: float, height: float, title: str) -> str:
    seen = max(height, 1.5)  # else it could not be seen
    return (
        f'<rect class="busy" x="{left + 1:.1f}" y="{_HEIGHT - seen:.1f}" width="{max(width - 2, 1):.1f}" '
        f'height="{seen:.1f}"><title>{title}</title></rect>'
    )
