"""What a recorder adds up for the end of its file is what is in the file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gputop.engine.tally import FileSums, Tally
from probes.schema import empty
from probes.source import FAULTS, MACHINE, Item, Sample
from replay.reader import SessionReader
from tests import items
from tests.each_recording import FILES
from tests.items import START

TOTALS = ("count", "errors", "bytes", "sum_ns", "max_ns")
CHUNK = 700  # records that are given at once


@pytest.mark.parametrize("file", FILES)
def test_the_sums_are_those_of_all_items_of_a_recording(file: Path) -> None:
    whole, sums, buffer = Tally(), FileSums(), empty(CHUNK)
    with closing(SessionReader(file)) as reader:
        for item in reader.items():
            whole.consume(item)
            if isinstance(item, Sample):
                sums.consume(item)
                continue
            for start in range(0, len(item), CHUNK):
                part = item[start : start + CHUNK]
                buffer[: len(part)] = part
                sums.consume(buffer[: len(part)])
                buffer["pid"] = 0  # whoever gave it uses it again
    assert whole.events
    told, again = sums.payload(), Tally()
    assert told is not None
    again.merge(told)
    assert summed(again) == summed(whole)


def test_samples_that_change_what_is_reported_are_added_up_between_the_records() -> None:
    faults = {"pid": [10, 10], "tid": [0, 10], "minor": [5, 3], "major": [1, 0]}
    stream: list[Item] = [
        items.apis(),
        items.process(10),
        items.call(START + 5, 3, "cudaMalloc", bytes=64),
        Sample(FAULTS, START + 6, faults),
        Sample(MACHINE, START + 7, {"steal_ns": 7, "tcp_retransmits": 2}),
        items.call(START + 9, 2, "cudaMalloc", bytes=64),
        Sample(FAULTS, START + 10, faults),
        Sample(MACHINE, START + 11, {"steal_ns": 1}),
        items.mark(1, START + 20),
    ]
    whole, sums = Tally(), FileSums()
    for item in stream:
        whole.consume(item)
        sums.consume(item)
    assert sums.payload() == whole.payload()
    assert whole.faults.sums
    assert whole.machine.sums == {"steal_ns": 8, "tcp_retransmits": 2}


def summed(tally: Tally) -> tuple[object, ...]:
    """What a tally adds up; neither threads nor lines have an order."""
    threads, calls, payload = tally.threads, tally.calls, tally.payload()
    sums = {tid: (one.pid, one.runnable, one.blocked) for tid, one in threads.sums.items()}
    counted = {
        key: (calls.table.counts[row].tolist(), *(int(getattr(calls.totals, name)[row]) for name in TOTALS))
        for row, key in enumerate(calls.table.keys)
    }
    others = (
        tally.lines.lines,
        tally.lines.waits,
        tally.callers.tids,
        tally.kernels.sums,
        tally.fill,
        tally.faults.sums,
        payload["failed"],
    )
    stays = {row[0]: row[1:] for row in tally.stays.rows()}
    return tally.events, sums, threads.born, threads.died, counted, stays, *others


def test_records_of_which_none_came_add_up_to_nothing() -> None:
    sums = FileSums()
    sums.consume(empty(0))
    assert sums.payload() == FileSums().payload()
