"""Sums of a stretch of a recording that add up to those of the whole: of calls, threads, lines and waits.

A ``Tally`` takes a stretch in, and what the stretch that came next told. What comes out does not depend on
where a recording is cut, as long as it is cut between items: sums and histograms are integers, so this is
exact. Facts are no sums: who merges gives them to one tally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.engine.calls.calltable import TOTALS, Callers, CallTable, RowSums
from gputop.engine.calls.failed_calls import FailedCalls
from gputop.engine.calls.histogram import BUCKETS, Ints
from gputop.engine.calls.launch_counts import KernelCounts, Launched
from gputop.engine.calls.linesums import Sums, add, sums_of, waits_of
from gputop.engine.callsums import CallSums
from gputop.engine.facts import Facts
from gputop.engine.fork_state import packed, pairs_of, signed, unpacked
from gputop.engine.gpus.gpu_work import WorkSums
from gputop.engine.gpus.nvml_rows import fill_of, smaller
from gputop.engine.threads.counters import Counters, add_up, settled
from gputop.engine.threads.diskwaits import DiskWaits, FileNames
from gputop.engine.threads.fault_sums import FaultCounts, add_faults, add_machine, add_rows, rows_of
from gputop.engine.threads.offcpu_stats import WIDTH, StaySums
from gputop.engine.threads.switches import OpenThreads, ThreadTick, slice_sums
from probes.api import MAX_ROWS
from probes.arrays import distinct
from probes.samples import told
from probes.schema import Kind, Records, join, select
from probes.source import (
    ACTIVITY,
    APIS,
    COUNTERS,
    FAULTS,
    FILES,
    GPUS,
    MACHINE,
    MARK,
    OPEN,
    SUMS,
    Item,
    Sample,
)
from replay.coding.file_format import MAX_SAMPLE_BYTES

VERSION = 1  # of what ``told`` returns
STATES = ("lived", "runnable", "blocked", "voluntary", "involuntary")  # of a thread in one tick
_LIFE, _EXITED = ("kind", "pid", "tid", "t_end"), int(Kind.EXIT)
_SWITCHES = ("runnable", "blocked", "voluntary", "involuntary")
ADDED = frozenset({SUMS, APIS, FAULTS, MACHINE, ACTIVITY})  # kinds of samples that change what a tally tells
_MOST_ROWS = 16_384  # of one table; a table of calls holds no more either


@dataclass(slots=True)
class ThreadSums:
    """Sums slices thread by thread; a thread's life runs from its first record to its exit or the end."""

    sums: dict[int, ThreadTick] = field(default_factory=dict)
    born: dict[int, int] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)
    counted: dict[int, ThreadTick] = field(default_factory=dict)  # without eBPF, instead of slices
    counters: Counters | None = None

    def add(self, records: Records) -> None:
        """Takes slices, births and exits out of a batch."""
        kinds = records["kind"]
        off = kinds == np.uint8(Kind.OFFCPU)
        if off.any():
            for tid, part in slice_sums([select(records, off)], 0).items():
                self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)
        life = (kinds >= np.uint8(Kind.FORK)) & (kinds <= np.uint8(Kind.JOIN))
        if life.any():
            # a job may fork hundreds of times a second: as plain numbers, rows take a tenth of the time
            for kind, pid, tid, at in select(records, life)[[*_LIFE]].tolist():
                if kind == _EXITED:
                    self.died[tid] = at
                else:
                    self.born.setdefault(tid, at)
                    # a thread that is not the leader and calls exec takes over the dead leader's number
                    self.died.pop(tid, None)
                    if tid not in self.sums:
                        self.sums[tid] = ThreadTick(pid)

    def count(self, counters: Counters) -> None:
        """Takes a reading of the kernel's counters; readings need the one before, so they do not merge."""
        add_up(self.counted, counters.growth(self.counters, whole=True))
        self.counters = counters

    def merge(self, later: ThreadSums) -> None:
        """Takes in what came next."""
        for tid, part in later.sums.items():
            self.sums.setdefault(tid, ThreadTick(part.pid)).add(part)
        for tid, at in later.born.items():
            self.born.setdefault(tid, at)
            self.died.pop(tid, None)
        self.died.update(later.died)

    def finish(
        self, span_of: Callable[[int], tuple[int, int]], still_open: OpenThreads
    ) -> dict[int, ThreadTick]:
        """The sums with the slices that are open at the end, and each thread's life filled in.

        Args:
            span_of: From when to when a process was recorded.
            still_open: Threads at the end.
        """
        found: dict[int, ThreadTick] = {}
        for tid, part in self.sums.items():
            found[tid] = ThreadTick(part.pid)
            found[tid].add(part)
        rows = zip(still_open.tid, still_open.off_since, still_open.queued_since, strict=True)
        for tid, off, queued in rows:
            thread = found.get(tid)
            end_ns = span_of(thread.pid)[1] if thread is not None else 0
            if thread is not None and off and off < end_ns:
                waiting = queued if queued and queued < end_ns else end_ns
                thread.runnable += end_ns - waiting
                thread.blocked += waiting - off
        for tid, thread in found.items():
            start_ns, end_ns = span_of(thread.pid)
            thread.lived = self.died.get(tid, end_ns) - self.born.get(tid, start_ns)
        return found | {tid: settled(thread) for tid, thread in self.counted.items()}


class Tally:
    """What a stretch of a recording adds up to.

    Attributes:
        mark: The newest mark, None before the first.
        facts: Who is who, as far as it took that in.
    """

    def __init__(self) -> None:
        self.events = 0
        self.table, self.totals = CallTable(), RowSums.zeros(0)
        self.threads = ThreadSums()
        self.failed = FailedCalls()
        self.kernels = KernelCounts()
        self.gpu_work = WorkSums()
        self.fill: int | None = None  # see gputop/engine/gpus/nvml_rows.py
        self.lines: Sums = {}
        self.waits: Sums = {}
        self.faults: FaultCounts = {}
        self.stays = StaySums()
        self.disk, self.file_names = DiskWaits(), FileNames()
        self.machine: dict[str, int] = {}
        self.mark: Sample | None = None
        self.still_open = OpenThreads()
        self.facts = Facts()
        self._callers = Callers()
        self._called: set[int] = set()

    def take(self, item: Item) -> None:
        """Takes one item in."""
        if not isinstance(item, Sample):
            self._records(item)
        elif item.kind == MARK:
            self.mark = item
        elif (threads := told(item, OPEN)) is not None:
            self.still_open = OpenThreads.from_sample(threads, ended=True)
            self.stays.open(threads.get("tid", ()), threads.get("flags", ()))
        elif item.kind == SUMS:
            self.merge({"stays": None, "disk": None, **item.data})
        elif (faults := told(item, FAULTS)) is not None:
            add_faults(self.faults, faults)
        elif (machine := told(item, MACHINE)) is not None:
            add_machine(self.machine, machine)
        elif (activities := told(item, ACTIVITY)) is not None:
            self.gpu_work.take(activities)
        elif item.kind == GPUS:
            self.fill = smaller(self.fill, fill_of(item))
        elif item.kind == COUNTERS:
            self.threads.count(Counters.from_sample(item))
        elif (files := told(item, FILES)) is not None:
            self.disk.tell(item.time_ns, files)
            self.file_names.take(item.time_ns, files)
        else:
            self.facts.take(item)
            if item.kind == APIS:
                self.kernels.name(str(row[0]) for row in item.data.get("rows", ()))

    def know(self, fact: Sample) -> None:
        """Takes a fact in for names only: the sums that it belongs to are merged."""
        if (files := told(fact, FILES)) is not None:
            self.file_names.take(fact.time_ns, files)
        else:
            self.take(fact)

    def _records(self, records: Records) -> None:
        self.events += len(records)
        called = records["kind"] == np.uint8(Kind.CALL)
        if called.any():  # a shell that forks makes none
            self._calls(select(records, called))
        add(self.waits, waits_of(records))
        self.threads.add(records)
        self.stays.add(records)
        self.disk.add(records)

    def _calls(self, calls: Records) -> None:
        self.table.add(calls, self.totals)
        add(self.lines, sums_of(calls))
        self.failed.add(calls)
        self.kernels.add(calls)
        self._callers.add(calls["tid"])

    @property
    def size_bytes(self) -> int:
        """At least so many bytes are told of threads, lines and waits, of which there may be ever more."""
        lives = len(self.threads.born) + len(self.threads.died)
        origins = len(self.lines) + len(self.waits) + len(self.faults)
        origins += len(self.kernels.sums.counts) + 2 * len(self.kernels.sums.shapes)
        return 8 * ((2 + len(_SWITCHES)) * len(self.threads.sums) + 2 * lives + 3 * origins)

    @property
    def callers(self) -> frozenset[int]:
        """Threads that made a call."""
        self._called |= self._callers.take()
        return frozenset(self._called)

    def __getstate__(self) -> dict[str, Any]:
        return self.told()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.merge(state)

    def told(self) -> dict[str, Any]:
        """The sums as plain data, without facts: for a file, or another process."""
        calls = CallSums()
        calls.absorb(self.table, self.totals)
        threads = self.threads.sums
        return {
            "version": VERSION,
            "events": self.events,
            **calls.told(),
            "threads": packed(
                [(tid, one.pid, *(getattr(one, name) for name in _SWITCHES)) for tid, one in threads.items()]
            ),
            "born": packed(list(self.threads.born.items())),
            "died": packed(list(self.threads.died.items())),
            "lines": _packed_sums(self.lines),
            "waits": _packed_sums(self.waits),
            "callers": packed([(tid,) for tid in sorted(self.callers)]),
            "failed": self.failed.told(),
            **packed_kernels(self.kernels.sums),
            "fill": self.fill,
            "gpu_work": self.gpu_work.told(),
            "faults": packed([*rows_of(self.faults)]),
            "machine": dict(self.machine),
            "stays": packed(self.stays.rows()) if self.stays.known else None,
            "disk": packed(self.disk.rows()) if self.disk.known else None,
            "files": packed(self.disk.told()),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Takes in what the stretch that came next told.

        Raises:
            ValueError: It is no such data, or more than there can be.
        """
        if data.get("version") != VERSION:
            raise ValueError("sums of another version")
        self.events += int(data["events"])
        merge_calls(self.table, self.totals, data)
        threads = ThreadSums(
            {tid: ThreadTick(pid, 0, *rest) for tid, pid, *rest in unpacked(data, "threads", 6)},
            dict(pairs_of(data, "born")),
            dict(pairs_of(data, "died")),
        )
        self.threads.merge(threads)
        add(self.lines, told_sums(data, "lines"))
        add(self.waits, told_sums(data, "waits"))
        self._called |= told_callers(data)
        if "kernels" in data:
            self.kernels.sums.add(told_kernels(data))
        if isinstance(fill := data.get("fill"), int):
            self.fill = smaller(self.fill, fill)
        self.gpu_work.merge(data.get("gpu_work", ()))
        if "faults" in data:
            add_rows(self.faults, ((row[0], row[1], row[2], row[3]) for row in unpacked(data, "faults", 4)))
        if isinstance(machine := data.get("machine"), Mapping):
            add_machine(self.machine, machine)
        if "stays" in data:
            self._merge_stays(data)
        elif unpacked(data, "threads", 6):
            raise ValueError("stays off the CPU were not told by the gputop that wrote these sums")
        self.disk.merge_told(data)
        if "failed" in data:
            self.failed.merge(data["failed"])
        elif any(row[3 + TOTALS.index("errors")] for row in unpacked(data, "calls", 3 + len(TOTALS))):
            raise ValueError("which calls failed was not told by the gputop that wrote these sums")

    def _merge_stays(self, data: Mapping[str, Any]) -> None:
        """None: of records that nobody has, by a gputop that did not add them up."""
        if data["stays"] is None:
            self.stays.known = False
        else:
            self.stays.merge(unpacked(data, "stays", WIDTH))


def merge_calls(
    table: CallTable, totals: RowSums, data: Mapping[str, Any]
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Takes the calls that ``Tally.told`` told into a table; (places in its counts, what was added there).

    Raises:
        ValueError: It is no such data, or more than there can be.
    """
    rows = unpacked(data, "calls", 3 + len(TOTALS))
    if not 0 < len(rows) <= _MOST_ROWS:
        raise ValueError("calls of more functions than there can be")
    buckets = np.cumsum(np.frombuffer(data["buckets"], "<u4").astype(np.int64))
    counts = np.frombuffer(data["counts"], "<u4")
    if len(buckets) != len(counts) or (len(buckets) and int(buckets[-1]) >= len(rows) * BUCKETS):
        raise ValueError("histograms of other calls")
    keys = [None, *((pid, op & (MAX_ROWS - 1), bool(nested)) for pid, op, nested, *_ in rows[1:])]
    mine = table.rows_for(keys)
    totals.grow(table.rows)
    place = mine[buckets // BUCKETS] * BUCKETS + buckets % BUCKETS
    added = counts.astype(np.int32)
    np.add.at(table.counts.reshape(-1), place, added)
    for column, name in enumerate(TOTALS, 3):
        values = np.array([row[column] for row in rows], np.int64)
        into = getattr(totals, name)
        (np.maximum if name == "max_ns" else np.add).at(into, mine, values)
    return place, added


def told_sums(data: Mapping[str, Any], name: str) -> Sums:
    """``lines`` or ``waits`` as ``Tally.told`` told them.

    Raises:
        ValueError: They are not there, or too many.
    """
    return {
        (pid, second, stack % 2**64): (count, ns) for pid, second, stack, count, ns in unpacked(data, name, 5)
    }


def told_kernels(data: Mapping[str, Any]) -> Launched:
    """Launches by kernel, as ``Tally.told`` told them; an older one told no shapes.

    Raises:
        ValueError: They are too many.
    """
    shapes = unpacked(data, "shapes", 4) if "shapes" in data else []
    return Launched(
        {(pid, handle % 2**64): count for pid, handle, count in unpacked(data, "kernels", 3)},
        {(pid, handle % 2**64, shape): count for pid, handle, shape, count in shapes},
    )


def told_callers(data: Mapping[str, Any]) -> set[int]:
    """The threads that made a call, as ``Tally.told`` told them."""
    return {tid for (tid,) in unpacked(data, "callers", 1)}


def told_states(data: Mapping[str, Any]) -> dict[int, ThreadTick]:
    """Of a sample ``sums`` what each thread did in its tick."""
    return {tid: ThreadTick(pid, *rest) for tid, pid, *rest in unpacked(data, "states", 2 + len(STATES))}


def tally(items: Iterable[Item]) -> Tally:
    """The sums of some items."""
    made = Tally()
    for item in items:
        made.take(item)
    return made


def _packed_sums(sums: Sums) -> bytes:
    return packed(
        [(pid, second, signed(stack), count, ns) for (pid, second, stack), (count, ns) in sums.items()]
    )


def packed_kernels(launched: Launched) -> dict[str, bytes]:
    """Launches by kernel, for ``told_kernels``."""
    counts, shapes = launched.counts.items(), launched.shapes.items()
    return {
        "kernels": packed([(pid, signed(handle), n) for (pid, handle), n in counts]),
        "shapes": packed([(pid, signed(handle), shape, n) for (pid, handle, shape), n in shapes]),
    }


# Sums that go to the end of a file, so that who opens it need not add it up, in as much room as there is.

_GATHERED: Final = 4096  # records: adding up a few takes as long as adding up thousands
_MOST_DENSE: Final = 512  # rows of calls, 5 MB, before they are packed
_FEW_PROCESSES: Final = 64


class FileSums:
    """Adds up what is written; see ``replay.writer.Sums``."""

    def __init__(self) -> None:
        self._tally: Tally | None = Tally()
        self._calls = CallSums()
        self._waiting: list[Records] = []
        self._rows = 0

    def take(self, item: Item) -> None:
        """Takes one item in; an array may be reused by the caller afterwards."""
        if self._tally is None:
            return
        if not isinstance(item, Sample):
            self._waiting.append(item.copy())
            self._rows += len(item)
            if self._rows >= _GATHERED:
                self._add_up(self._tally)
        elif item.kind == GPUS:
            self._tally.take(item)  # adds to no sum of records
        elif item.kind in ADDED:
            self._add_up(self._tally)
            self._tally.take(item)
        elif (files := told(item, FILES)) is not None:
            self._add_up(self._tally)
            self._tally.disk.tell(item.time_ns, files)

    def told(self) -> dict[str, Any] | None:
        """The sums, as plain data; None when they are more than fits into a file."""
        if self._tally is not None:
            self._add_up(self._tally)
        if self._tally is None:
            return None
        self._pack(self._tally)
        return {**self._tally.told(), **self._calls.told()}

    def _add_up(self, tally: Tally) -> None:
        if self._waiting:
            gathered = join(self._waiting)
            self._waiting, self._rows = [], 0
            many = (
                len(distinct(gathered["pid"])) > _FEW_PROCESSES
            )  # then most records have a row of their own
            at_once = _MOST_DENSE // 2 if many else max(len(gathered), 1)
            for start in range(0, len(gathered), at_once):
                tally.take(gathered[start : start + at_once])
                if tally.table.rows > _MOST_DENSE:
                    self._pack(tally)
        if tally.size_bytes + self._calls.size_bytes > MAX_SAMPLE_BYTES:
            self._tally, self._calls = None, CallSums()

    def _pack(self, tally: Tally) -> None:
        self._calls.absorb(tally.table, tally.totals)
        tally.table, tally.totals = CallTable(), RowSums.zeros(0)
