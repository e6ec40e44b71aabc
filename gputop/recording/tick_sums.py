"""The sums and histograms of a tick, in place of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from gputop.engine.accumulator import Accumulator
from gputop.engine.calls.cuda_errors import failed
from gputop.engine.tally import Tally
from gputop.engine.threads.switches import OpenThreads, TickThreads, state_rows
from probes import api
from probes.api_semantics import Role
from probes.samples import sample_data
from probes.schema import Kind, Records, select
from probes.source import MARK, OPEN, SUMS, Item, Sample

# few, and needed for threads, memory, and the GPU of each thread
_WRITTEN = np.zeros(256, np.bool_)
_WRITTEN[[Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.JOIN, Kind.NAME, Kind.COMMUNICATOR, Kind.OOM]] = True
_ANEW = np.zeros(256, np.bool_)  # the thread number may be another thread's from here on
_ANEW[[Kind.FORK, Kind.EXEC, Kind.EXIT]] = True
_OF_MEMORY = np.array([*(row.memory not in ("", "room") for row in api.BY_OP), False])
_CHOOSES = np.array([*(row.role == Role.SET_DEVICE for row in api.BY_OP), False])
_MOST_THREADS = 1 << 16  # whose choice is remembered; then each is written again


class Reducer:
    """Turns whole ticks, which end with their mark, into the items to write."""

    def __init__(self, start_ns: int) -> None:
        self._since_ns = start_ns
        self._alive: frozenset[int] = frozenset()
        self._chosen: dict[int, int] = {}  # thread -> its last choice of a GPU

    def whole(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield a tick unchanged."""
        for item in items:
            self._follow(item)
            if not isinstance(item, Sample):
                self._other_choices(item)
            yield item

    def reduced(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield a tick with its sums in place of its records, except for those of ``_written``."""
        sums, switches, still_open = Tally(), TickThreads(self._since_ns), OpenThreads()
        every = Accumulator(switches)
        rest: list[Item] = []
        for item in items:
            if isinstance(item, Sample):
                rest.append(item)
                if (threads := sample_data(item, OPEN)) is not None:
                    still_open = OpenThreads.from_sample(threads)
                continue
            every.add(item)
            written = _written(item)
            written[self._other_choices(item)] = True
            sums.consume(select(item, ~written) if written.any() else item)
            if written.any():
                rest.append(select(item, written))
        marks = [item for item in rest if isinstance(item, Sample) and item.kind == MARK]
        mark_ns = marks[0].time_ns if marks else self._since_ns
        every.settle()
        states = state_rows(switches.close(mark_ns, still_open, self._alive))
        # failed calls are written as records
        added = {name: value for name, value in sums.payload().items() if name != "failed"}
        yield Sample(SUMS, mark_ns, {**added, "states": states, "choices": True})
        for item in rest:
            self._follow(item)
            yield item

    def _other_choices(self, records: Records) -> list[int]:
        """Rows that choose another GPU than their thread had: some programs choose before every call."""
        kinds = records["kind"]
        for tid in records["tid"][_ANEW[kinds]].tolist():
            self._chosen.pop(tid, None)
        calls = kinds == np.uint8(Kind.CALL)
        rows = np.flatnonzero(calls & (records["ret"] == 0) & _CHOOSES.take(records["op"], mode="clip"))
        if not len(rows):
            return []
        rows = rows[np.lexsort((records["t_end"][rows], records["tid"][rows]))]
        tids = records["tid"][rows].astype(np.int64)
        devices = (records["aux"][rows] & np.uint64(0xFF)).astype(np.int64)
        first = np.append(True, tids[1:] != tids[:-1])
        other = first | np.append(True, devices[1:] != devices[:-1])
        found = [
            row
            for row, tid, device, of_first in zip(
                *(column[other].tolist() for column in (rows, tids, devices, first)), strict=True
            )
            if not of_first or self._chosen.get(tid) != device
        ]
        last = np.append(first[1:], True)
        if len(self._chosen) > _MOST_THREADS:
            self._chosen.clear()
        self._chosen.update(zip(tids[last].tolist(), devices[last].tolist(), strict=True))
        return found

    def _follow(self, item: Item) -> None:
        if not isinstance(item, Sample):
            return
        if (threads := sample_data(item, OPEN)) is not None:
            self._alive = frozenset(OpenThreads.from_sample(threads).tid)
        elif item.kind == MARK:
            self._since_ns = item.time_ns


def _written(records: Records) -> npt.NDArray[np.bool_]:
    """True for births, ends and names of threads, calls that allocate or free memory, failed calls."""
    calls = records["kind"] == np.uint8(Kind.CALL)
    kept = calls & (failed(records["ret"]) | _OF_MEMORY.take(records["op"], mode="clip"))
    written: npt.NDArray[np.bool_] = _WRITTEN[records["kind"]] | kept
    return written


def copied(records: Records) -> Records:
    """Return a copy of records, whose array may be reused."""
    same: Records = records.copy()
    return same
