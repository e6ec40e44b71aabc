"""``gputop stats`` as JSON (docs/json.md) and as text."""

from __future__ import annotations

from typing import Final

from gputop.documents.stats import ProcessTotalsJson, StatsDocument
from gputop.engine.failed_output import failure_json, failure_lines
from gputop.engine.frame import OFF_CPU, CallRow, LineRow
from gputop.engine.histogram import METHOD
from gputop.engine.kernels import KernelRow
from gputop.engine.stats import ProcessTotals, Stats
from gputop.format import clip, escape_text, format_bytes, format_count, format_ns

SCHEMA: Final = "gputop.stats/1"
_LINES_SHOWN = 20  # of a process in the text; JSON has all


def stats_to_json(stats: Stats) -> StatsDocument:
    """One object; times in ns, sizes in bytes, as the key names say."""
    return {
        "schema": SCHEMA,
        "start_realtime_ns": stats.start_wall_ns,
        "duration_ns": stats.duration_ns,
        "events": stats.events,
        "lost": {"events": stats.lost.events, "by_kind": dict(stats.lost.by_kind)},
        "percentiles": METHOD,
        "processes": [_process_json(process, stats.duration_ns) for process in stats.processes],
        "problems": list(stats.problems),
        "calls_observed": stats.calls_observed,
    }


def _process_json(process: ProcessTotals, duration_ns: int) -> ProcessTotalsJson:
    made: ProcessTotalsJson = {
        "pid": process.pid,
        "name": process.name,
        "command": process.command,
        "exited": process.exited,
        "calls": [
            {
                "api": call.api,
                "layer": call.layer,
                "nested": call.nested,
                "count": call.count,
                "errors": call.errors,
                "bytes": call.bytes,
                "sum_ns": call.sum_ns,
                "p50_ns": call.p50_ns,
                "p95_ns": call.p95_ns,
                "p99_ns": call.p99_ns,
                "max_ns": call.max_ns,
            }
            for call in process.calls
        ],
        "threads": [
            {
                "tid": thread.tid,
                "name": thread.name,
                "voluntary_switches": thread.voluntary_switches,
                "involuntary_switches": thread.involuntary_switches,
                "on_cpu_ns": thread.on_cpu_ns,
                "runnable_ns": thread.runnable_ns,
                "blocked_ns": thread.blocked_ns,
            }
            for thread in process.threads
        ],
        "lines": [
            {
                **row.line.to_json(),
                "api": row.api,
                "count": row.count,
                "sum_ns": row.sum_ns,
                "frames": [frame.to_json() for frame in row.frames],
            }
            for row in process.lines
        ],
        "unknown_lines": process.unknown_lines,
        "waits": [{**row.line.to_json(), "count": row.count, "sum_ns": row.sum_ns} for row in process.waits],
        "unknown_waits": process.unknown_waits,
    }
    if process.failures:
        made["failures"] = [failure_json(one) for one in process.failures]
    if process.kernels:
        made["kernels"] = [
            {
                "name": row.name,
                "file": row.file,
                "library": row.library,
                "handle": row.handle,
                "launches": row.launches,
                "per_second": round(_rate(row, duration_ns), 3),
            }
            for row in process.kernels
        ]
    return made


def stats_to_text(stats: Stats, width: int | None) -> str:
    """Tables for a terminal or a log; lines are cut at ``width`` columns if given."""
    lost = "" if not stats.lost.events else " (figures are too low)"
    lines = [
        f"{format_ns(stats.duration_ns)} recorded, {format_count(stats.events)} events, "
        f"lost {stats.lost.events}{lost}"
    ]
    lines += [f"! {escape_text(problem)}" for problem in stats.problems]
    for process in stats.processes:
        lines += ["", *_process_text(process, stats.duration_ns)]
    return "\n".join(clip(line, width) if width else line for line in lines) + "\n"


def _process_text(process: ProcessTotals, duration_ns: int) -> list[str]:
    command = f"  {escape_text(process.command)}" if process.command else ""
    lines = [f"{process.pid} {escape_text(process.name)}{command}{'  (exited)' if process.exited else ''}"]
    if process.calls:
        lines.append(
            f"  {'CALL':<34}{'LAYER':<9}{'COUNT':>10}{'ERRORS':>8}{'BYTES':>8}{'SUM':>8}"
            f"{'P50':>8}{'P95':>8}{'P99':>8}{'MAX':>8}"
        )
        lines += [_call_text(call) for call in process.calls]
    if process.threads:
        lines.append(
            f"  {'THREAD':<28}{'VOLUNTARY':>10}{'INVOLUNTARY':>13}"
            f"{'ON-CPU':>10}{'RUNNABLE':>10}{'BLOCKED':>10}"
        )
        lines += [
            f"  {thread.tid:<8}{escape_text(thread.name):<20}{thread.voluntary_switches:>10}"
            f"{thread.involuntary_switches:>13}{format_ns(thread.on_cpu_ns):>10}"
            f"{format_ns(thread.runnable_ns):>10}{format_ns(thread.blocked_ns):>10}"
            for thread in process.threads
        ]
    return [*lines, *_lines_text(process), *_kernels_text(process, duration_ns), *_failures_text(process)]


def _kernels_text(process: ProcessTotals, duration_ns: int) -> list[str]:
    if not process.kernels:
        return []
    rows = [
        f"  {row.launches:>9}{format_count(_rate(row, duration_ns)):>8}  "
        f"{escape_text(row.library or '-'):<14} {escape_text(row.shown)}"
        for row in process.kernels[:_LINES_SHOWN]
    ]
    rest = process.kernels[_LINES_SHOWN:]
    if rest:
        rows.append(f"  {sum(row.launches for row in rest):>9}{'':8}  of {len(rest)} more kernels")
    return [f"  {'LAUNCHES':>9}{'n/s':>8}  {'LIBRARY':<14} KERNEL", *rows]


def _rate(row: KernelRow, duration_ns: int) -> float:
    """Launches a second of the recording."""
    return row.launches * 1e9 / max(duration_ns, 1)


def _failures_text(process: ProcessTotals) -> list[str]:
    if not process.failures:
        return []
    return ["  FAILED", *(f"    {escape_text(line)}" for line in failure_lines(process.failures))]


def _lines_text(process: ProcessTotals) -> list[str]:
    unknown = f"  {process.unknown_lines:>9}{'':8}  of unknown lines: gputop check may say why"
    rest = [unknown] if process.unknown_lines else []
    if not process.lines and not process.waits:
        return rest
    waits = (LineRow(row.line, OFF_CPU, row.count, row.sum_ns) for row in process.waits)
    rows = sorted((*process.lines, *waits), key=lambda row: -row.sum_ns)
    shown = [
        f"  {row.count:>9}{format_ns(row.sum_ns):>8}  "
        f"{escape_text(row.api):<26} {escape_text(row.line.text())}"
        for row in rows[:_LINES_SHOWN]
    ]
    return [f"  {'COUNT':>9}{'SUM':>8}  {'CALL':<26} LINE", *shown, *rest]


def _call_text(call: CallRow) -> str:
    # a driver call inside its runtime call is indented: its time is part of the line it belongs to
    name = ("  " if call.nested else "") + escape_text(call.api)
    return (
        f"  {name:<34}{escape_text(call.layer):<9}"
        f"{call.count:>10}{call.errors:>8}{format_bytes(call.bytes):>8}"
        f"{format_ns(call.sum_ns):>8}{format_ns(call.p50_ns):>8}{format_ns(call.p95_ns):>8}"
        f"{format_ns(call.p99_ns):>8}{format_ns(call.max_ns):>8}"
    )
