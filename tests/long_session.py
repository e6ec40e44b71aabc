"""A recording that goes on: the middle of a real one again and again, each round later than the one before.

``python -m tests.long_session RECORDING OUT CALLS`` writes one with at least so many calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from probes.schema import Kind, Records
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter

_FACTS = frozenset({"apis", "process", "client", "names", "files", "frames", "note", "problem"})
_TIMES = {"open": ("off_since", "queued_since", "call_since"), "places": ("time",)}
EDGE_MARKS = 2  # at each end: start-up and wind-down happen once


def later(sample: Sample, ns: int) -> Sample:
    """The sample, so much later: times that it tells as well."""
    data: dict[str, Any] = dict(sample.data)
    for name in _TIMES.get(sample.kind, ()):
        data[name] = [value + ns if value else 0 for value in data.get(name, ())]
    if sample.kind == "gpus":
        data["gpus"] = [
            {
                **gpu,
                "utilization_samples": [[at + ns, share] for at, share in gpu["utilization_samples"] or ()],
            }
            if "utilization_samples" in gpu
            else gpu
            for gpu in data.get("gpus", ())
        ]
    return Sample(sample.kind, sample.time_ns + ns, data)


class Rounds:
    """The beginning of a recording once, its middle as often as is asked for, its end once.

    Attributes:
        header: Of the recording.
        calls: Calls yielded so far.
        events: Records yielded so far.
    """

    def __init__(self, path: Path) -> None:
        """Read the recording, which must be short."""
        reader = SessionReader(path)
        self.header, count = reader.header, len(reader.marks)
        self._head = list(reader.items_between(-1, EDGE_MARKS))
        self._middle = list(reader.items_between(EDGE_MARKS, count - 1 - EDGE_MARKS))
        self._tail = list(reader.items_between(count - 1 - EDGE_MARKS, count))
        self._period = int(reader.marks[count - 1 - EDGE_MARKS] - reader.marks[EDGE_MARKS])
        reader.close()
        self._numbers = np.zeros(1 << 16, np.uint32)
        self._first: dict[int, int] = {}
        self.calls = self.events = 0

    def items(self, calls: int) -> Iterator[Item]:
        """At least so many calls."""
        yield from map(self._counted, self._head)
        turn = 0
        while self.calls < calls:
            for item in self._middle:
                if turn and isinstance(item, Sample) and item.kind in _FACTS:
                    continue
                yield self._counted(self._moved(item, turn * self._period))
            turn += 1
        for item in self._tail:
            yield self._counted(self._moved(item, (turn - 1) * self._period))

    def _moved(self, item: Item, ns: int) -> Item:
        if isinstance(item, Sample):
            return later(item, ns)
        records = item.copy()
        records["t_end"] += np.uint64(ns)
        return records

    def _counted(self, item: Item) -> Item:
        """The item, its records numbered on: none is lost."""
        if isinstance(item, Sample):
            return item
        self.events += len(item)
        self.calls += int(np.count_nonzero(item["kind"] == Kind.CALL))
        return self._numbered(item)

    def _numbered(self, records: Records) -> Records:
        records = records.copy()
        for cpu in np.unique(records["cpu"]).tolist():
            mine = np.flatnonzero(records["cpu"] == cpu)
            first = self._first.setdefault(cpu, int(records["seq"][mine[0]]))
            base = int(self._numbers[cpu]) or first
            records["seq"][mine] = (base + np.arange(len(mine))).astype(np.uint32)
            self._numbers[cpu] = base + len(mine)
        return records


def write(recording: Path, path: Path, calls: int, **options: Any) -> Rounds:
    """Write one with at least so many calls; returns what it counted.

    Args:
        recording: The real one.
        path: The new one.
        calls: How many.
        options: Of ``SessionWriter``.
    """
    rounds = Rounds(recording)
    writer = SessionWriter(path, rounds.header, **options)
    number = 0
    for item in rounds.items(calls):
        if isinstance(item, Sample) and item.kind == MARK:
            number += 1
            item = Sample(MARK, item.time_ns, {**item.data, "number": number})
        writer.write(item)
    writer.close()
    return rounds


if __name__ == "__main__":
    made = write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(f"{made.calls} calls, {made.events} events\n")
