"""``gputop stats`` as JSON (docs/json.md) and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.documents.fields import document
from gputop.engine.calls.failed_calls import failure_lines
from gputop.engine.calls.launch_counts import kernels_text
from gputop.engine.frame import OFF_CPU, CallRow, LineRow
from gputop.engine.gpus.gpu_work import work_text
from gputop.engine.session_totals import ProcessTotals, Stats, ThreadTotals
from gputop.engine.threads.diskwaits import disk_waits_text
from gputop.engine.threads.fault_sums import Faults, machine_text
from gputop.engine.threads.offcpu_stats import Stays
from gputop.format import clip, escape_text, format_bytes, format_count, format_ns

_LINES_SHOWN = 20  # of a process in the text; JSON has all


def stats_to_json(stats: Stats) -> dict[str, Any]:
    """Return the totals as an object; units are in the keys."""
    made = document(stats)
    if not stats.throttling:
        for row in (one for process in made["processes"] for one in (process, *process["threads"])):
            if "off_cpu" in row:
                row["off_cpu"] |= dict.fromkeys(("throttled_count", "throttled_ns"))
    return made


def stats_to_text(stats: Stats, width: int | None) -> str:
    """Return tables for a terminal or a log; lines are cut at ``width`` columns, if set."""
    lost = "" if not stats.lost.events else " (figures are too low)"
    lines = [
        f"{format_ns(stats.duration_ns)} recorded, {format_count(stats.events)} events, "
        f"lost {stats.lost.events}{lost}"
    ]
    lines += [text] if stats.machine and (text := machine_text(stats.machine)) else []
    lines += [f"! {escape_text(problem)}" for problem in stats.problems]
    lines += work_text(stats.gpu_work)
    for process in stats.processes:
        lines += ["", *_process_text(process, stats.duration_ns)]
    return "\n".join(clip(line, width) if width else line for line in lines) + "\n"


def _process_text(process: ProcessTotals, duration_ns: int) -> list[str]:
    command = f"  {escape_text(process.command)}" if process.command else ""
    lines = [f"{process.pid} {escape_text(process.name)}{command}{'  (exited)' if process.exited else ''}"]
    if process.oom_ns is not None:
        lines.append(f"! killed by the kernel {format_ns(process.oom_ns)} after the start: out of memory")
    if process.calls:
        lines.append(
            f"  {'CALL':<34}{'LAYER':<9}{'COUNT':>10}{'ERRORS':>8}{'BYTES':>8}{'SUM':>8}"
            f"{'P50':>8}{'P95':>8}{'P99':>8}{'MAX':>8}"
        )
        lines += [_call_text(call) for call in process.calls]
    if process.threads:
        lines += _threads_text(process)
    lines += [*_lines_text(process), *kernels_text(process.kernels, duration_ns, _LINES_SHOWN)]
    if process.failures:
        lines += ["  FAILED", *(f"    {escape_text(line)}" for line in failure_lines(process.failures))]
    return lines


def _threads_text(process: ProcessTotals) -> list[str]:
    """The threads, and their sum if there are several; columns without data are left out."""
    off_cpu, faults = process.off_cpu, process.faults
    heads = f"{'AVG-OFF':>9}{'WORST':>8}" if off_cpu is not None else ""
    heads += f"{'MINOR':>8}{'MAJOR':>7}" if faults is not None else ""
    rows = [
        f"  {'THREAD':<28}{'VOLUNTARY':>10}{'INVOLUNTARY':>13}"
        f"{'ON-CPU':>10}{'RUNNABLE':>10}{'BLOCKED':>10}{heads}"
    ]

    def row(name: str, threads: Sequence[ThreadTotals], stays: Stays | None, counted: Faults | None) -> str:
        return (
            f"  {name:<28}{sum(one.voluntary_switches for one in threads):>10}"
            f"{sum(one.involuntary_switches for one in threads):>13}"
            f"{format_ns(sum(one.on_cpu_ns for one in threads)):>10}"
            f"{format_ns(sum(one.runnable_ns for one in threads)):>10}"
            f"{format_ns(sum(one.blocked_ns for one in threads)):>10}"
            f"{_stays_text(stays) if off_cpu is not None else ''}"
            f"{_faults_text(counted) if faults is not None else ''}"
        )

    rows += [
        row(f"{one.tid:<8}{escape_text(one.name)}", (one,), one.off_cpu, one.faults)
        for one in process.threads
    ]
    if len(process.threads) > 1:
        rows.append(row("all threads", process.threads, off_cpu, faults))
    return [*rows, *_waited_text(off_cpu), *disk_waits_text(process.disk_waits)]


def _stays_text(stays: Stays | None) -> str:
    if stays is None or stays.average_ns is None:
        return f"{'-':>9}{'-':>8}"
    return f"{format_ns(stays.average_ns):>9}{format_ns(stays.worst_ns):>8}"


def _faults_text(faults: Faults | None) -> str:
    if faults is None:
        return f"{'-':>8}{'-':>7}"
    return f"{format_count(faults.minor):>8}{format_count(faults.major):>7}"


def _waited_text(stays: Stays | None) -> list[str]:
    """Stays off the CPU for reasons that the kernel reports."""
    if stays is None:
        return []
    reasons = (
        ("waited for disk", stays.disk_count, stays.disk_ns),
        ("throttled by its control group", stays.throttled_count, stays.throttled_ns),
    )
    return [f"  {what}: {format_count(count)} times, {format_ns(ns)}" for what, count, ns in reasons if count]


def _lines_text(process: ProcessTotals) -> list[str]:
    unknown = f"  {process.unknown_lines:>9}{'':8}  of unknown lines: gputop check may show why"
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
    # a driver call inside its runtime call is indented: its time is part of that call's
    name = ("  " if call.nested else "") + escape_text(call.api) + (" (at most)" if call.at_most else "")
    return (
        f"  {name:<34}{escape_text(call.layer):<9}"
        f"{call.count:>10}{call.errors:>8}{format_bytes(call.bytes):>8}"
        f"{format_ns(call.sum_ns):>8}{format_ns(call.p50_ns):>8}{format_ns(call.p95_ns):>8}"
        f"{format_ns(call.p99_ns):>8}{format_ns(call.max_ns):>8}"
    )
