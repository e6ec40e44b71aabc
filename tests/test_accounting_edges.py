"""Edges of the accounts of CPU time: nothing below zero, nothing twice, each nanosecond to who had it."""

from __future__ import annotations

import pytest

from gputop.engine.threads.occupancy import OccupancyWindow
from gputop.engine.threads.switches import OpenThreads, ThreadTick, TickThreads, stay_sums
from probes.samples import OpenData
from probes.schema import Kind, OffFlag
from tests.items import MS, START, event, joined, off

TICK = 250 * MS


def test_a_thread_that_was_never_on_a_cpu_was_there_for_no_time() -> None:
    assert ThreadTick(1, lived=10, runnable=4, blocked=6).on_cpu == 0
    assert ThreadTick(1, lived=10, runnable=4, blocked=7).on_cpu == 0, "two clocks are read"


def test_a_thread_whose_end_was_lost_lived_as_long_as_its_stays_show() -> None:
    tick = TickThreads(START)
    tick.add_offcpu(off(START + 100 * MS, 20 * MS, 5 * MS, tid=77))
    threads = tick.close(START + TICK, OpenThreads(), frozenset())
    thread = threads[77]
    assert (thread.lived, thread.blocked, thread.runnable, thread.on_cpu) == (25 * MS, 20 * MS, 5 * MS, 0)


def test_only_the_kernels_own_word_makes_a_switch_involuntary() -> None:
    others = OffFlag.IOWAIT | OffFlag.MIGRATED | OffFlag.WAKER_IRQ | OffFlag.THROTTLED
    tick = TickThreads(START)
    tick.add_offcpu(off(START + 100 * MS, 20 * MS, 5 * MS, flags=int(others)))
    threads = tick.close(START + TICK, OpenThreads([10], [10], [0], [0], [0], [0]), frozenset({10}))
    assert (threads[10].voluntary, threads[10].involuntary) == (1, 0)


def test_a_stay_that_took_most_of_the_time_since_the_machine_started_counts_whole() -> None:
    (thread,) = stay_sums(off(100, 50, 10), since_ns=0).values()
    assert (thread.blocked, thread.runnable) == (50, 10)


def test_threads_whose_part_of_a_merged_recording_is_over_are_there_for_who_asks() -> None:
    data: OpenData = {"pid": [1, 2], "tid": [1, 2], "off_since": [0, 0], "queued_since": [0, 0]}
    data |= {"op": [-1, -1], "call_since": [0, 0], "ended": [1, 0]}
    assert OpenThreads.from_sample(data).tid == [2]
    assert OpenThreads.from_sample(data, ended=True).tid == [1, 2]


@pytest.mark.parametrize("ended", [[1], [1, 0], [1, 0, 0, 0]])
def test_open_threads_of_a_damaged_file_are_those_of_whom_all_is_known(ended: list[int]) -> None:
    data: OpenData = {"pid": [1, 2, 3], "tid": [1, 2, 3], "off_since": [0, 0, 0], "queued_since": [0, 0, 0]}
    data |= {"op": [-1, -1, -1], "call_since": [0, 0], "ended": ended}
    assert list(OpenThreads.from_sample(data).tid) == [2, 3][: min(len(ended), 2) - 1]


def test_threads_of_one_process_are_distinguished_as_who_had_the_cpu() -> None:
    window = OccupancyWindow()
    window.add(
        joined(
            [
                event(Kind.OCCUPANT, START + 60, pid=900, tid=901, duration=60, cpu=0),
                event(Kind.OCCUPANT, START + 100, pid=900, tid=933, duration=40, cpu=0),
                off(START + 100, 0, 100, tid=50, queue_cpu=0),
            ]
        )
    )
    assert window.close_tick(4) == {(50, 901, 900): 60, (50, 933, 900): 40}


def test_each_of_several_waits_is_cut_where_its_own_thread_moved() -> None:
    on_cpu = [
        event(Kind.OCCUPANT, START + 200, pid=pid, tid=pid, duration=200, cpu=pid - 1) for pid in (1, 2)
    ]
    window = OccupancyWindow()
    for tid in (50, 60, 70):
        window.add(event(Kind.MIGRATE, START + tid, tid=tid, queue_cpu=1))
        window.add(off(START + 100, 0, 90, tid=tid, queue_cpu=0))
    window.add(joined(on_cpu))
    found = window.close_tick(4)
    for tid in (50, 60, 70):
        assert found[tid, 1, 1] == tid - 10
        assert found[tid, 2, 2] == 100 - tid


def test_an_on_cpu_slice_is_remembered_for_as_many_ticks_as_requested_and_no_longer() -> None:
    for ticks, expected in ((3, {(50, 1, 1): 100}), (4, {})):
        window = OccupancyWindow()
        window.add(event(Kind.OCCUPANT, START + 100, pid=1, tid=1, duration=100, cpu=0))
        for tick in range(1, ticks + 1):
            if tick == ticks:
                window.add(off(START + 200, 0, 200, tid=50, queue_cpu=0))
            found = window.close_tick(3)
        assert found == expected
