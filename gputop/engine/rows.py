"""The rows of a frame, from a window."""

from __future__ import annotations

from collections import defaultdict
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
_OCCUPANTS_SHOWN, _NAMES_SHOWN = 8, 4
_BRIEF, _MANY = 0.05, 256  # a rest of occupants from which on they are added by name, and how many at most

Waits = dict[tuple[int, int], int]  # (occupant tid, occupant pid) -> ns

Others = dict[int, tuple[int, ThreadTick]]  # process -> calls, sums over all its threads
_NUMBERS = ("lived_ns", "runnable_ns", "blocked_ns", "voluntary", "involuntary")


@dataclass(slots=True)
class TickSums:
    """The sums of one tick of a window."""

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
    others: Others  # processes reported as sums only
    kept: bool  # True if its records were recorded, not only their sums
    faults: FaultCounts  # page faults reported in it


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """The input of the rows of one frame."""

    ticks: list[TickSums]
    window_ns: int
    calls: CallWindow
    open: OpenThreads
    mark_ns: int
    gpu_usage: dict[int, dict[int, int]] | None
    devices: list[Device]
    counted: dict[int, str] | None = None  # without eBPF: tid -> state by its counters
    fill: int | None = None  # threads that fill a GPU
    scheduled: bool = True  # True if thread states are recorded
    resident: Mapping[int, int] = field(default_factory=dict)  # pid -> bytes
    use: Mapping[int, Use] = field(default_factory=dict)
    watts: Mapping[int, float] = field(default_factory=dict)
    header: Mapping[str, Any] = field(default_factory=dict)

    def threads(self) -> dict[int, ThreadTick]:
        """Return tid -> sums over the window."""
        sums: dict[int, ThreadTick] = {}
        for tick in self.ticks:
            add_up(sums, tick.threads)
        return sums if self.counted is None else {tid: settled(thread) for tid, thread in sums.items()}

    def callers(self) -> frozenset[int]:
        return frozenset().union(*(tick.callers for tick in self.ticks))

    def waits(self) -> dict[int, Waits]:
        """Return tid -> occupants of its CPU while it was queued."""
        sums: dict[int, Waits] = {}
        for tick in self.ticks:
            for (tid, occupant, pid), ns in tick.waits.items():
                own = sums.setdefault(tid, {})
                own[occupant, pid] = own.get((occupant, pid), 0) + ns
        return sums


def _shares(waits: Waits, whole_ns: int, facts: Facts) -> tuple[Share, ...]:
    """The largest occupants, with fractions of ``whole_ns``, the time of the waits.

    Of a program that is started again and again each process has a small share: the rest is added by name.
    """
    ranked = sorted(waits.items(), key=lambda entry: (-entry[1], entry[0]))
    whole = max(whole_ns, sum(waits.values()), 1)
    first, rest = ranked[:_OCCUPANTS_SHOWN], ranked[_OCCUPANTS_SHOWN:]
    found = [Share(pid, tid, facts.thread_name(tid, pid), ns, ns / whole) for (tid, pid), ns in first]
    if sum(ns for _one, ns in rest) < _BRIEF * whole:
        return tuple(found)
    brief: dict[str, list[tuple[tuple[int, int], int]]] = {}
    for (tid, pid), ns in rest[:_MANY]:
        brief.setdefault(facts.brief_name(tid, pid), []).append(((tid, pid), ns))
    groups = sorted(brief.items(), key=lambda group: -sum(ns for _one, ns in group[1]))
    for name, members in groups[:_NAMES_SHOWN]:
        (tid, pid), sums = members[0][0], sum(ns for _one, ns in members)
        found.append(Share(pid, tid, name or str(tid), sums, sums / whole, len(members)))
    return tuple(sorted(found, key=lambda share: -share.ns))


def _call_rows(window: FrameWindow, facts: Facts) -> dict[int, list[CallRow]]:
    """pid -> its calls, most time first; calls in progress are counted in their row."""
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
    """(pid, op) -> (outermost calls in progress, age of the oldest in ns)."""
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
        # without the idle task: a wait on an idle CPU is the latency of a wakeup
        occupants = {one: ns for one, ns in waits.get(tid, {}).items() if one[0] != 0}
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
                preempted_by=_shares(occupants, thread.runnable, facts),
            )
        )
    return found


def _blocked_percent(threads: Iterable[ThreadRow], window_ns: int) -> float:
    """The mean of the CUDA threads (of all if none calls CUDA), weighted by their lifetimes.

    A share of the whole window: a thread blocked for half of its life, which is half of the window, counts a
    quarter.
    """
    rows = list(threads)
    chosen = [row for row in rows if row.cuda] or rows
    lives = [row.on_cpu_ns + row.runnable_ns + row.blocked_ns for row in chosen]
    if not sum(lives):
        return 0.0
    mean = sum(row.blocked_ns for row in chosen) / sum(lives)
    return 100 * mean * min(max(lives) / window_ns, 1.0)


def process_rows(window: FrameWindow, facts: Facts) -> tuple[ProcessRow, ...]:
    """Return all watched processes, by pid."""
    ticks, calls, threads = window.ticks, _call_rows(window, facts), _thread_rows(window, facts)
    known = {int(row["pid"]): row for row in facts.watched()}
    unknown = {pid: ProcessData(pid=pid) for pid in (*calls, *threads) if pid not in facts.processes}
    gpus = Attribution(window.gpu_usage, window.devices, known)
    line_sums = summed_pairs(tick.lines.lines for tick in ticks)
    line_waits = summed_pairs(tick.lines.waits for tick in ticks)
    lines, nameless = line_rows(line_sums, facts, line_waits)
    callers = window.callers()
    waits, unplaced = wait_rows(line_waits, calls, callers, facts)
    stacks = stack_rows(line_sums, line_waits, calls, callers, facts)
    pids = {thread.tid: pid for pid, found in threads.items() for thread in found}
    launched, seen = Launched(), Samples()
    for tick in ticks:
        launched.add(tick.kernels)
        seen.update(tick.samples)
    kernels = kernel_rows(launched, facts, window.fill)
    samples, sampled = sample_rows(seen, pids, facts)
    rows = (
        _process_row(
            window, facts, row, gpus.of(pid, row), tuple(calls.get(pid, ())), tuple(threads.get(pid, ()))
        )
        for pid, row in sorted((known | unknown).items())
    )
    faults = summed_pairs(tick.faults for tick in ticks)
    if summed := {pid for tick in ticks for pid in tick.others}:
        sums = [tick.others for tick in ticks]
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
    """Return unwatched processes that NVML lists on a GPU, by pid."""
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
    """True if its switches are those of a storm, should they last for its window."""
    switched, queued = process.involuntary_per_second or 0.0, process.runnable_percent or 0.0
    return switched >= STORM_INVOLUNTARY_PER_S and queued >= STORM_RUNNABLE_PERCENT


def storms(window: FrameWindow, processes: Iterable[ProcessRow], facts: Facts) -> tuple[Storm, ...]:
    """Return processes in a context-switch storm, worst first; none while the window is shorter than 2 s."""
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


# Processes reported as sums only: those of other users, where a daemon shows each user their own.


def add_others(sums: Others, data: Mapping[str, Any]) -> None:
    """Add an ``others`` sample; columns of different lengths are cut to the shortest."""
    columns = [data.get(name, ()) for name in ("pid", "calls", *_NUMBERS)]
    for row in zip(*columns, strict=False):
        pid, calls, *numbers = map(int, row)
        before, thread = sums.get(pid, (0, ThreadTick(pid)))
        thread.add(ThreadTick(pid, *numbers))
        sums[pid] = before + calls, thread


def with_sums(row: ProcessRow, ticks: Iterable[Others], window_ns: int) -> ProcessRow:
    """Return the row of such a process: rates, without threads and functions."""
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
