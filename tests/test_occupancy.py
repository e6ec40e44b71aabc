"""Queue waits are handed to whoever had the CPU, nanosecond by nanosecond."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.engine.threads.occupancy import OccupancyWindow
from probes.schema import Kind
from tests.items import START, event, joined, off

# on-CPU slices of one CPU: lengths of who follows whom; tid 0 is the idle task
ON_CPU = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=20)
WAITS = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), max_size=10)


def matched(records: list, keep: int = 4) -> dict[tuple[int, int, int], int]:
    window = OccupancyWindow()
    window.add(joined(records))
    return window.close_tick(keep)


@given(ON_CPU, ON_CPU, WAITS, st.integers(0, 1))
@pytest.mark.slow
def test_overlaps_equal_a_count_by_nanosecond(on_cpu0: list, on_cpu1: list, waits: list, cpu: int) -> None:
    records, owner = [], {}
    for number, on_cpu in ((0, on_cpu0), (1, on_cpu1)):
        now = START
        for length, tid in on_cpu:
            owner |= {(number, ns): tid for ns in range(now, now + length)}
            now += length
            records.append(event(Kind.OCCUPANT, now, pid=tid, tid=tid, duration=length, cpu=number))
    truth: Counter[tuple[int, int, int]] = Counter()
    for row, (begin, length) in enumerate(waits):
        waiter = 100 + row
        records.append(off(START + begin + length, 0, length, tid=waiter, queue_cpu=cpu))
        for ns in range(START + begin, START + begin + length):
            if (cpu, ns) in owner:
                truth[waiter, owner[cpu, ns], owner[cpu, ns]] += 1
    assert matched(records) == dict(truth)


def test_a_wait_that_moves_to_another_cpu_is_cut_there() -> None:
    records = [
        event(Kind.OCCUPANT, START + 100, pid=1, tid=1, duration=100, cpu=0),
        event(Kind.OCCUPANT, START + 100, pid=2, tid=2, duration=100, cpu=1),
        event(Kind.MIGRATE, START + 30, tid=50, queue_cpu=1),
        off(START + 90, 0, 80, tid=50, queue_cpu=0),
    ]
    assert matched(records) == {(50, 1, 1): 20, (50, 2, 2): 60}


def test_a_move_at_the_very_end_of_a_wait_hands_nothing_to_who_has_the_other_cpu() -> None:
    records = [
        event(Kind.OCCUPANT, START + 100, pid=1, tid=1, duration=100, cpu=0),
        event(Kind.OCCUPANT, START + 100, pid=2, tid=2, duration=100, cpu=1),
        event(Kind.MIGRATE, START + 90, tid=50, queue_cpu=1),
        off(START + 90, 0, 80, tid=50, queue_cpu=0),
    ]
    assert matched(records) == {(50, 1, 1): 80}


def test_moves_of_other_threads_and_times_do_not_cut() -> None:
    records = [
        event(Kind.OCCUPANT, START + 100, pid=1, tid=1, duration=100, cpu=0),
        event(Kind.MIGRATE, START + 30, tid=51, queue_cpu=1),
        event(Kind.MIGRATE, START + 95, tid=50, queue_cpu=1),
        off(START + 90, 0, 80, tid=50, queue_cpu=0),
    ]
    assert matched(records) == {(50, 1, 1): 80}


def test_a_long_wait_finds_the_on_cpu_slices_of_earlier_ticks() -> None:
    window = OccupancyWindow()
    window.add(event(Kind.OCCUPANT, START + 100, pid=1, tid=1, duration=100, cpu=0))
    assert window.close_tick(4) == {}
    window.add(joined([event(Kind.OCCUPANT, START + 150, pid=2, tid=2, duration=50, cpu=0)]))
    window.add(off(START + 150, 0, 150, tid=50))
    assert window.close_tick(4) == {(50, 1, 1): 100, (50, 2, 2): 50}
