"""A session at 4 Hz, as the live history is written."""

from __future__ import annotations

from collections.abc import Iterator

from probes.source import Item
from tests import items as made

TICK = made.SECOND // 4


def session(marks: int, calls: int = 3, lost: int = 0) -> Iterator[Item]:
    """A session at 4 Hz in which process 10 makes calls and new processes appear."""
    yield made.apis()
    yield made.process(10)
    yield made.names(made.START, {10: "python", 11: "worker"})
    seq = 0
    for number in range(1, marks + 1):
        now = made.START + number * TICK
        batch = [made.call(now - TICK + 1000 * (row + 1), 500) for row in range(calls)]
        for record in batch:
            seq += 1
            record["seq"] = seq
        yield made.joined(batch)
        if number % 16 == 0:
            yield made.process(100 + number, now - 5)
        yield made.gpus(now - 7, number % 100)
        yield made.still_open(now, [{"off_since": now - 1000}])
        yield made.mark(number, now, ring=lost if number > 3 else 0)
