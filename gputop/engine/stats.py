"""Totals of a whole recording: calls by process and API, switches and states by thread, losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gputop.engine.callers import Callers
from gputop.engine.callrows import call_rows
from gputop.engine.calltable import CallTable, Totals, left_out
from gputop.engine.counters import Counters, add_up, settled
from gputop.engine.facts import Facts, lost_before
from gputop.engine.frame import CallRow, LineRow, Lost, WaitRow
from gputop.engine.linesums import Sums, add, line_rows, sums_of, wait_rows, waits_of
from gputop.engine.switches import OpenThreads, ThreadTick, slice_sums
from probes.schema import LOSS_KINDS, Kind, Records, select
from probes.source import COUNTERS, MARK, OPEN, Item, Sample


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

    ``unknown_lines`` and ``unknown_waits`` count calls and waits whose line was looked for in vain.
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


class _Threads:
    """Sums slices thread by thread; a thread's life runs from its first record to its exit or the end."""

    def __init__(self) -> None:
        self.sums: dict[int, ThreadTick] = {}
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self._counted: dict[int, ThreadTick] = {}  # without eBPF, instead of slices
        self._counters: Counters | None = None

    def add(self, records: Records) -> None:
        kinds = records["kind"]
        off = kinds == Kind.OFFCPU
        if off.any():
            for tid, part in slice_sums([select(records, off)], 0).items():
                self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)
        life = (kinds >= Kind.FORK) & (kinds <= Kind.JOIN)
        if life.any():
            for row in select(records, life):
                tid, at = int(row["tid"]), int(row["t_end"])
                if row["kind"] == Kind.EXIT:
                    self.died[tid] = at
                else:
                    self.born.setdefault(tid, at)
                    # a thread that is not the leader and calls exec takes over the dead leader's number
                    self.died.pop(tid, None)
                    self.sums.setdefault(tid, ThreadTick(int(row["pid"])))

    def count(self, counters: Counters) -> None:
        add_up(self._counted, counters.growth(self._counters, whole=True))
        self._counters = counters

    def finish(self, start_ns: int, end_ns: int, still_open: OpenThreads) -> None:
        """Adds the slices that are open at the end, then fills each thread's life."""
        rows = zip(still_open.tid, still_open.off_since, still_open.queued_since, strict=True)
        for tid, off, queued in rows:
            thread = self.sums.get(tid)
            if thread is not None and off and off < end_ns:
                waiting = queued if queued and queued < end_ns else end_ns
                thread.runnable += end_ns - waiting
                thread.blocked += waiting - off
        for tid, thread in self.sums.items():
            thread.lived = self.died.get(tid, end_ns) - self.born.get(tid, start_ns)
        self.sums |= {tid: settled(thread) for tid, thread in self._counted.items()}


def collect(header: Mapping[str, Any], items: Iterable[Item]) -> Stats:
    """Adds up a whole recording."""
    facts, threads, table, totals = Facts(), _Threads(), CallTable(), Totals.zeros(0)
    still_open = OpenThreads()
    lines: Sums = {}
    waits: Sums = {}
    callers = Callers()
    mark: Sample | None = None
    events = 0
    for item in items:
        if not isinstance(item, Sample):
            events += len(item)
            calls = select(item, item["kind"] == Kind.CALL)
            table.add(calls, totals)
            add(lines, sums_of(calls))
            add(waits, waits_of(item))
            callers.add(calls["tid"])
            threads.add(item)
        elif item.kind == MARK:
            mark = item
        elif item.kind == OPEN:
            still_open = OpenThreads.from_sample(item.data)
        elif item.kind == COUNTERS:
            threads.count(Counters.from_sample(item))
        else:
            facts.take(item)
    start_ns = int(header.get("start_ns", 0))
    end_ns = mark.time_ns if mark is not None else start_ns
    threads.finish(start_ns, end_ns, still_open)
    totals.grow(table.rows)
    rows = _processes(facts, table, totals, threads, line_rows(lines, facts, waits))
    feeding = {row.pid for row in rows if row.calls}
    waited, unplaced = wait_rows(waits, feeding, callers.take(), facts)
    before = lost_before(header)
    counted = mark.data.get("lost", {}) if mark is not None else {}
    lost = {kind: int(count) - before.get(kind, 0) for kind, count in counted.items()}
    clock = header.get("clock", {})
    return Stats(
        start_wall_ns=int(clock.get("realtime_ns", 0)) + start_ns - int(clock.get("monotonic_ns", start_ns)),
        duration_ns=end_ns - start_ns,
        lost=Lost(
            sum(lost.values()),
            tuple((kind, lost.get(kind, 0)) for kind in LOSS_KINDS),
        ),
        events=events,
        processes=tuple(
            replace(row, waits=tuple(waited.get(row.pid, ())), unknown_waits=unplaced.get(row.pid, 0))
            for row in rows
        ),
        problems=(*facts.problems(None), *left_out(totals)),
        calls_observed=header.get("calls_observed") is not False,
    )


def _processes(
    facts: Facts,
    table: CallTable,
    totals: Totals,
    threads: _Threads,
    lines: tuple[dict[int, list[LineRow]], dict[int, int]],
) -> tuple[ProcessTotals, ...]:
    known, unknown = lines
    calls = call_rows(table, totals, facts)
    rows: dict[int, list[ThreadTotals]] = {}
    for tid, thread in sorted(threads.sums.items()):
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
