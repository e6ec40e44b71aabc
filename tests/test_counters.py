"""Thread rows and totals from the kernel's counters, with every number known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gputop.engine.engine import Engine
from gputop.engine.frame import Frame, ThreadRow
from gputop.engine.session_totals import ThreadTotals, collect
from probes.source import COUNTERS, Item, Sample
from tests import items
from tests.items import HEADER, MS, SECOND, START

WITHOUT_EBPF = {**HEADER, "calls_observed": False}
KEYS = ("pid", "tid", "born_ns", "state", "on_cpu_ns", "run_delay_ns", "voluntary", "involuntary")


def counters(time_ns: int, *rows: Sequence[int | str]) -> Sample:
    """What the kernel has counted of threads: (tid, born, state, on CPU, queued, voluntary, involuntary)."""
    return Sample(
        COUNTERS, time_ns, {key: [(10, *row)[place] for row in rows] for place, key in enumerate(KEYS)}
    )


def play(*stream: Item) -> Frame:
    engine = Engine(WITHOUT_EBPF)
    for item in stream:
        engine.feed(item)
    return engine.frame()


def totals(*stream: Item) -> ThreadTotals:
    (process,) = collect(WITHOUT_EBPF, stream).processes
    return process.threads[-1]


def parts(row: ThreadRow | ThreadTotals) -> tuple[int, ...]:
    """On CPU, runnable, blocked in ms; voluntary and involuntary switches."""
    times = (row.on_cpu_ns // MS, row.runnable_ns // MS, row.blocked_ns // MS)
    return (*times, row.voluntary_switches, row.involuntary_switches)


def tick(number: int, *row: int | str, first: int = 0) -> list[Sample]:
    """One thread's counters at the end of a tick of 250 ms, times in ms."""
    tid, born, state, on_cpu, queued, *switches = row
    at = START + first + number * 250 * MS
    times = (int(on_cpu) * MS, int(queued) * MS)
    return [counters(at, (tid, born, state, *times, *switches)), items.mark(number, at)]


BEFORE = counters(START, (10, 0, "S", 500 * MS, 70 * MS, 1000, 100))


def test_differences_of_counters_are_the_thread_s_row() -> None:
    stream = (BEFORE, *tick(1, 10, 0, "S", 600, 80, 1005, 103), *tick(2, 10, 0, "R", 650, 280, 1006, 109))
    frame = play(items.process(10), *stream)
    (thread,) = frame.processes[0].threads
    assert parts(thread) == (150, 210, 140, 6, 9)
    assert (frame.calls_observed, thread.state) == (False, "running")
    assert parts(totals(*stream)) == (150, 210, 140, 6, 9)


@pytest.mark.parametrize(
    ("letter", "on_cpu", "state"),
    [("R", 600, "running"), ("R", 500, "runnable"), ("S", 600, "blocked"), ("D", 600, "blocked"),
     ("Z", 600, "exited")],
)  # fmt: skip
def test_the_state_is_in_the_words_of_frames(letter: str, on_cpu: int, state: str) -> None:
    frame = play(BEFORE, *tick(1, 10, 0, letter, on_cpu, 70, 1000, 100))
    assert frame.processes[0].threads[0].state == state


def test_queue_time_that_the_kernel_adds_late_is_right_over_the_window() -> None:
    """A thread waits 300 ms; the kernel reports when it gets its CPU, in a tick of 250 ms."""
    late = (*tick(1, 10, 0, "R", 500, 70, 1000, 100), *tick(2, 10, 0, "R", 600, 370, 1000, 101))
    assert parts(play(BEFORE, *late).processes[0].threads[0]) == (100, 300, 100, 0, 1)
    # a window that holds only the second tick cannot have waited longer than it lasted
    engine = Engine(WITHOUT_EBPF, window_ns=100 * MS)
    for item in (BEFORE, *late):
        engine.feed(item)
    assert parts(engine.frame().processes[0].threads[0]) == (0, 250, 0, 0, 1)


def test_a_thread_that_was_there_before_counts_from_the_first_look() -> None:
    stream = (items.mark(0, START), *tick(1, 10, 0, "S", 5000, 70, 1000, 100))
    assert parts(play(*stream).processes[0].threads[0]) == (0, 0, 0, 0, 0)
    assert parts(totals(*stream)) == (0, 0, 0, 0, 0)


def test_a_thread_born_within_a_tick_counts_from_its_birth() -> None:
    born = START + 100 * MS
    stream = (BEFORE, *tick(1, 11, born, "S", 30, 20, 5, 1))
    assert parts(play(*stream).processes[0].threads[-1]) == (30, 20, 100, 5, 1)


def test_a_thread_found_late_counts_whole_in_totals_and_from_now_in_frames() -> None:
    born = START + 100 * MS
    stream = (BEFORE, *tick(1, 10, 0, "S", 500, 70, 1000, 100), *tick(4, 11, born, "S", 30, 20, 5, 1))
    assert parts(play(*stream).processes[0].threads[-1]) == (0, 0, 0, 0, 0)
    assert parts(totals(*stream)) == (30, 20, 850, 5, 1)


def test_a_number_that_was_given_away_begins_anew() -> None:
    stream = (BEFORE, *tick(1, 10, START + 50 * MS, "S", 10, 0, 3, 0))
    assert parts(play(*stream).processes[0].threads[0]) == (10, 0, 190, 3, 0)


def test_a_thread_that_ended_stays_for_its_window() -> None:
    other = counters(START + 500 * MS, (12, 0, "S", 0, 0, 0, 0))
    stream = (BEFORE, *tick(1, 10, 0, "S", 600, 80, 1005, 103), other, items.mark(2, START + 500 * MS))
    threads = {row.tid: row for row in play(*stream).processes[0].threads}
    assert (threads[10].state, parts(threads[10])) == ("exited", (100, 10, 140, 5, 3))


def test_a_storm_needs_no_occupants() -> None:
    stream = [BEFORE]
    for number in range(1, 9):
        stream += tick(number, 10, 0, "R", 500 + 120 * number, 70 + 120 * number, 1000, 100 + 200 * number)
    (storm,) = play(items.process(10), *stream).storms
    assert (storm.involuntary_per_second, storm.runnable_percent, storm.occupants) == (800, 48, ())


def test_columns_of_different_lengths_are_cut_to_the_shortest() -> None:
    damaged = counters(START + SECOND, (10, 0, "S", 0, 0, 0, 0), (11, 0, "S", 0, 0, 0, 0))
    damaged.data["voluntary"].pop()
    frame = play(damaged, items.mark(1, START + SECOND))
    assert [row.tid for row in frame.processes[0].threads] == [10]
