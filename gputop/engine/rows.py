"""Builds the rows of a frame from a window."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gputop.engine.accumulator import summed_pairs
from gputop.engine.calls import histogram
from gputop.engine.calls.calltable import CallWindow, call_rows
from gputop.engine.calls.launch_counts import Launched, kernel_rows
from gputop.engine.calls.linesums import (
    LineSums,
    Samples,
    Sums,
    line_rows,
    sample_rows,
    stack_rows,
    wait_rows,
)
from gputop.engine.facts import Facts, began_ns
from gputop.engine.frame import CallRow, GpuRow, ProcessRow, Share, Storm, ThreadRow
from gputop.engine.gpus.gpu_of import Attribution, Device, GpuUse
from gputop.engine.gpus.gpu_processes import Use
from gputop.engine.threads.counters import add_up, settled
from gputop.engine.threads.fault_sums import WHOLE, FaultCounts, faults_of
from gputop.engine.threads.switches import OpenThreads, ThreadTick
from probes.proc.belonging import KEYS
from probes.samples import ProcessData

# A context-switch storm, over a window of 2 s
STORM_INVOLUNTARY_PER_S = 500
STORM_RUNNABLE_PERCENT = 20
_STORM_WINDOW_NS = 1_900_000_000
_OCCUPANTS_SHOWN = 8

Waits = dict[tuple[int, int], int]  # (occupant tid, occupant pid) -> ns

Others = dict[int, tuple[int, ThreadTick]]  # process -> calls, what all its threads did together
_NUMBERS = ("lived_ns", "runnable_ns", "blocked_ns", "voluntary", "involuntary")


@dataclass(slots=True)
class TickSums:
    """What one tick adds to a window."""

    mark_ns: int
    since_ns: int
    threads: dict[int, ThreadTick]
    waits: dict[tuple[int, int, int], int]  # (waiting tid, occupant tid, occupant pid) -> ns
    lines: LineSums
    samples: Samples
    kernels: Launched
    events: int
    callers: frozenset[int]  # tids that made a call
    own_cpu_percent: float  # of gputop itself
    starting: bool  # the first of a session: gputop's own start-up is in that figure
    others: Others  # processes of which only sums are reported
    kept: bool  # its records are there, not only their sums
    faults: FaultCounts  # page faults that were reported in it


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """Everything that the rows of one frame are made of."""

    ticks: list[TickSums]
    window_ns: int
    calls: CallWindow
    open: OpenThreads
    mark_ns: int
    gpu_usage: dict[int, dict[int, int]] | None
    devices: list[Device]
    counted: dict[int, str] | None = None  # without eBPF: tid -> state by its counters
    fill: int | None = None  # threads that fill a GPU
    scheduled: bool = True  # whether it is known what threads did beside their calls
    resident: Mapping[int, int] = field(default_factory=dict)  # pid -> bytes
    use: Mapping[int, Use] = field(default_factory=dict)
    watts: Mapping[int, float] = field(default_factory=dict)
    header: Mapping[str, Any] = field(default_factory=dict)

    def threads(self) -> dict[int, ThreadTick]:
        """tid -> sums over the window."""
        sums: dict[int, ThreadTick] = {}
        for tick in self.ticks:
            add_up(sums, tick.threads)
        return sums if self.counted is None else {tid: settled(thread) for tid, thread in sums.items()}

    def faults(self) -> FaultCounts:
        """Page faults that were reported in it."""
        return summed_pairs(tick.faults for tick in self.ticks)

    def lines(self) -> Sums:
        return summed_pairs(tick.lines.lines for tick in self.ticks)

    def line_waits(self) -> Sums:
        return summed_pairs(tick.lines.waits for tick in self.ticks)

    def samples(self) -> Samples:
        """How often each (thread, stack) was sampled."""
        sums: Samples = Counter()
        for tick in self.ticks:
            sums.update(tick.samples)
        return sums

    def kernels(self) -> Launched:
        sums = Launched()
        for tick in self.ticks:
            sums.add(tick.kernels)
        return sums

    def callers(self) -> frozenset[int]:
        return frozenset().union(*(tick.callers for tick in self.ticks))

    def waits(self) -> dict[int, Waits]:
        """tid -> who had its CPU while it was queued."""
        sums: dict[int, Waits] = {}
        for tick in self.ticks:
            for (tid, occupant, pid), ns in tick.waits.items():
                own = sums.setdefault(tid, {})
                own[occupant, pid] = own.get((occupant, pid), 0) + ns
        return sums


def _shares(waits: Waits, whole_ns: int, facts: Facts) -> tuple[Share, ...]:
    """The largest occupants; fractions of ``whole_ns``, the time that was waited."""
    ranked = sorted(waits.items(), key=lambda entry: (-entry[1], entry[0]))[:_OCCUPANTS_SHOWN]
    return tuple(
        Share(pid, tid, facts.thread_name(tid, pid), ns, ns / max(whole_ns, sum(waits.values()), 1))
        for (tid, pid), ns in ranked
    )


def _somebody(waits: Waits) -> Waits:
    """Without the idle task: a wait on an idle CPU is the way from the wakeup to the CPU."""
    return {occupant: ns for occupant, ns in waits.items() if occupant[0] != 0}


def _call_rows(window: FrameWindow, facts: Facts) -> dict[int, list[CallRow]]:
    """pid -> its calls, most time first; those that have not returned are marked in their row."""
    found = call_rows(window.calls.table, window.calls.totals(), facts)
    for (pid, op), (count, oldest_ns) in _in_progress(window).items():
        api, layer = facts.api(op)
        calls = found.setdefault(pid, [])
        for place, call in enumerate(calls):
            if (call.api, call.layer, call.nested) == (api, layer, False):
                calls[place] = replace(call, in_progress=count, in_progress_ns=oldest_ns)
                break
        else:
            none = (0,) * histogram.EXPONENTS
            calls.append(CallRow(api, layer, False, 0, 0, 0, 0, 0, 0, 0, 0, none, count, oldest_ns))
    return found


def _in_progress(window: FrameWindow) -> dict[tuple[int, int], tuple[int, int]]:
    """(pid, op) -> (outermost calls that have not returned, age of the oldest in ns)."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    rows = zip(window.open.pid, window.open.op, window.open.call_since, strict=True)
    for pid, op, since in rows:
        if op >= 0 and since and since < window.mark_ns:
            count, oldest = found.get((pid, op), (0, 0))
            found[pid, op] = (count + 1, max(oldest, window.mark_ns - since))
    return found


def _states(window: FrameWindow) -> dict[int, str]:
    states = dict(window.counted or {})
    for tid, off, queued in zip(
        window.open.tid, window.open.off_since, window.open.queued_since, strict=True
    ):
        if not off or off >= window.mark_ns:
            states[tid] = "running"
        else:
            states[tid] = "runnable" if queued and queued < window.mark_ns else "blocked"
    return states


def _thread_rows(window: FrameWindow, facts: Facts) -> dict[int, list[ThreadRow]]:
    """pid -> its threads by number, the main thread first."""
    states, waits = _states(window), window.waits()
    callers = window.callers()
    found: dict[int, list[ThreadRow]] = defaultdict(list)
    for tid, thread in sorted(window.threads().items()):
        found[thread.pid].append(
            ThreadRow(
                tid=tid,
                name=facts.thread_name(tid, thread.pid),
                voluntary_switches=thread.voluntary,
                involuntary_switches=thread.involuntary,
                on_cpu_ns=thread.on_cpu,
                runnable_ns=thread.runnable,
                blocked_ns=thread.blocked,
                state=states.get(tid, "exited"),
                cuda=tid in callers,
                preempted_by=_shares(_somebody(waits.get(tid, {})), thread.runnable, facts),
            )
        )
    return found


def _blocked_percent(threads: Iterable[ThreadRow], window_ns: int) -> float:
    """The mean of its CUDA threads (of all when none calls CUDA), weighted by how long they lived.

    It refers to the whole window, as the sums beside it do: a thread that was blocked for half of its
    life, and lived for half of the window, was blocked for a quarter.
    """
    rows = list(threads)
    chosen = [row for row in rows if row.cuda] or rows
    lives = [row.on_cpu_ns + row.runnable_ns + row.blocked_ns for row in chosen]
    if not sum(lives):
        return 0.0
    mean = sum(row.blocked_ns for row in chosen) / sum(lives)
    return 100 * mean * min(max(lives) / window_ns, 1.0)


def process_rows(window: FrameWindow, facts: Facts) -> tuple[ProcessRow, ...]:
    """All watched processes, by pid."""
    calls, threads = _call_rows(window, facts), _thread_rows(window, facts)
    known = {int(row["pid"]): row for row in facts.watched()}
    unknown = {pid: ProcessData(pid=pid) for pid in (*calls, *threads) if pid not in facts.processes}
    gpus = Attribution(window.gpu_usage, window.devices, known)
    line_sums, line_waits = window.lines(), window.line_waits()
    lines, nameless = line_rows(line_sums, facts, line_waits)
    callers = window.callers()
    waits, unplaced = wait_rows(line_waits, calls, callers, facts)
    stacks = stack_rows(line_sums, line_waits, calls, callers, facts)
    pids = {thread.tid: pid for pid, found in threads.items() for thread in found}
    kernels = kernel_rows(window.kernels(), facts, window.fill)
    samples, sampled = sample_rows(window.samples(), pids, facts)
    rows = (
        _process_row(
            window, facts, row, gpus.of(pid, row), tuple(calls.get(pid, ())), tuple(threads.get(pid, ()))
        )
        for pid, row in sorted((known | unknown).items())
    )
    faults = window.faults()
    summed = {pid for tick in window.ticks for pid in tick.others}
    if summed:
        sums = [tick.others for tick in window.ticks]
        rows = (with_sums(row, sums, window.window_ns) if row.pid in summed else row for row in rows)
    return tuple(
        replace(
            row,
            lines=tuple(lines.get(row.pid, ())),
            unknown_lines=nameless.get(row.pid, 0),
            waits=tuple(waits.get(row.pid, ())),
            unknown_waits=unplaced.get(row.pid, 0),
            stacks=stacks.get(row.pid, ()),
            samples=tuple(samples.get(row.pid, ())),
            sampled=sampled.get(row.pid, 0),
            kernels=kernels.get(row.pid, ()),
            faults=faults_of(faults, row.pid),
        )
        if any(row.pid in found for found in (lines, nameless, waits, unplaced, sampled, kernels))
        or (row.pid, WHOLE) in faults
        else row
        for row in rows
    )


def _process_row(
    window: FrameWindow,
    facts: Facts,
    row: ProcessData,
    use: GpuUse,
    calls: tuple[CallRow, ...],
    threads: tuple[ThreadRow, ...],
) -> ProcessRow:
    pid, seconds = int(row["pid"]), window.window_ns / 1e9
    outer = [call for call in calls if not call.nested]
    top = max(outer, key=lambda call: call.sum_ns, default=None)
    exited, inner = row.get("exited_ns"), row.get("namespace_pid")
    sm, memory = window.use.get(pid, (None, None)) if exited is None else (None, None)
    began = began_ns(row, window.header)

    def known(figure: float) -> float | None:
        return figure if window.scheduled else None

    return ProcessRow(
        pid=pid,
        parent_pid=int(row.get("parent_pid", 0)),
        name=facts.process_name(pid),
        command=str(row.get("command", "")),
        user=str(row.get("user", "")),
        start_ns=int(row.get("seen_ns", 0)),
        exited_ns=int(exited) if exited is not None else None,
        gpus=use.gpus,
        gpu_memory_bytes=use.memory_bytes,
        calls_per_second=sum(call.count for call in outer) / seconds,
        top_api=top.api if top else "",
        top_api_ns_per_second=top.sum_ns / seconds if top else 0.0,
        top_api_p99_ns=top.p99_ns if top else 0,
        voluntary_per_second=known(sum(thread.voluntary_switches for thread in threads) / seconds),
        involuntary_per_second=known(sum(thread.involuntary_switches for thread in threads) / seconds),
        runnable_percent=known(100 * sum(thread.runnable_ns for thread in threads) / window.window_ns),
        blocked_percent=known(_blocked_percent(threads, window.window_ns)),
        on_cpu_percent=known(100 * sum(thread.on_cpu_ns for thread in threads) / window.window_ns),
        calls=calls,
        threads=threads,
        gpus_source=use.source,
        gpus_unknown=use.unknown,
        namespace_pid=int(inner) if inner is not None else None,
        container=str(row.get("container", "")),
        belongs=tuple(
            (key, value) for key, value in row.items() if key in KEYS and isinstance(value, str | int)
        ),
        sm_percent=sm,
        watts=window.watts.get(pid) if exited is None else None,
        memory_percent=memory,
        rss_bytes=window.resident.get(pid) if exited is None else None,
        run_ns=None if began is None else max((window.mark_ns if exited is None else int(exited)) - began, 0),
    )


def unwatched_rows(
    window: FrameWindow, gpus: Iterable[GpuRow], facts: Facts, cpu_percent: Mapping[int, float]
) -> tuple[ProcessRow, ...]:
    """Processes that NVML lists on a GPU and that are not watched, by pid."""
    memory: dict[int, list[int | None]] = {}
    on: dict[int, list[int]] = {}
    for gpu in gpus:
        for one in gpu.processes or ():
            if not one.watched:
                memory.setdefault(one.pid, []).append(one.memory_bytes)
                on.setdefault(one.pid, []).append(gpu.index)
    found = []
    for pid, held in sorted(memory.items()):
        known = cast(ProcessData, facts.of(pid) or {"pid": pid})
        sizes = [size for size in held if size is not None]
        use = GpuUse(tuple(on[pid]), "nvml", "", sum(sizes) if sizes else None)
        made = _process_row(window, facts, known, use, (), ())
        found.append(
            replace(
                made,
                watched=False,
                voluntary_per_second=None,
                involuntary_per_second=None,
                runnable_percent=None,
                blocked_percent=None,
                on_cpu_percent=cpu_percent.get(pid),
            )
        )
    return tuple(found)


def is_storm(process: ProcessRow) -> bool:
    """Whether its switches are those of a storm, if they last for its window."""
    switched, queued = process.involuntary_per_second or 0.0, process.runnable_percent or 0.0
    return switched >= STORM_INVOLUNTARY_PER_S and queued >= STORM_RUNNABLE_PERCENT


def storms(window: FrameWindow, processes: Iterable[ProcessRow], facts: Facts) -> tuple[Storm, ...]:
    """Processes in a context-switch storm, the worst first; none while the window is shorter than 2 s."""
    if window.window_ns < _STORM_WINDOW_NS:
        return ()
    waits = window.waits()
    found = []
    for process in processes:
        if not is_storm(process):
            continue
        switched, queued = process.involuntary_per_second or 0.0, process.runnable_percent or 0.0
        sums: Waits = {}
        for thread in process.threads:
            for occupant, ns in waits.get(thread.tid, {}).items():
                sums[occupant] = sums.get(occupant, 0) + ns
        waited = sum(thread.runnable_ns for thread in process.threads)
        occupants = _shares(sums, waited, facts)
        found.append(Storm(process.pid, process.name, switched, queued, occupants))
    return tuple(sorted(found, key=lambda storm: -storm.involuntary_per_second))


# Processes of which only sums are reported: those of other users, where a daemon shows each user their own.


def add_others(sums: Others, data: Mapping[str, Any]) -> None:
    """Adds what an ``others`` sample says; columns of different lengths are cut to the shortest."""
    columns = [data.get(name, ()) for name in ("pid", "calls", *_NUMBERS)]
    for row in zip(*columns, strict=False):
        pid, calls, *numbers = map(int, row)
        before, thread = sums.get(pid, (0, ThreadTick(pid)))
        thread.add(ThreadTick(pid, *numbers))
        sums[pid] = before + calls, thread


def with_sums(row: ProcessRow, ticks: Iterable[Others], window_ns: int) -> ProcessRow:
    """The row of such a process: rates, and nothing of its threads and functions."""
    calls, whole = 0, ThreadTick(row.pid)
    for sums in ticks:
        if row.pid in sums:
            calls += sums[row.pid][0]
            whole.add(sums[row.pid][1])
    seconds = window_ns / 1e9
    return replace(
        row,
        calls_per_second=calls / seconds,
        voluntary_per_second=whole.voluntary / seconds,
        involuntary_per_second=whole.involuntary / seconds,
        runnable_percent=100 * whole.runnable / window_ns,
        blocked_percent=100 * whole.blocked / whole.lived if whole.lived else 0.0,
        on_cpu_percent=100 * whole.on_cpu / window_ns,
    )
