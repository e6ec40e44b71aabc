"""Screen, totals, daemon and a recorder of sums only: each counts what is in the records, counted by hand."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gputop.engine.accumulator import Accumulator, Part
from gputop.engine.engine import Engine
from gputop.engine.session_totals import Stats, collect
from gputop.recording.tick_sums import Reducer
from gputop.serve.metrics.daemon_totals import DaemonTotals
from probes import api
from probes.schema import CallFlag, Kind, OffFlag, Records, empty, join
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from tests.each_recording import FILES

Counts = Counter[tuple[Any, ...]]


@cache
def read(file: Path) -> tuple[dict[str, Any], list[Item], Counts]:
    """Header and items of a recording, and its counts."""
    with closing(SessionReader(file)) as reader:
        header, stream = dict(reader.header), list(reader.items())
    return header, stream, by_hand(stream)


@pytest.fixture(params=FILES)
def recording(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[Item], Counts]:
    return read(request.param)


def by_hand(stream: list[Item]) -> Counts:
    """Outermost calls with their time, and switches, of each process."""
    counts: Counts = Counter()
    records = join([item for item in stream if not isinstance(item, Sample)])
    for row in records[records["kind"] == Kind.CALL]:
        if not row["flags"] & CallFlag.NESTED:
            name = api.BY_OP[row["op"]].name
            counts[int(row["pid"]), name] += 1
            counts[int(row["pid"]), name, "ns"] += int(row["duration"])
    for row in records[records["kind"] == Kind.OFFCPU]:
        if not row["flags"] & OffFlag.BIRTH:
            counts[int(row["pid"]), bool(row["flags"] & OffFlag.INVOLUNTARY)] += 1
    return +counts


def of_stats(stats: Stats) -> Counts:
    counts: Counts = Counter()
    for process in stats.processes:
        for call in process.calls:
            if not call.nested:
                counts[process.pid, call.api] += call.count
                counts[process.pid, call.api, "ns"] += call.sum_ns
        for thread in process.threads:
            counts[process.pid, False] += thread.voluntary_switches
            counts[process.pid, True] += thread.involuntary_switches
    return +counts


@pytest.mark.slow
def test_totals_and_sums_in_place_of_records_are_those_counted_by_hand(
    recording: tuple[dict[str, Any], list[Item], Counts],
) -> None:
    header, stream, expected = recording
    assert of_stats(collect(header, stream)) == expected
    reducer, less, tick = Reducer(int(header["start_ns"])), list[Item](), list[Item]()
    for item in stream:
        tick.append(item)
        if isinstance(item, Sample) and item.kind == MARK:
            less += reducer.reduced(tick)
            tick = []
    less += reducer.reduced(tick) if tick else []
    assert of_stats(collect(header, less)) == expected


@pytest.mark.slow
def test_the_daemons_counts_are_those_counted_by_hand(
    recording: tuple[dict[str, Any], list[Item], Counts],
) -> None:
    header, stream, expected = recording
    totals, counts = DaemonTotals(int(header["start_ns"])), Counter[tuple[Any, ...]]()
    for item in stream:
        totals.consume(item)
    for pid, process in totals.processes.items():
        for op, call in process.calls.items():
            counts[pid, api.BY_OP[op].name] += call.count
            counts[pid, api.BY_OP[op].name, "ns"] += call.sum_ns
        counts[pid, False] += process.threads.voluntary
        counts[pid, True] += process.threads.involuntary
    assert +counts == expected


@pytest.mark.slow
def test_the_screens_counts_over_all_ticks_are_those_counted_by_hand(
    recording: tuple[dict[str, Any], list[Item], Counts],
) -> None:
    header, stream, expected = recording
    engine, counts, rows = Engine(header, window_ns=1), Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for item in stream:
        if engine.feed(item):
            for process in engine.frame().processes:
                for call in process.calls:
                    if not call.nested:
                        counts[process.pid, call.api] += call.count
                        counts[process.pid, call.api, "ns"] += call.sum_ns
                for thread in process.threads:
                    rows[process.pid, False] += thread.voluntary_switches
                    rows[process.pid, True] += thread.involuntary_switches
    assert +counts + +rows == expected


class _Seen(Part):
    def __init__(self) -> None:
        self.kinds: list[list[int]] = []

    def add_calls(self, calls: Records) -> None:
        self.kinds.append(calls["kind"].tolist())

    add_offcpu = add_lives = add_calls


def test_each_part_has_its_records_once_and_those_held_back_when_they_are_settled() -> None:
    records, part = empty(5), _Seen()
    records["kind"] = Kind.OFFCPU, Kind.CALL, Kind.FORK, Kind.NAME, Kind.CALL
    sums = Accumulator(part)
    sums.add(records)
    assert part.kinds == [[Kind.CALL, Kind.CALL]]
    others = sums.settle()
    assert part.kinds[1:] == [[Kind.OFFCPU], [Kind.FORK]]
    assert others is not None
    assert others["kind"].tolist() == [Kind.OFFCPU, Kind.FORK, Kind.NAME]
    assert (sums.settle(), sums.events) == (None, 5)
