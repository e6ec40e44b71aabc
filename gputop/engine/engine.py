"""Turns items into frames, of live sources and session files alike.

A frame depends only on the records between the marks of its window, the facts before its mark, and the
samples of its history. So a seek that feeds just these yields the same frame.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from gputop.engine import rows
from gputop.engine.accumulator import Accumulator
from gputop.engine.calls.calltable import Callers, CallWindow, left_out
from gputop.engine.calls.launch_counts import KernelCounts, Launched
from gputop.engine.calls.linesums import LineSums, Samples, add_samples
from gputop.engine.facts import Facts, lost_before
from gputop.engine.frame import Frame, Lost, stacks_recorded
from gputop.engine.gpus import gpu_of, nvml_rows
from gputop.engine.gpus.gpu_processes import use_of, watts_of
from gputop.engine.gpus.nvml_rows import fill_of
from gputop.engine.host_figures import HostWindow
from gputop.engine.rows import Others, TickSums, add_others
from gputop.engine.threads.counters import Counters, add_up
from gputop.engine.threads.fault_sums import FaultSums
from gputop.engine.threads.occupancy import OccupancyWindow
from gputop.engine.threads.switches import OpenThreads, ThreadTick, TickThreads, states_of
from gputop.engine.wallclock import WallClock
from gputop.format import format_ns
from probes.samples import sample_data, section
from probes.source import COUNTERS, GPUS, MARK, OPEN, OTHERS, PLACES, SUMS, Item, Sample

WINDOW_NS = 2_000_000_000  # of rates, percentiles and storms
HISTORY_MARKS = 240  # a minute at 4 Hz, for the utilisation graphs
_MOST_TICKS = 1024  # of a window, which is shorter then: twenty marks a second are usual
_JITTER_NS = 50_000_000  # marks come a little late; a window of 2 s is eight ticks of 250 ms at 4 Hz
_MOST_HZ = 1000.0  # a higher rate in a header is invalid


class _OpenTick(Accumulator):
    """The sums of the open tick so far."""

    def __init__(self, since_ns: int, calls: CallWindow, kernels: KernelCounts, callers: Callers) -> None:
        self.lines, self.threads, self.faults = LineSums(), TickThreads(since_ns), FaultSums()
        super().__init__(calls, kernels, callers, self.lines, self.threads, self.faults)
        self.counted: dict[int, ThreadTick] = {}  # without eBPF, instead of switches
        # instead of switches, where their records were not kept
        self.states: dict[int, ThreadTick] | None = None
        self.others: Others = {}
        self.samples: Samples = Counter()


class Engine:
    """Consumes items; ``frame`` builds the frame of the newest mark.

    Args:
        header: The source's header.
        window_ns: Length of the window, of the marks within it.
    """

    def __init__(self, header: Mapping[str, Any], window_ns: int = WINDOW_NS) -> None:
        self._header = header
        self._window_ns = window_ns
        self._start_ns = int(header.get("start_ns", 0))
        self._lost_before = lost_before(header)
        self._calls = CallWindow()
        self._kernels = KernelCounts()
        self._occupancy = OccupancyWindow()
        self._callers = Callers()
        self._ticks: deque[TickSums] = deque()
        self._now = self._open_tick(self._start_ns)
        self._open = OpenThreads()
        self._counters: Counters | None = None
        self._counted: dict[int, str] | None = None
        self._alive: frozenset[int] = frozenset()
        self._gpus: Sample | None = None
        self._history: nvml_rows.History = {}
        machine = {} if "merged" in header else section(header, "machine")
        self._host = HostWindow(str(machine.get("host", "")), str(machine.get("cpu_model", "")))
        self._mark: Sample | None = None
        self.facts = Facts()

    def _open_tick(self, since_ns: int) -> _OpenTick:
        return _OpenTick(since_ns, self._calls, self._kernels, self._callers)

    def feed(self, item: Item) -> bool:
        """Consume one item; True when it closed a tick, so that there is a new frame."""
        if not isinstance(item, Sample):
            self._now.add(item)
            return False
        self._now.add_sample(item)
        if item.kind == MARK:
            self.facts.consume(item)
            self._close_tick(item)
            return True
        if item.kind == GPUS:
            self._gpus = nvml_rows.of_all_hosts(self._gpus, item)
        elif (threads := sample_data(item, OPEN)) is not None:
            self._open = OpenThreads.from_sample(threads)
        elif item.kind == SUMS:
            self._now.merge(item.data)
            self._now.states = states_of(item.data)
        elif item.kind == COUNTERS:
            self._count(Counters.from_sample(item))
        elif item.kind == OTHERS:
            add_others(self._now.others, item.data)
        elif (places := sample_data(item, PLACES)) is not None:
            add_samples(self._now.samples, places)
        elif not self._host.consume(item):
            self.facts.consume(item)
        return False

    def _count(self, counters: Counters) -> None:
        add_up(self._now.counted, counters.growth(self._counters))
        self._counted = counters.states(self._counters)
        self._counters = counters

    def _close_tick(self, mark: Sample) -> None:
        now, mark_ns, data = self._now, mark.time_ns, sample_data(mark, MARK) or {}
        if (others := now.settle()) is not None:
            self._occupancy.add(others)
        threads = now.threads.close(mark_ns, self._open, self._alive) if now.states is None else now.states
        # keep the ticks whose end lies within the window before this mark, this one included
        within = sum(tick.mark_ns > mark_ns - self._window_ns + _JITTER_NS for tick in self._ticks)
        keep = min(1 + within, _MOST_TICKS)
        waits = self._occupancy.close_tick(keep)
        self._calls.close_tick(keep)
        self._ticks.append(
            TickSums(
                mark_ns=mark_ns,
                since_ns=now.threads.since_ns,
                threads=threads | now.counted,
                waits=waits,
                lines=now.lines,
                samples=now.samples,
                kernels=self._kernels.sums,
                events=now.events,
                callers=self._callers.tids,
                own_cpu_percent=float(data.get("own_cpu_percent", 0)),
                starting=self._mark is None and data.get("number") == 1,
                others=now.others,
                kept=now.states is None,
                faults=now.faults.sums,
            )
        )
        self._kernels.sums = Launched()
        self._callers.clear()
        while len(self._ticks) > keep:
            self._ticks.popleft()
        nvml_rows.remember(self._history, self._gpus, HISTORY_MARKS)
        self._alive = frozenset(self._open.tid)
        self._mark = mark
        self.facts.forget(mark_ns)
        self._now = self._open_tick(mark_ns)

    def frame(self) -> Frame:
        """Return the frame of the newest mark. Needs at least one mark."""
        assert self._mark is not None
        mark, data = self._mark, sample_data(self._mark, MARK) or {}
        window_ns = max(mark.time_ns - self._ticks[0].since_ns, 1)
        gpu_rows = nvml_rows.gpu_rows(self._gpus, self._history, mark.time_ns, self.facts)
        window = rows.FrameWindow(
            list(self._ticks),
            window_ns,
            self._calls,
            self._open,
            mark.time_ns,
            nvml_rows.usage(self._gpus),
            nvml_rows.devices(self._gpus),
            self._counted,
            fill_of(self._gpus) if self._gpus is not None else None,
            scheduled=self._header.get("source") is None,  # traces of other tools have no complete states
            resident=self._host.resident(mark.time_ns),
            use=use_of(gpu_rows),
            watts=watts_of(gpu_rows),
            header=self._header,
        )
        processes = rows.process_rows(window, self.facts)
        clock = self._header.get("clock", {})
        begun = WallClock.of_header(self._header)
        return Frame(
            number=int(data.get("number", 0)),
            time_ns=mark.time_ns,
            wall_ns=int(data.get("wall_ns", 0)),
            start_ns=self._start_ns,
            window_ns=window_ns,
            utc_offset_s=int(clock.get("utc_offset_s", 0)),
            rate_hz=_rate_hz(self._header),
            clock=begun.joined(self.facts.clock) if begun is not None else self.facts.clock,
            lost=Lost.since(self._lost_before, mark),
            own_cpu_percent=self._own_cpu_percent(),
            own_rss_bytes=int(data.get("own_rss_bytes", 0)),
            events_per_second=sum(tick.events for tick in self._ticks) * 1e9 / window_ns,
            calls_per_second=sum(process.calls_per_second for process in processes),
            gpus=gpu_rows,
            processes=processes,
            storms=rows.storms(window, processes, self.facts),
            problems=(
                *self.facts.problems(self._gpus),
                *left_out(self._calls.totals()),
                *self._not_kept(),
                *(gpu_of.sentences(processes, self.facts.processes) if gpu_rows else ()),
            ),
            notes=self.facts.notes(),
            driver=str(self._header.get("driver") or self._of_driver("driver")),
            cuda=self._of_driver("cuda"),
            host=self._host.row(mark.time_ns),
            unwatched=rows.unwatched_rows(window, gpu_rows, self.facts, self._host.cpu_percent(mark.time_ns)),
            lines=stacks_recorded(self._header),
            calls_observed=self._header.get("calls_observed") is not False,
        )

    def _not_kept(self) -> tuple[str, ...]:
        """A note about time of which only sums were recorded."""
        sums = sum(tick.mark_ns - tick.since_ns for tick in self._ticks if not tick.kept)
        if not sums:
            return ()
        return (
            f"the records of {format_ns(sums)} of this window were not kept (record --detail): calls, "
            "histograms and switches are exact sums; occupants of CPUs and causes of idle time are not known",
        )

    def _own_cpu_percent(self) -> float:
        """Over the window, since the last tick of a session may be a few ms of its end."""
        ticks = [tick for tick in self._ticks if not tick.starting] or list(self._ticks)
        spent = sum(tick.own_cpu_percent * (tick.mark_ns - tick.since_ns) for tick in ticks)
        return round(spent / max(sum(tick.mark_ns - tick.since_ns for tick in ticks), 1), 2)

    def _of_driver(self, key: str) -> str:
        """A version that NVML may have reported only after the start of the session."""
        data = sample_data(self._gpus, GPUS) if self._gpus is not None else None
        return str((data or {}).get(key, ""))


def _rate_hz(header: Mapping[str, Any]) -> float:
    """Marks per second of a recording, 0 if its header has no valid rate."""
    rate = float(header.get("rate_hz", 0))
    return rate if 0 < rate <= _MOST_HZ else 0.0
