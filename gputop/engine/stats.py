"""Totals of a whole recording: calls by process and API, switches and states by thread, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gputop.engine.callrows import call_rows
from gputop.engine.calltable import CallTable, Totals, left_out
from gputop.engine.facts import Facts, lost_before
from gputop.engine.failed_calls import Failure
from gputop.engine.frame import CallRow, LineRow, Lost, WaitRow
from gputop.engine.kernels import KernelRow, kernel_rows
from gputop.engine.linesums import line_rows, wait_rows
from gputop.engine.switches import ThreadTick
from gputop.engine.tally import Tally, tally
from probes.samples import lost_until
from probes.schema import LOSS_KINDS
from probes.source import Item


@dataclass(frozen=True, slots=True)
class ThreadTotals:
    """One thread over the recording; on_cpu + runnable + blocked = the time it was watched."""

    tid: int
    name: str
    voluntary_switches: int
    involuntary_switches: int
    on_cpu_ns: int
    runnable_ns: int
    blocked_ns: int


@dataclass(frozen=True, slots=True)
class ProcessTotals:
    """One process over the recording.

    ``unknown_lines`` and ``unknown_waits`` count calls and waits whose line was looked for in vain;
    ``failures`` are its calls that failed, the first first, ``kernels`` its launches by kernel, most first,
    where some have names.
    """

    pid: int
    name: str
    command: str
    exited: bool
    calls: tuple[CallRow, ...]
    threads: tuple[ThreadTotals, ...]
    lines: tuple[LineRow, ...]
    unknown_lines: int
    waits: tuple[WaitRow, ...] = ()
    unknown_waits: int = 0
    failures: tuple[Failure, ...] = ()
    kernels: tuple[KernelRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    """Everything ``gputop stats`` shows."""

    start_wall_ns: int
    duration_ns: int
    lost: Lost
    events: int
    processes: tuple[ProcessTotals, ...]
    problems: tuple[str, ...]
    calls_observed: bool = True


def collect(header: Mapping[str, Any], items: Iterable[Item]) -> Stats:
    """Adds up a whole recording."""
    return finish(header, tally(items))


def finish(header: Mapping[str, Any], whole: Tally) -> Stats:
    """What the sums of a whole recording say, by name."""
    facts, table, totals, mark = whole.facts, whole.table, whole.totals, whole.mark
    start_ns = int(header.get("start_ns", 0))
    end_ns = mark.time_ns if mark is not None else start_ns
    threads = whole.threads.finish(_spans(header, facts, start_ns, end_ns), whole.still_open)
    totals.grow(table.rows)
    rows = _processes(facts, table, totals, threads, line_rows(whole.lines, facts, whole.waits))
    feeding = {row.pid for row in rows if row.calls}
    waited, unplaced = wait_rows(whole.waits, feeding, whole.callers, facts)
    before = lost_before(header)
    failed = whole.failed.failures(facts, start_ns)
    kernels = kernel_rows(whole.kernels.counts, facts)
    lost = {kind: count - before.get(kind, 0) for kind, count in lost_until(mark).items()}
    clock = header.get("clock", {})
    return Stats(
        start_wall_ns=int(clock.get("realtime_ns", 0)) + start_ns - int(clock.get("monotonic_ns", start_ns)),
        duration_ns=end_ns - start_ns,
        lost=Lost(
            sum(lost.values()),
            tuple((kind, lost.get(kind, 0)) for kind in LOSS_KINDS),
        ),
        events=whole.events,
        processes=tuple(
            replace(
                row,
                waits=tuple(waited.get(row.pid, ())),
                unknown_waits=unplaced.get(row.pid, 0),
                failures=tuple(one for one in failed if one.pid == row.pid),
                kernels=kernels.get(row.pid, ()),
            )
            for row in rows
        ),
        problems=(*facts.problems(None), *left_out(totals)),
        calls_observed=header.get("calls_observed") is not False,
    )


def _spans(
    header: Mapping[str, Any], facts: Facts, start_ns: int, end_ns: int
) -> Callable[[int], tuple[int, int]]:
    """From when to when a process was recorded: of a merged recording its part, else all of it."""
    merged = header.get("merged")
    parts = merged.get("parts", ()) if isinstance(merged, Mapping) else ()

    def span(pid: int) -> tuple[int, int]:
        part = facts.processes.get(pid, {}).get("part")
        if part is None or not 0 <= part < len(parts):
            return start_ns, end_ns
        return int(parts[part]["begin_ns"]), int(parts[part]["end_ns"])

    return span


def _processes(
    facts: Facts,
    table: CallTable,
    totals: Totals,
    threads: dict[int, ThreadTick],
    lines: tuple[dict[int, list[LineRow]], dict[int, int]],
) -> tuple[ProcessTotals, ...]:
    known, unknown = lines
    calls = call_rows(table, totals, facts)
    rows: dict[int, list[ThreadTotals]] = {}
    for tid, thread in sorted(threads.items()):
        rows.setdefault(thread.pid, []).append(
            ThreadTotals(
                tid,
                facts.thread_name(tid),
                thread.voluntary,
                thread.involuntary,
                thread.on_cpu,
                thread.runnable,
                thread.blocked,
            )
        )
    pids = sorted({*calls, *rows, *(pid for pid, row in facts.processes.items() if row.get("watched"))})
    return tuple(
        ProcessTotals(
            pid,
            facts.process_name(pid),
            str(facts.processes.get(pid, {}).get("command", "")),
            facts.processes.get(pid, {}).get("exited_ns") is not None,
            tuple(calls.get(pid, ())),
            tuple(rows.get(pid, ())),
            tuple(known.get(pid, ())),
            unknown.get(pid, 0),
        )
        for pid in pids
    )
