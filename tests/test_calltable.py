"""Counts by (process, API, nested) equal a count by hand, also after events leave the window."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from gputop.engine.calls.calltable import CallTable, CallWindow, RowSums
from probes.schema import CallFlag, Kind, Records, empty, select


def batch(seed: int, count: int, pids: int = 5) -> Records:
    random = np.random.default_rng(seed)
    records = empty(count)
    records["kind"] = random.choice([Kind.CALL, Kind.OFFCPU], count, p=[0.8, 0.2])
    records["pid"] = random.integers(1, pids + 1, count)
    records["op"] = random.choice([0, 7, 150, 1023], count)
    records["flags"] = random.choice([0, CallFlag.NESTED, CallFlag.COUNTERS | CallFlag.NESTED], count)
    records["duration"] = random.lognormal(9, 3, count).astype(np.uint64)
    records["bytes"] = random.choice([0, 4096], count)
    records["ret"] = random.choice([0, 600, 2], count)
    return records


def calls_of(records: Records) -> Records:
    return select(records, records["kind"] == Kind.CALL)


def by_hand(records: Records) -> dict[tuple[int, int, bool], tuple[int, int, int, int, int]]:
    found: dict[tuple[int, int, bool], list[tuple[int, int, int]]] = defaultdict(list)
    for row in records:
        if row["kind"] == Kind.CALL:
            key = (int(row["pid"]), int(row["op"]), bool(row["flags"] & CallFlag.NESTED))
            found[key].append((int(row["duration"]), int(row["bytes"]), int(row["ret"])))
    return {
        key: (
            len(calls),
            sum(call[0] for call in calls),
            max(call[0] for call in calls),
            sum(call[1] for call in calls if call[2] in (0, 600)),  # a failed call moves nothing
            sum(call[2] not in (0, 600) for call in calls),
        )
        for key, calls in found.items()
    }


def as_dict(table: CallTable, totals: RowSums) -> dict[tuple[int, int, bool], tuple[int, int, int, int, int]]:
    totals.grow(table.rows)
    return {
        key: tuple(
            int(column[row])
            for column in (totals.count, totals.sum_ns, totals.max_ns, totals.bytes, totals.errors)
        )  # type: ignore[misc]
        for row, key in enumerate(table.keys)
        if key is not None and totals.count[row]
    }


def test_totals_equal_a_count_by_hand() -> None:
    table, totals = CallTable(), RowSums.zeros(0)
    batches = [batch(seed, 700) for seed in range(4)]
    for records in batches:
        table.add(calls_of(records), totals)
    assert as_dict(table, totals) == by_hand(np.concatenate(batches))


def test_histogram_rows_hold_every_call_once() -> None:
    table, totals = CallTable(), RowSums.zeros(0)
    records = batch(1, 1000)
    table.add(calls_of(records), totals)
    counts = Counter({key: values[0] for key, values in by_hand(records).items()})
    for row, key in enumerate(table.keys):
        if key is not None:
            assert int(table.counts[row].sum()) == counts[key]


def test_window_holds_only_its_ticks() -> None:
    window = CallWindow()
    batches = [batch(seed, 300) for seed in range(6)]
    for records in batches:
        window.add_calls(calls_of(records))
        window.close_tick(keep=2)
    assert as_dict(window.table, window.totals()) == by_hand(np.concatenate(batches[-2:]))


def test_rows_of_ended_processes_are_used_again() -> None:
    window = CallWindow()
    for generation in range(50):
        records = batch(generation, 200)
        records["pid"] += 1000 * generation
        window.add_calls(calls_of(records))
        window.close_tick(keep=1)
    # 5 processes, 4 functions, nested or not: 40 rows a generation, at most two generations at once
    assert window.table.rows <= 128
    window.close_tick(keep=1)
    assert not window.table.counts.any()


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_batches(count: int) -> None:
    window = CallWindow()
    window.add_calls(calls_of(batch(3, count)))
    window.close_tick(keep=1)
    assert sum(window.totals().count) <= count
