"""Turns items into frames. The same code serves live sources and session files.

A frame depends only on: the records that came between the marks of its window, the facts that came
before its mark, and the samples of its history. So a seek feeds just those and gives the same frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gputop.engine import rows
from gputop.engine.aggregate_only import Others, add_others
from gputop.engine.calls.calltable import Callers, CallWindow, left_out
from gputop.engine.calls.launch_counts import KernelWindow
from gputop.engine.calls.linesums import LineWindow
from gputop.engine.facts import Facts, lost_before
from gputop.engine.frame import Frame, Lost, stacks_recorded
from gputop.engine.gpus import gpu_of, nvml_rows
from gputop.engine.gpus.gpu_processes import use_of, watts_of
from gputop.engine.gpus.nvml_rows import fill_of
from gputop.engine.host_figures import HostWindow
from gputop.engine.rows import TickSums
from gputop.engine.tally import merge_calls, told_callers, told_kernels, told_states, told_sums
from gputop.engine.threads.counters import Counters, add_up
from gputop.engine.threads.fault_sums import FaultCounts, add_faults
from gputop.engine.threads.occupancy import OccupancyWindow
from gputop.engine.threads.switches import OpenThreads, SwitchTick, ThreadTick
from gputop.engine.wallclock import WallClock
from gputop.format import format_ns
from probes.samples import lost_until, section, told
from probes.schema import LOSS_KINDS, Kind, Records, join, select
from probes.source import APIS, COUNTERS, FAULTS, GPUS, MARK, OPEN, OTHERS, PLACES, SUMS, Item, Sample

WINDOW_NS = 2_000_000_000  # what rates, percentiles and storms refer to
HISTORY_MARKS = 240  # a minute at 4 Hz, for the utilisation graphs
_MOST_TICKS = 1024  # of a window, which is shorter then: twenty marks a second are usual
_JITTER_NS = 50_000_000  # marks come a little late; a window of 2 s is eight ticks of 250 ms at 4 Hz


_MOST_HZ = 1000.0  # no recorder has marks so often
_CALL = np.uint8(Kind.CALL)  # an enum takes numpy's slow path


@dataclass(slots=True)
class _OpenTick:
    switches: SwitchTick
    events: int = 0
    calls: int = 0
    counted: dict[int, ThreadTick] = field(default_factory=dict)  # without eBPF, instead of switches
    states: dict[int, ThreadTick] | None = None  # where its records were not kept, instead of switches
    others: list[Records] = field(default_factory=list)  # what is no call; few, so taken in together
    strangers: Others = field(default_factory=dict)
    faults: FaultCounts = field(default_factory=dict)


class Engine:
    """Feeds on items; ``frame`` builds the frame of the newest mark.

    Args:
        header: The source's header.
        window_ns: Length of the window; marks closer than it are all in it.
    """

    def __init__(self, header: Mapping[str, Any], window_ns: int = WINDOW_NS) -> None:
        self._header = header
        self._window_ns = window_ns
        self._start_ns = int(header.get("start_ns", 0))
        self._lost_before = lost_before(header)
        self._calls = CallWindow()
        self._lines = LineWindow()
        self._kernels = KernelWindow()
        self._occupancy = OccupancyWindow()
        self._callers = Callers()
        self._ticks: deque[TickSums] = deque()
        self._now = _OpenTick(SwitchTick(self._start_ns))
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

    def feed(self, item: Item) -> bool:
        """Takes one item in; True when it closed a tick, so that ``frame`` has something new."""
        if not isinstance(item, Sample):
            self._add(item)
            return False
        if item.kind == MARK:
            self.facts.take(item)
            self._close_tick(item)
            return True
        if item.kind == GPUS:
            self._gpus = nvml_rows.of_all_hosts(self._gpus, item)
        elif (threads := told(item, OPEN)) is not None:
            self._open = OpenThreads.from_sample(threads)
        elif item.kind == SUMS:
            self._add_sums(item.data)
        elif item.kind == COUNTERS:
            self._count(Counters.from_sample(item))
        elif item.kind == OTHERS:
            add_others(self._now.strangers, item.data)
        elif (faults := told(item, FAULTS)) is not None:
            add_faults(self._now.faults, faults)
        elif (places := told(item, PLACES)) is not None:
            self._lines.add_samples(places)
        elif not self._host.take(item):
            self.facts.take(item)
            if item.kind == APIS:
                self._kernels.now.name(str(row[0]) for row in item.data.get("rows", ()))
        return False

    def _add(self, records: Any) -> None:
        tick = self._now
        tick.events += len(records)
        is_call = records["kind"] == _CALL
        made = int(np.count_nonzero(is_call))
        tick.calls += made
        if made:
            calls = records if made == len(records) else select(records, is_call)
            self._calls.add(calls)
            self._lines.add(calls)
            self._kernels.now.add(calls)
            self._callers.add(calls["tid"])
        if made < len(records):
            tick.others.append(select(records, ~is_call) if made else records)

    def _add_sums(self, data: Mapping[str, Any]) -> None:
        """Of a tick whose records were not kept."""
        tick = self._now
        tick.events += int(data["events"])
        tick.calls += self._calls.add_sums(lambda table, totals: merge_calls(table, totals, data))
        self._lines.add_sums(told_sums(data, "lines"), told_sums(data, "waits"))
        self._callers.add(np.array([*told_callers(data)], np.uint32))
        if "kernels" in data:
            self._kernels.now.sums.add(told_kernels(data))
        tick.states = told_states(data)

    def _count(self, counters: Counters) -> None:
        add_up(self._now.counted, counters.growth(self._counters))
        self._counted = counters.states(self._counters)
        self._counters = counters

    def _close_tick(self, mark: Sample) -> None:
        now, mark_ns, data = self._now, mark.time_ns, told(mark, MARK) or {}
        if now.others:
            others = join(now.others)
            now.switches.add(others)
            self._occupancy.add(others)
            self._lines.add_waits(others)
        now.switches.close(mark_ns, self._open, self._alive)
        # keep the ticks whose end lies within the window before this mark, this one included
        within = sum(tick.mark_ns > mark_ns - self._window_ns + _JITTER_NS for tick in self._ticks)
        keep = min(1 + within, _MOST_TICKS)
        waits = self._occupancy.close_tick(keep)
        self._calls.close_tick(keep)
        self._lines.close_tick(keep)
        self._kernels.close_tick(keep)
        self._ticks.append(
            TickSums(
                mark_ns,
                now.switches.since_ns,
                (now.switches.threads if now.states is None else now.states) | now.counted,
                waits,
                now.events,
                now.calls,
                self._callers.take(),
                float(data.get("own_cpu_percent", 0)),
                self._mark is None and data.get("number") == 1,
                now.strangers,
                now.states is None,
                now.faults,
            )
        )
        while len(self._ticks) > keep:
            self._ticks.popleft()
        nvml_rows.remember(self._history, self._gpus, HISTORY_MARKS)
        self._alive = frozenset(self._open.tid)
        self._mark = mark
        self.facts.forget(mark_ns)
        self._now = _OpenTick(SwitchTick(mark_ns))

    def frame(self) -> Frame:
        """The frame of the newest mark. Needs at least one mark."""
        assert self._mark is not None
        mark, data = self._mark, told(self._mark, MARK) or {}
        window_ns = max(mark.time_ns - self._ticks[0].since_ns, 1)
        before = self._lost_before
        lost = {kind: count - before.get(kind, 0) for kind, count in lost_until(mark).items()}
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
            self._lines.sums(),
            self._lines.waits(),
            self._lines.samples(),
            self._kernels.sums(),
            fill_of(self._gpus) if self._gpus is not None else None,
            scheduled=self._header.get("source") is None,  # no trace of other tools tells all of it
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
            lost=Lost(
                sum(lost.get(kind, 0) for kind in LOSS_KINDS),
                tuple((kind, lost.get(kind, 0)) for kind in LOSS_KINDS),
            ),
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
        """Of a recording that keeps every record of some time only."""
        sums = sum(tick.mark_ns - tick.since_ns for tick in self._ticks if not tick.kept)
        if not sums:
            return ()
        return (
            f"the records of {format_ns(sums)} of this window were not kept (record --detail): calls, "
            "histograms and switches are exact sums, who took which CPU and why the GPU waited is not known",
        )

    def _own_cpu_percent(self) -> float:
        """Of the window, as the rates are: the last tick of a session may be a few ms of ending it."""
        ticks = [tick for tick in self._ticks if not tick.starting] or list(self._ticks)
        spent = sum(tick.own_cpu_percent * (tick.mark_ns - tick.since_ns) for tick in ticks)
        return round(spent / max(sum(tick.mark_ns - tick.since_ns for tick in ticks), 1), 2)

    def _of_driver(self, key: str) -> str:
        """A version that NVML may have told only after the session had begun."""
        data = told(self._gpus, GPUS) if self._gpus is not None else None
        return str((data or {}).get(key, ""))


def _rate_hz(header: Mapping[str, Any]) -> float:
    """How often a recording has a mark, 0 where its header does not say so in earnest."""
    rate = float(header.get("rate_hz", 0))
    return rate if 0 < rate <= _MOST_HZ else 0.0
