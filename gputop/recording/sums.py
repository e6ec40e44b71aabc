"""A tick whose records are not written: its sums and histograms, in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from gputop.engine.switches import OpenThreads, SwitchTick
from gputop.engine.tally import STATES, Tally, packed
from probes.schema import Kind, Records, select
from probes.source import MARK, OPEN, SUMS, Item, Sample

# few, and what is known of threads rests on them
_WRITTEN = np.zeros(256, np.bool_)
_WRITTEN[[Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.JOIN, Kind.NAME]] = True


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
        """A tick with its sums in place of its records; births, ends and names of threads stay."""
        sums, switches, still_open = Tally(), SwitchTick(self._since_ns), OpenThreads()
        rest: list[Item] = []
        for item in items:
            if isinstance(item, Sample):
                rest.append(item)
                if item.kind == OPEN:
                    still_open = OpenThreads.from_sample(item.data)
                continue
            switches.add(item)
            written: npt.NDArray[np.bool_] = _WRITTEN[item["kind"]]
            sums.take(select(item, ~written) if written.any() else item)
            if written.any():
                rest.append(select(item, written))
        marks = [item for item in rest if isinstance(item, Sample) and item.kind == MARK]
        mark_ns = marks[0].time_ns if marks else self._since_ns
        switches.close(mark_ns, still_open, self._alive)
        states = [
            (tid, one.pid, *(getattr(one, name) for name in STATES)) for tid, one in switches.threads.items()
        ]
        yield Sample(SUMS, mark_ns, {**sums.told(), "states": packed(states)})
        for item in rest:
            self._follow(item)
            yield item

    def _follow(self, item: Item) -> None:
        if not isinstance(item, Sample):
            return
        if item.kind == OPEN:
            self._alive = frozenset(OpenThreads.from_sample(item.data).tid)
        elif item.kind == MARK:
            self._since_ns = item.time_ns


def copied(records: Records) -> Records:
    """Records that stay what they are, whatever becomes of the array that they came in."""
    same: Records = records.copy()
    return same
