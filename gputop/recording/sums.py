"""A tick whose records are not written: its sums and histograms, in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from gputop.engine.cuda_errors import NOT_READY
from gputop.engine.switches import OpenThreads, SwitchTick
from gputop.engine.tally import STATES, Tally, packed
from probes import api
from probes.samples import told
from probes.schema import Kind, Records, select
from probes.source import MARK, OPEN, SUMS, Item, Sample

# few, and what is known of threads and of memory rests on them
_WRITTEN = np.zeros(256, np.bool_)
_WRITTEN[[Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.JOIN, Kind.NAME]] = True
_OF_MEMORY = np.array([*(row.memory not in ("", "room") for row in api.BY_OP), False])


class Reducer:
    """Makes of whole ticks what is written of them; each tick ends with its mark."""

    def __init__(self, start_ns: int) -> None:
        """Start before the first tick."""
        self._since_ns = start_ns
        self._alive: frozenset[int] = frozenset()

    def whole(self, items: Iterable[Item]) -> Iterator[Item]:
        """A tick as it is."""
        for item in items:
            self._follow(item)
            yield item

    def reduced(self, items: Iterable[Item]) -> Iterator[Item]:
        """A tick with its sums in place of its records; what ``_written`` names stays."""
        sums, switches, still_open = Tally(), SwitchTick(self._since_ns), OpenThreads()
        rest: list[Item] = []
        for item in items:
            if isinstance(item, Sample):
                rest.append(item)
                if (threads := told(item, OPEN)) is not None:
                    still_open = OpenThreads.from_sample(threads)
                continue
            switches.add(item)
            written = _written(item)
            sums.take(select(item, ~written) if written.any() else item)
            if written.any():
                rest.append(select(item, written))
        marks = [item for item in rest if isinstance(item, Sample) and item.kind == MARK]
        mark_ns = marks[0].time_ns if marks else self._since_ns
        switches.close(mark_ns, still_open, self._alive)
        states = [
            (tid, one.pid, *(getattr(one, name) for name in STATES)) for tid, one in switches.threads.items()
        ]
        added = {name: value for name, value in sums.told().items() if name != "failed"}  # those are written
        yield Sample(SUMS, mark_ns, {**added, "states": packed(states)})
        for item in rest:
            self._follow(item)
            yield item

    def _follow(self, item: Item) -> None:
        if not isinstance(item, Sample):
            return
        if (threads := told(item, OPEN)) is not None:
            self._alive = frozenset(OpenThreads.from_sample(threads).tid)
        elif item.kind == MARK:
            self._since_ns = item.time_ns


def _written(records: Records) -> npt.NDArray[np.bool_]:
    """Births, ends and names of threads; calls that take or free memory, and those that failed."""
    calls = records["kind"] == np.uint8(Kind.CALL)
    failed = (records["ret"] != 0) & (records["ret"] != NOT_READY)
    kept = calls & (failed | _OF_MEMORY.take(records["op"], mode="clip"))
    written: npt.NDArray[np.bool_] = _WRITTEN[records["kind"]] | kept
    return written


def copied(records: Records) -> Records:
    """Records that stay what they are, whatever becomes of the array that they came in."""
    same: Records = records.copy()
    return same
