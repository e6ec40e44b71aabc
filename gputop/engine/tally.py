"""Sums of a stretch of a recording that add up to those of the whole: of calls, threads, lines and waits.

A ``Tally`` consumes a stretch and merges the payload of the next one. The result does not depend on where a
recording is cut between items: sums and histograms are integers, so this is exact. Facts are no sums and do
not merge: one tally gets all of them (``know``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gputop.engine.accumulator import Accumulator
from gputop.engine.calls.calltable import CallCounts, Callers
from gputop.engine.calls.failed_calls import FailedCalls
from gputop.engine.calls.launch_counts import KernelCounts
from gputop.engine.calls.linesums import LineSums
from gputop.engine.facts import Facts
from gputop.engine.gpus.gpu_work import WorkSums
from gputop.engine.gpus.nvml_rows import fill_of, smaller
from gputop.engine.threads.counters import Counters, add_up, settled
from gputop.engine.threads.diskwaits import DiskWaits, FileNames
from gputop.engine.threads.fault_sums import FaultSums, MachineSums
from gputop.engine.threads.offcpu_stats import StaySums
from gputop.engine.threads.switches import OpenThreads, ThreadSums, ThreadTick
from probes.arrays import distinct
from probes.samples import sample_data
from probes.schema import Records, join
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

VERSION: Final = 1  # of what ``payload`` returns
_ADDED: Final = frozenset({SUMS, APIS, FAULTS, MACHINE, ACTIVITY, FILES})  # samples that parts add up


class Tally(Accumulator):
    """The sums of a stretch of a recording."""

    def __init__(self) -> None:
        self.calls, self.callers, self.failed = CallCounts(), Callers(), FailedCalls()
        self.lines, self.kernels, self.gpu_work = LineSums(), KernelCounts(), WorkSums()
        self.threads, self.stays, self.disk = ThreadSums(), StaySums(), DiskWaits()
        self.faults, self.machine = FaultSums(), MachineSums()
        super().__init__(
            self.calls, self.callers, self.failed, self.lines, self.kernels, self.gpu_work,
            self.threads, self.stays, self.disk, self.faults, self.machine,
        )  # fmt: skip
        self.fill: int | None = None  # threads that fill a GPU (gputop/engine/gpus/nvml_rows.py)
        self.file_names = FileNames()
        self.mark: Sample | None = None  # the newest mark, None before the first
        self.still_open = OpenThreads()
        self.facts = Facts()  # the metadata consumed so far
        # without eBPF: readings need the one before, so they do not merge
        self._counters: Counters | None = None
        self._counted: dict[int, ThreadTick] = {}

    def consume(self, item: Item) -> None:
        if not isinstance(item, Sample):
            self.add(item)
            self.settle()
            return
        self.add_sample(item)
        if item.kind == MARK:
            self.mark = item
        elif (threads := sample_data(item, OPEN)) is not None:
            self.still_open = OpenThreads.from_sample(threads, ended=True)
        elif item.kind == SUMS:
            self.merge({"stays": None, "disk": None, **item.data})
        elif item.kind == GPUS:
            self.fill = smaller(self.fill, fill_of(item))
        elif item.kind == COUNTERS:
            counters = Counters.from_sample(item)
            add_up(self._counted, counters.growth(self._counters, whole=True))
            self._counters = counters
        elif (files := sample_data(item, FILES)) is not None:
            self.file_names.consume(item.time_ns, files)
        else:
            self.facts.consume(item)

    def know(self, fact: Sample) -> None:
        """Consume a fact for its names only; its sums are merged."""
        if (files := sample_data(fact, FILES)) is not None:
            self.file_names.consume(fact.time_ns, files)
        else:
            self.consume(fact)

    def lived(self, span_of: Callable[[int], tuple[int, int]]) -> dict[int, ThreadTick]:
        """Return the sums of each thread; see ``ThreadSums.finish``."""
        counted = {tid: settled(thread) for tid, thread in self._counted.items()}
        return self.threads.finish(span_of, self.still_open) | counted

    @property
    def size_bytes(self) -> int:
        """Least size of calls, threads, lines and waits in ``payload``, which have no bound."""
        threads, launched = self.threads, self.kernels.sums
        origins = len(self.lines.lines) + len(self.lines.waits) + len(self.faults.sums)
        origins += len(launched.counts) + 2 * len(launched.shapes)
        lives = len(threads.born) + len(threads.died)
        return self.calls.size_bytes + 8 * (6 * len(threads.sums) + 2 * lives + 3 * origins)

    def __getstate__(self) -> dict[str, Any]:
        return self.payload()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.merge(state)

    def payload(self) -> dict[str, Any]:
        """Return the sums as plain data, without facts."""
        return {"version": VERSION, **super().payload(), "fill": self.fill}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data are invalid, or exceed a limit.
        """
        if data.get("version") != VERSION:
            raise ValueError("sums of another version")
        super().merge(data)
        if isinstance(fill := data.get("fill"), int):
            self.fill = smaller(self.fill, fill)


def tally(items: Iterable[Item]) -> Tally:
    made = Tally()
    for item in items:
        made.consume(item)
    return made


# Sums at the end of a file, within its size limit, so that readers need not compute them.

_GATHERED: Final = 4096  # records: adding up a few costs as much as adding up thousands
_MOST_DENSE: Final = 512  # rows of calls, 5 MB, before they are packed
_FEW_PROCESSES: Final = 64


class FileSums:
    """The sums of the items written to a file; see ``replay.writer.Sums``."""

    def __init__(self) -> None:
        self._tally: Tally | None = Tally()
        self._waiting: list[Records] = []
        self._rows = 0

    def consume(self, item: Item) -> None:
        """Consume one item; the caller may reuse an array afterwards."""
        if self._tally is None:
            return
        if not isinstance(item, Sample):
            self._waiting.append(item.copy())
            self._rows += len(item)
            if self._rows >= _GATHERED:
                self._add_up(self._tally)
        elif item.kind == GPUS:
            self._tally.consume(item)  # adds to no sum of records
        elif item.kind == SUMS:
            self._add_up(self._tally)
            self._tally.consume(item)
        elif item.kind in _ADDED:
            self._add_up(self._tally)
            self._tally.add_sample(item)

    def payload(self) -> dict[str, Any] | None:
        """Return the sums as plain data; None if they do not fit into a file."""
        if self._tally is not None:
            self._add_up(self._tally)
        return self._tally.payload() if self._tally is not None else None

    def _add_up(self, tally: Tally) -> None:
        if self._waiting:
            gathered = join(self._waiting)
            self._waiting, self._rows = [], 0
            # with many processes most records have a row of their own
            many = len(distinct(gathered["pid"])) > _FEW_PROCESSES
            at_once = _MOST_DENSE // 2 if many else max(len(gathered), 1)
            for start in range(0, len(gathered), at_once):
                tally.consume(gathered[start : start + at_once])
                if tally.calls.table.rows > _MOST_DENSE:
                    tally.calls.pack()
        if tally.size_bytes > MAX_SAMPLE_BYTES:
            self._tally = None
