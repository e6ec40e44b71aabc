"""on-CPU + runnable + blocked = the time a thread lived in the tick; nothing is counted twice."""

from __future__ import annotations

from gputop.engine.accumulator import Accumulator
from gputop.engine.threads.switches import OpenThreads, TickThreads
from probes.schema import Kind, OffFlag, Records
from tests.items import MS, START, event, joined, off

TICK = 250 * MS


def opened(*rows: tuple[int, int, int]) -> OpenThreads:
    """(tid, off since, queued since) of each thread."""
    zeros = [0] * len(rows)
    return OpenThreads([10] * len(rows), *(list(column) for column in zip(*rows, strict=True)), zeros, zeros)  # type: ignore[arg-type]


def tick_of(*records: Records, since_ns: int = START) -> TickThreads:
    """The sums of a tick of these records."""
    tick = TickThreads(since_ns)
    every = Accumulator(tick)
    for batch in records:
        every.add(batch)
    every.settle()
    return tick


def test_closed_slices_are_split_into_blocked_and_runnable() -> None:
    threads = tick_of(
        joined([off(START + 50 * MS, 20 * MS, 5 * MS), off(START + 90 * MS, 0, 8 * MS, involuntary=1)])
    ).close(START + TICK, opened((10, 0, 0)), frozenset({10}))
    thread = threads[10]
    assert (thread.blocked, thread.runnable) == (20 * MS, 13 * MS)
    assert (thread.voluntary, thread.involuntary) == (1, 1)
    assert thread.on_cpu + thread.runnable + thread.blocked == TICK


def test_a_slice_across_marks_counts_in_each_tick_its_own_part() -> None:
    threads = tick_of().close(START + TICK, opened((10, START + 200 * MS, 0)), frozenset({10}))
    assert (threads[10].blocked, threads[10].on_cpu) == (50 * MS, 200 * MS)
    threads = tick_of(off(START + TICK + 100 * MS, 140 * MS, 10 * MS), since_ns=START + TICK).close(
        START + 2 * TICK, opened((10, 0, 0)), frozenset({10})
    )
    assert (threads[10].blocked, threads[10].runnable) == (90 * MS, 10 * MS)
    assert threads[10].on_cpu == 150 * MS


def test_a_queued_thread_counts_as_runnable_before_it_is_back() -> None:
    threads = tick_of().close(START + TICK, opened((10, START + 100 * MS, START + 150 * MS)), frozenset({10}))
    assert (threads[10].blocked, threads[10].runnable) == (50 * MS, 100 * MS)


def test_a_thread_lives_from_its_birth_to_its_exit() -> None:
    threads = tick_of(
        joined([event(Kind.FORK, START + 50 * MS, tid=11), event(Kind.EXIT, START + 90 * MS, tid=11)])
    ).close(START + TICK, opened((10, 0, 0)), frozenset({10}))
    assert threads[11].lived == 40 * MS
    assert threads[10].lived == TICK


def test_the_first_wait_of_a_new_thread_is_no_switch() -> None:
    threads = tick_of(
        event(Kind.FORK, START + 10 * MS, tid=11),
        off(START + 12 * MS, 0, 2 * MS, tid=11, flags=OffFlag.BIRTH),
    ).close(START + TICK, opened((11, 0, 0)), frozenset())
    thread = threads[11]
    assert (thread.voluntary, thread.involuntary, thread.runnable) == (0, 0, 2 * MS)
    assert thread.lived == TICK - 10 * MS


def test_an_exec_is_no_birth_of_a_thread_that_was_alive() -> None:
    threads = tick_of(event(Kind.EXEC, START + 50 * MS)).close(
        START + TICK, opened((10, 0, 0)), frozenset({10})
    )
    assert threads[10].lived == TICK


def test_slices_after_a_lost_exit_are_kept() -> None:
    threads = tick_of(off(START + 50 * MS, 20 * MS, 0, tid=99)).close(
        START + TICK, opened((10, 0, 0)), frozenset({10})
    )
    assert threads[99].blocked == 20 * MS
