"""A recording as a native Perfetto trace: calls, thread states, wakeups, idle GPUs, findings, counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.engine.calls.launch_counts import shape_text
from gputop.engine.facts import Facts
from gputop.engine.threads.switches import OpenThreads
from gputop.errors import GputopError, install_command
from gputop.exchange.explained import ExplainedRecording, explained
from gputop.exchange.launches import kernel_names, shapes_of
from gputop.exchange.packet_forms import ARGUMENTS, NEEDS_STATE, SEQUENCE, Forms
from gputop.exchange.packets import Ordered
from gputop.exchange.perfetto_tracks import Tracks
from gputop.exchange.recorded_ranges import RecordedRanges
from gputop.format import escape_text
from probes.arrays import each_number, signed
from probes.proc.syscalls import machine_of
from probes.proc.syscalls import name as syscall_name
from probes.samples import listed_gpus, sample_data
from probes.schema import ALIASED, NO_SYSCALL, Kind, OffFlag, Records, join, select
from probes.source import ACTIVITY, GPUS, HOLE, MARK, OPEN, SUMS, Sample

_MOST_STATE = 2  # TASK_UNINTERRUPTIBLE of a task's state
_COUNTERS = (
    "utilization_percent",
    "memory_used_bytes",
    "sm_active_percent",
    "power_milliwatts",
    "sm_clock_mhz",
    "temperature_celsius",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
)

Column = npt.NDArray[Any]


def write_perfetto(session: Session, file: BinaryIO, progress: Progress = SILENT) -> None:
    """Write the trace for Perfetto's page (ui.perfetto.dev) and its trace processor.

    Raises:
        NoCallsError: It was recorded without eBPF.
        GputopError: It cannot be read, or Perfetto's messages are not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
    except ImportError as error:
        raise GputopError(f"Perfetto's messages are not installed: {install_command('exchange')}") from error
    known = explained(session, progress)
    progress.goes_on("writing")
    reader = reader_of(session)
    with understood(session.path):
        trace = _Trace(session, proto, file, RecordedRanges(reader))
        trace.begin(known, reader.facts())
        items = reader.items()
        for item in progress.through(items, len(reader.marks)):
            trace.feed(item)
        trace.flush()


class _Trace:
    """Consumes the items of a recording; writes the packets of a tick at its mark."""

    def __init__(self, session: Session, proto: Any, file: BinaryIO, ranges: RecordedRanges) -> None:
        self._ranges = ranges
        self._session, self._proto, self._file = session, proto, file
        self._forms = Forms(proto)
        self._tracks = Tracks(session, proto)
        self._facts = Facts()
        self._held: list[Records] = []
        self._last_cpu: dict[int, int] = {}
        # threads at the newest mark, and whether records of the time since it, or before it, are missing
        self._open = self._opened = OpenThreads()
        self._marked_ns = session.start_ns
        self._hole = self._after_hole = False
        # when each thread first left its CPU in this tick, and last came back
        self._left_ns: dict[int, int] = {}
        self._back_ns: dict[int, int] = {}
        self._flows = 0
        self._machine = machine_of(session.header)

    def begin(self, known: ExplainedRecording, facts: Iterable[Sample]) -> None:
        """Write packets outside the order of time: clocks, tracks, ranges, the explanation.

        Args:
            known: The explanation.
            facts: Facts of the whole recording, for the threads of ranges.
        """
        self._write(self._tracks.head(ARGUMENTS))
        if self._ranges.any:
            who = Facts()
            for fact in facts:
                who.consume(fact)
            self._write(self._tracks.ranges(self._ranges, who))
        self._write(self._tracks.explanation(known))

    def feed(self, item: Any) -> None:
        if not isinstance(item, Sample):
            self._held.append(item)
            return
        self._facts.consume(item)
        if item.kind == GPUS:
            self._write(self._counters(item))
        elif (activities := sample_data(item, ACTIVITY)) is not None:
            self._write(self._tracks.activities(activities))
        elif (threads := sample_data(item, OPEN)) is not None:
            self._opened = OpenThreads.from_sample(threads)
        elif item.kind in (HOLE, SUMS):
            self._hole = True
        elif item.kind == MARK:
            self.flush()
            self._mark(item.time_ns)

    def flush(self) -> None:
        """Write the held records, whose stacks are known by now."""
        if not self._held:
            return
        records, self._held = join(self._held), []
        ordered = Ordered()
        self._calls(select(records, records["kind"] == Kind.CALL), ordered)
        self._off_cpu(select(records, records["kind"] == Kind.OFFCPU), ordered)
        self._ends(select(records, records["kind"] == Kind.EXIT), ordered)
        self._write(self._tracks.news())  # threads and names first used by these packets
        self._file.write(ordered.bytes())

    def _write(self, packets: Any) -> None:
        self._file.write(packets.SerializeToString())

    # -- calls ------------------------------------------------------------------------------------

    def _calls(self, calls: Records, ordered: Ordered) -> None:
        if not len(calls):
            return
        end = signed(calls["t_end"])
        begin = np.minimum(end - np.minimum(calls["duration"], calls["t_end"]).astype(np.int64), end - 1)
        depth = calls["depth"].astype(np.int64)
        track = self._tracks.threads(calls["tid"], calls["pid"], self._facts)
        columns = {
            "time": np.maximum(begin, 0),
            "track": track,
            "name": self._named(calls["op"], lambda op: self._facts.api(op)[0]),
            "bytes": signed(calls["bytes"]),
            "stream": np.minimum(calls["stream"], np.uint64((1 << 63) - 1)),
            "returned": calls["ret"].astype(np.int64) & 0x7FFFFFFF,
            "line": self._named(calls["stack"], self._line, empty=True),
            "kernel": self._texts([name or "" for name in kernel_names(calls, self._facts)]),
            "range": self._texts(
                [path or "" for path in self._ranges.paths(calls["pid"], calls["tid"], begin)]
            ),
            "shape": self._texts(
                ["" if one is None else shape_text(one) for one in shapes_of(calls, self._facts)]
            ),
        }
        present = {name: columns[name] > 0 for name in ARGUMENTS}
        form = sum(present[name].astype(np.int64) << place for place, name in enumerate(ARGUMENTS))
        for number in np.unique(form).tolist():
            rows = np.flatnonzero(form == number)
            arguments = [name for place, name in enumerate(ARGUMENTS) if number >> place & 1]
            part = {name: column[rows] for name, column in columns.items()}
            packets = self._forms.begin(arguments).packets(part)
            # at one moment inner calls end first, then outer ones; outer ones begin first, then inner ones
            ordered.add(packets, part["time"], 100 + depth[rows])
        ends = self._forms.end().packets({"time": np.maximum(end, 0), "track": track})
        ordered.add(ends, end, 50 - np.minimum(depth, 40))

    def _line(self, stack: int) -> str:
        line = self._facts.stacks.line(stack)
        return "" if line is None else line.text()

    def _named(self, values: Column, name: Any, *, empty: bool = False) -> Column:
        """Interned names of values; 0 for empty ones if ``empty``."""
        intern = self._tracks.text if empty else self._tracks.name
        return each_number(values, lambda value: intern(escape_text(name(value))))

    def _texts(self, values: list[str]) -> Column:
        """Interned texts; 0 for empty ones."""
        known = {text: self._tracks.text(escape_text(text)) if text else 0 for text in dict.fromkeys(values)}
        return np.array([known[text] for text in values], np.int64)

    # -- threads ----------------------------------------------------------------------------------

    def _off_cpu(self, records: Records, ordered: Ordered) -> None:
        if not len(records):
            return
        rows = records.view(ALIASED)[np.lexsort((records["t_end"], records["tid"]))]
        end = signed(rows["t_end"])
        duration = np.minimum(rows["duration"], rows["t_end"]).astype(np.int64)
        begin = end - duration
        queued = end - np.minimum(rows["runnable"].astype(np.int64), duration)
        missed = (rows["flags"] & OffFlag.WAKE_MISSED) != 0
        queued = np.where(missed, end, queued)
        tid, cpu = rows["tid"].astype(np.int64), rows["cpu"].astype(np.int64)
        left = self._cpus_before(tid, cpu, begin, end)
        deep = (rows["ret"] & _MOST_STATE) != 0
        blocked, waited = queued > begin, end > queued
        # a thread is in one state at a time: of two that begin at one moment the later one in this list holds
        for name, chosen, time, where in (
            ("UNINTERRUPTIBLE_SLEEP", blocked & deep, begin, left),
            ("INTERRUPTIBLE_SLEEP", blocked & ~deep, begin, left),
            ("RUNNABLE", waited, queued, left),
            ("RUNNING", end > begin, end, cpu),  # a thread that is picked again at once has not left
        ):
            at = np.flatnonzero(chosen)
            if len(at):
                columns = {"time": time[at], "tid": tid[at], "cpu": where[at]}
                ordered.add(
                    self._forms.state(name).packets(columns), time[at], 10 if name != "RUNNING" else 12
                )
        self._slices(rows, begin, queued, end, blocked, waited, ordered)
        self._wakeups(rows, queued, blocked & ~missed, ordered)

    def _mark(self, mark_ns: int) -> None:
        """Draw nothing while records are missing: threads have their states at the ends of that time."""
        ordered = Ordered()
        if self._hole and not self._after_hole:
            self._left_at(self._marked_ns, ordered)
        elif self._after_hole and not self._hole:
            self._running_at(self._marked_ns, ordered)
        self._file.write(ordered.bytes())
        self._open, self._opened = self._opened, OpenThreads()
        self._marked_ns, self._after_hole, self._hole = mark_ns, self._hole, False
        self._left_ns.clear()

    def _left_at(self, mark_ns: int, ordered: Ordered) -> None:
        """States of threads at a mark after which records are missing: off the CPU, then unknown."""
        still = self._open
        rows = zip(still.tid, still.off_since, still.queued_since, strict=True)
        for tid, off, queued in rows:
            for name, since in (("INTERRUPTIBLE_SLEEP", off), ("RUNNABLE", queued)):
                # threads are listed a moment before the mark: those that came back since have a record
                if self._back_ns.get(tid, 0) < off and 0 < since < mark_ns:
                    self._state(name, since, [tid], ordered)
        self._state("DESTROYED", mark_ns, sorted(self._last_cpu.keys() | set(still.tid)), ordered)

    def _running_at(self, mark_ns: int, ordered: Ordered) -> None:
        """Threads on a CPU at the mark from which records are complete again."""
        off = {tid for one in (self._open, self._opened) for tid, off in _off(one) if 0 < off < mark_ns}
        off |= {tid for tid, since in self._left_ns.items() if since < mark_ns}
        on_cpu = [tid for tid in self._open.tid if tid not in off]
        self._state("RUNNING", mark_ns, on_cpu, ordered)

    def _state(self, name: str, time_ns: int, tids: Sequence[int], ordered: Ordered) -> None:
        if len(tids):
            time = np.full(len(tids), time_ns, np.int64)
            cpu = np.array([self._last_cpu.get(tid, 0) for tid in tids], np.int64)
            columns = {"time": time, "tid": np.array(tids, np.int64), "cpu": cpu}
            ordered.add(self._forms.state(name).packets(columns), time, 12)

    def _cpus_before(self, tid: Column, cpu: Column, begin: Column, end: Column) -> Column:
        """The previous CPU of each thread: where it came back the time before."""
        left = np.append(cpu[:1], cpu[:-1])
        first = np.flatnonzero(np.append(True, tid[1:] != tid[:-1]))
        for row, thread in zip(first.tolist(), tid[first].tolist(), strict=True):
            left[row] = self._last_cpu.get(thread, int(cpu[row]))
        last = np.append(first[1:] - 1, len(tid) - 1)
        self._last_cpu.update(zip(tid[last].tolist(), cpu[last].tolist(), strict=True))
        self._back_ns.update(zip(tid[last].tolist(), end[last].tolist(), strict=True))
        for thread, since in zip(tid[first].tolist(), begin[first].tolist(), strict=True):
            self._left_ns.setdefault(thread, since)
        return left

    def _slices(
        self,
        rows: Records,
        begin: Column,
        queued: Column,
        end: Column,
        blocked: Column,
        waited: Column,
        ordered: Ordered,
    ) -> None:
        track = self._tracks.off_cpu(rows["tid"], rows["pid"], self._facts)
        why = self._named(rows["op"], self._blocked)
        for chosen, name, since, until in (
            (blocked, why, begin, queued),
            (waited, np.full(len(rows), self._tracks.name("waits for a CPU")), queued, end),
        ):
            at = np.flatnonzero(chosen)
            if len(at):
                columns = {"time": since[at], "track": track[at], "name": name[at]}
                ordered.add(self._forms.begin().packets(columns), since[at], 100)
                ends = {"time": until[at], "track": track[at]}
                ordered.add(self._forms.end().packets(ends), until[at], 50)

    def _blocked(self, number: int) -> str:
        if number == NO_SYSCALL:
            return "blocked"
        return f"blocked in {syscall_name(number, self._machine) or f'system call {number}'}"

    def _wakeups(self, rows: Records, queued: Column, chosen: Column, ordered: Ordered) -> None:
        at = np.flatnonzero(chosen & (rows["waker_tid"] > 0))
        if not len(at):
            return
        flow = np.arange(1, len(at) + 1, dtype=np.int64) + self._flows
        self._flows += len(at)
        waker = self._tracks.wakeups(rows["waker_tid"][at], rows["waker_pid"][at], self._facts)
        woken = self._tracks.wakeups(rows["tid"][at], rows["pid"][at], self._facts)
        for track, name, way in ((waker, "wakes", "from"), (woken, "woken", "to")):
            number = np.full(len(at), self._tracks.name(name))
            columns = {"time": queued[at], "track": track, "name": number, "flow": flow}
            ordered.add(
                self._forms.begin(flow=way).packets(columns), queued[at], 110 if way == "from" else 111
            )

    def _ends(self, exits: Records, ordered: Ordered) -> None:
        if len(exits):
            time = signed(exits["t_end"])
            columns = {"time": time, "tid": exits["tid"], "cpu": exits["cpu"]}
            ordered.add(self._forms.state("DEAD").packets(columns), time, 13)

    # -- GPUs -------------------------------------------------------------------------------------

    def _counters(self, sample: Sample) -> Any:
        trace = self._proto.Trace()
        for gpu in listed_gpus(sample):
            for key in _COUNTERS:
                value = gpu.get(key)
                if value is None:
                    continue
                packet = trace.packet.add()
                packet.trusted_packet_sequence_id, packet.sequence_flags = SEQUENCE, NEEDS_STATE
                packet.timestamp = max(sample.time_ns, 0)
                packet.track_event.type = self._proto.TrackEvent.TYPE_COUNTER
                packet.track_event.track_uuid = self._tracks.counter(int(gpu["index"]), key)
                packet.track_event.double_counter_value = float(value)
        news = self._tracks.news()
        news.MergeFrom(trace)
        return news


def _off(threads: OpenThreads) -> Iterator[tuple[int, int]]:
    """Yield (thread, since when it is off its CPU)."""
    return zip(threads.tid, threads.off_since, strict=True)
