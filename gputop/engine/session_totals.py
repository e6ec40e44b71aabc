"""Totals of a whole recording: calls by process and API, switches and states by thread, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from gputop.documents.fields import HIDDEN, RARE, Mark, marked
from gputop.documents.shared_schema import MachineJson
from gputop.engine.calls.calltable import call_rows, left_out
from gputop.engine.calls.failed_calls import Failure
from gputop.engine.calls.histogram import METHOD
from gputop.engine.calls.launch_counts import KernelRow, kernel_rows
from gputop.engine.calls.linesums import line_rows, wait_rows
from gputop.engine.facts import Facts, lost_before
from gputop.engine.frame import CallRow, CallTotals, LineRow, Lost, WaitRow, call_totals
from gputop.engine.gpus.gpu_work import GpuWork
from gputop.engine.tally import Tally, tally
from gputop.engine.threads.diskwaits import DiskWait
from gputop.engine.threads.fault_sums import Faults, faults_of, machine_json
from gputop.engine.threads.offcpu_stats import Stays, together
from gputop.engine.threads.switches import ThreadTick
from probes.proc.syscalls import machine_of
from probes.samples import ProcessData, section
from probes.source import Item

SCHEMA: Final = "gputop.stats/1"


@dataclass(frozen=True, slots=True)
class ThreadTotals:
    """One thread over the recording; on_cpu + runnable + blocked = the time it was watched.

    ``faults``: its page faults, ``off_cpu``: its stays off the CPU; None where unknown.
    """

    tid: int
    name: str
    voluntary_switches: int
    involuntary_switches: int
    on_cpu_ns: int
    runnable_ns: int
    blocked_ns: int
    faults: Annotated[Faults | None, RARE] = None
    off_cpu: Annotated[Stays | None, RARE] = None


@dataclass(frozen=True, slots=True)
class ProcessTotals:
    """One process over the recording.

    ``unknown_lines`` and ``unknown_waits``: calls and waits whose line was not found; ``failures``: failed
    calls, earliest first; ``kernels``: launches by kernel, most first, where some have names; ``faults``:
    page faults, with those of threads without a row; ``disk_waits``: ended waits for the disk by file,
    longest sum first; ``oom_ns``: when the kernel killed it for lack of memory, since the start; None: not
    reported.
    """

    pid: int
    name: str
    command: str
    exited: bool
    calls: Annotated[tuple[CallRow, ...], Mark(schema=tuple[CallTotals, ...], make=call_totals)]
    threads: tuple[ThreadTotals, ...]
    lines: tuple[LineRow, ...]
    unknown_lines: int
    waits: tuple[WaitRow, ...] = ()
    unknown_waits: int = 0
    failures: Annotated[tuple[Failure, ...], RARE] = ()
    kernels: Annotated[tuple[KernelRow, ...], RARE] = ()
    faults: Annotated[Faults | None, RARE] = None
    disk_waits: Annotated[tuple[DiskWait, ...], RARE] = ()
    oom_ns: Annotated[int | None, RARE] = None

    @property
    @marked(RARE)
    def off_cpu(self) -> Stays | None:
        """The stays off the CPU of all its threads."""
        return together(thread.off_cpu for thread in self.threads)


@dataclass(frozen=True, slots=True)
class Stats:
    """Everything ``gputop stats`` shows."""

    start_wall_ns: Annotated[int, Mark("start_realtime_ns")]
    duration_ns: int
    lost: Lost
    events: int
    processes: tuple[ProcessTotals, ...]
    problems: tuple[str, ...]
    calls_observed: bool = True
    throttling: Annotated[bool, HIDDEN] = False  # whether throttled stays are known as such
    gpu_work: Annotated[tuple[GpuWork, ...], RARE] = ()  # of files with kernel times
    # ``gputop.engine.threads.fault_sums.NAMES``; None: not recorded
    machine: Annotated[Mapping[str, int] | None, Mark(rare=True, schema=MachineJson, make=machine_json)] = (
        None
    )

    @property
    @marked(Mark())
    def schema(self) -> Literal["gputop.stats/1"]:
        return SCHEMA

    @property
    @marked(Mark())
    def percentiles(self) -> str:
        return METHOD


def collect(header: Mapping[str, Any], items: Iterable[Item]) -> Stats:
    return finish(header, tally(items))


def finish(header: Mapping[str, Any], whole: Tally) -> Stats:
    """Return the totals of a whole recording's sums, with names."""
    facts, mark, waits = whole.facts, whole.mark, whole.lines.waits
    start_ns = int(header.get("start_ns", 0))
    end_ns = mark.time_ns if mark is not None else start_ns
    span = _spans(header, facts, start_ns, end_ns)
    stays = whole.stays.finish(whole.still_open, lambda pid: span(pid)[1])
    lines = line_rows(whole.lines.lines, facts, waits)
    rows = _processes(whole, start_ns, whole.lived(span), stays, lines)
    feeding = {row.pid for row in rows if row.calls}
    waited, unplaced = wait_rows(waits, feeding, whole.callers.tids, facts)
    failed = whole.failed.failures(facts, start_ns)
    waited_disk = whole.disk.finish(whole.file_names, machine_of(header))
    kernels = kernel_rows(whole.kernels.sums, facts, whole.fill, end_ns - start_ns)
    clock, observes = header.get("clock", {}), section(header, "tells")
    return Stats(
        gpu_work=whole.gpu_work.rows(),
        start_wall_ns=int(clock.get("realtime_ns", 0)) + start_ns - int(clock.get("monotonic_ns", start_ns)),
        duration_ns=end_ns - start_ns,
        lost=Lost.since(lost_before(header), mark),
        events=whole.events,
        processes=tuple(
            replace(
                row,
                waits=tuple(waited.get(row.pid, ())),
                unknown_waits=unplaced.get(row.pid, 0),
                failures=tuple(one for one in failed if one.pid == row.pid),
                kernels=kernels.get(row.pid, ()),
                disk_waits=waited_disk.get(row.pid, ()),
            )
            for row in rows
        ),
        problems=(*facts.problems(None), *left_out(whole.calls.totals)),
        calls_observed=header.get("calls_observed") is not False,
        machine=whole.machine.sums or None,
        throttling=observes.get("throttling") is True,
    )


def _spans(
    header: Mapping[str, Any], facts: Facts, start_ns: int, end_ns: int
) -> Callable[[int], tuple[int, int]]:
    """Returns (begin, end) of a process's recording: in a merged recording its part, else all of it."""
    parts = section(header, "merged").get("parts", ())

    def span(pid: int) -> tuple[int, int]:
        part = facts.processes.get(pid, {}).get("part")
        if part is None or not 0 <= part < len(parts):
            return start_ns, end_ns
        return int(parts[part]["begin_ns"]), int(parts[part]["end_ns"])

    return span


def _processes(
    whole: Tally,
    start_ns: int,
    threads: dict[int, ThreadTick],
    stays: Mapping[int, Stays],
    lines: tuple[dict[int, list[LineRow]], dict[int, int]],
) -> tuple[ProcessTotals, ...]:
    known, unknown = lines
    facts, faults = whole.facts, whole.faults.sums
    whole.calls.totals.grow(whole.calls.table.rows)
    calls = call_rows(whole.calls.table, whole.calls.totals, facts)
    rows: dict[int, list[ThreadTotals]] = {}
    for tid, thread in sorted(threads.items()):
        rows.setdefault(thread.pid, []).append(
            ThreadTotals(
                tid,
                facts.thread_name(tid, thread.pid),
                thread.voluntary,
                thread.involuntary,
                thread.on_cpu,
                thread.runnable,
                thread.blocked,
                faults_of(faults, thread.pid, tid),
                stays.get(tid),
            )
        )
    pids = sorted({*calls, *rows, *(pid for pid, row in facts.processes.items() if row.get("watched"))})

    def known_of(pid: int) -> ProcessData:
        return facts.processes.get(pid, {})

    return tuple(
        ProcessTotals(
            pid,
            facts.process_name(pid),
            str(known_of(pid).get("command", "")),
            known_of(pid).get("exited_ns") is not None,
            tuple(calls.get(pid, ())),
            tuple(rows.get(pid, ())),
            tuple(known.get(pid, ())),
            unknown.get(pid, 0),
            faults=faults_of(faults, pid),
            oom_ns=None if (killed := known_of(pid).get("oom_ns")) is None else int(killed) - start_ns,
        )
        for pid in pids
    )
