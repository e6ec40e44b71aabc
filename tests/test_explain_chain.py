"""Where the time of a gap goes: down the wakeup chain, every instant on one leaf."""

from __future__ import annotations

import pytest

from gputop.analysis.evidence.blocking import Wait
from probes.schema import Kind, OffFlag
from tests import items
from tests import programs as p
from tests.gap_pieces import pieces
from tests.programs import LAUNCH, MAIN, SYNC, US, Program, started

IRQ, THROTTLED, MISSED = int(OffFlag.WAKER_IRQ), int(OffFlag.THROTTLED), int(OffFlag.WAKE_MISSED)


def gap(begin: int = 1000, end: int = 21_000) -> Program:
    """One gap of the main thread."""
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 20, begin)
    program.call(LAUNCH, end, end + 10)
    return program


def test_a_thread_that_was_not_switched_ran() -> None:
    program = gap()
    program.off(5, 8)  # known since before
    assert pieces(program) == [(MAIN, "RUN", 1000, 21_000)]


def test_a_preempted_thread_was_queued() -> None:
    program = gap()
    program.preempted(5000, 9000)
    assert pieces(program) == [
        (MAIN, "RUN", 1000, 5000),
        (MAIN, "QUEUED", 5000, 9000),
        (MAIN, "RUN", 9000, 21_000),
    ]


def asleep(**more: int) -> Program:
    """The main thread sleeps from 3000 to 15000 and waits for a CPU until 16000."""
    program = gap()
    program.off(5, 8)
    program.off(3000, 16_000, 15_000, **more)
    return program


def test_a_wait_for_a_thread_is_what_that_thread_did() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.off(6, 7, tid=11)
    program.preempted(4000, 5000, tid=11)
    assert pieces(program) == [
        (MAIN, "RUN", 1000, 3000),
        (11, "RUN", 3000, 4000),
        (11, "QUEUED", 4000, 5000),
        (11, "RUN", 5000, 15_000),
        (MAIN, "QUEUED", 15_000, 16_000),
        (MAIN, "RUN", 16_000, 21_000),
    ]


def test_a_chain_over_processes_ends_with_the_one_that_waits_for_itself() -> None:
    program = asleep(waker_tid=20, waker_pid=20)
    program.starts(20, at=1, maker=MAIN)
    program.off(2, 3, pid=20)
    program.off(2500, 14_000, 13_000, pid=20, waker_tid=21, waker_pid=20)
    program.off(2, 3, pid=20, tid=21)
    program.off(2800, 12_000, pid=20, tid=21, op=p.PREAD)
    found = [piece for piece in pieces(program) if piece[0] != MAIN]
    assert found == [
        (21, "BLOCKED", 3000, 12_000),
        (21, "RUN", 12_000, 13_000),
        (20, "QUEUED", 13_000, 14_000),
        (20, "RUN", 14_000, 15_000),
    ]


@pytest.mark.parametrize("op", [p.PREAD, p.FSYNC, p.NANOSLEEP, 16, 0xFFFF, 11])
def test_waits_of_its_own_stay_with_the_thread_whoever_wakes_it(op: int) -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN, op=op)
    program.off(6, 7, tid=11)
    assert (MAIN, "BLOCKED", 3000, 15_000) in pieces(program)


def test_io_wait_and_interrupts_end_a_chain() -> None:
    for flags in (int(OffFlag.IOWAIT), IRQ):
        program = asleep(waker_tid=0 if flags == IRQ else 11, flags=flags)
        assert (MAIN, "BLOCKED", 3000, 15_000) in pieces(program)


def test_a_softirq_names_the_thread_in_which_it_ran() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN, flags=int(OffFlag.WAKER_SOFTIRQ))
    program.off(6, 7, tid=11)
    assert (11, "RUN", 3000, 15_000) in pieces(program)


def test_a_missed_wakeup_is_not_known_at_all() -> None:
    program = gap()
    program.off(5, 8)
    program.off(3000, 16_000, flags=MISSED)
    assert (MAIN, "UNKNOWN", 3000, 16_000) in pieces(program)


def test_a_waker_that_is_not_watched_is_outside() -> None:
    assert (0, "OUTSIDE", 3000, 15_000) in pieces(asleep(waker_tid=77, waker_pid=77))


def test_a_throttled_thread_is_held_back_then_queued() -> None:
    program = asleep(flags=THROTTLED | int(OffFlag.QUEUED))
    assert (MAIN, "BLOCKED", 3000, 15_000) in pieces(program)
    assert (MAIN, "QUEUED", 15_000, 16_000) in pieces(program)


def test_two_threads_that_wake_each_other_are_a_loop() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.off(6, 7, tid=11)
    program.off(3500, 14_000, waker_tid=MAIN, waker_pid=MAIN, tid=11)
    assert (11, "LOOP", 3500, 14_000) in pieces(program)


def test_long_chains_end() -> None:
    program = asleep(waker_tid=100, waker_pid=MAIN)
    for tid in range(100, 120):
        program.off(6, 7, tid=tid)
        program.off(2000, 15_000, tid=tid, waker_tid=tid + 1, waker_pid=MAIN)
    assert [piece for piece in pieces(program) if piece[2] == 3000] == [(111, "LOOP", 3000, 15_000)]


def timed(program: Program, *, last_waker: int, pause: int = 50) -> None:
    """The main thread looks for a lock again and again, as for the GIL, until somebody wakes it."""
    for begin in range(3000, 13_000, 5000):
        program.off(begin, begin + 5000 - pause, flags=IRQ)
    program.off(13_000, 15_000, waker_tid=last_waker, waker_pid=MAIN)


def test_timed_waits_belong_to_whoever_ends_the_last() -> None:
    program = gap()
    program.off(5, 8)
    program.off(6, 7, tid=11)
    timed(program, last_waker=11)
    found = pieces(program)
    assert sum(high - low for tid, state, low, high in found if (tid, state) == (11, "RUN")) == 11_900
    assert not [piece for piece in found if piece[1] == "BLOCKED"]


def test_timed_waits_with_work_in_between_are_waits_for_the_clock() -> None:
    program = gap()
    program.off(5, 8)
    program.off(6, 7, tid=11)
    timed(program, last_waker=11, pause=1000)
    found = pieces(program)
    assert sum(high - low for tid, state, low, high in found if (tid, state) == (MAIN, "BLOCKED")) == 8000


def test_before_its_birth_a_threads_time_is_its_makers() -> None:
    program = asleep(waker_tid=20, waker_pid=20)
    program.starts(20, at=9000, maker=11)
    program.off(6, 7, tid=11)
    program.off(9000, 9500, 9001, pid=20, flags=int(OffFlag.BIRTH))
    found = pieces(program)
    assert (11, "RUN", 3000, 9000) in found
    assert (20, "QUEUED", 9001, 9500) in found
    assert (20, "RUN", 9500, 15_000) in found


def test_a_thread_without_a_birth_on_record_is_unknown_before_its_first() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.preempted(9000, 10_000, tid=11)
    assert (11, "UNKNOWN", 3000, 9000) in pieces(program)


def test_after_its_end_a_thread_is_unknown() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.off(6, 7, tid=11)
    program.records.append(items.event(Kind.EXIT, p.START + 9000 * US, tid=11))
    found = pieces(program)
    assert (11, "RUN", 3000, 9000) in found
    assert (11, "UNKNOWN", 9000, 15_000) in found


def test_a_thread_that_took_over_its_leaders_number_goes_on() -> None:
    program = asleep(waker_tid=20, waker_pid=20)
    program.starts(20, at=1, maker=MAIN)
    program.off(2, 3, pid=20)
    program.thread(21, pid=20, at=5, maker=20)
    program.records.append(items.event(Kind.EXIT, p.START + 8000 * US, pid=20, tid=20))
    program.records.append(items.event(Kind.EXEC, p.START + 8001 * US, pid=20, tid=20))
    program.preempted(8100, 8200, pid=20)
    assert (20, "RUN", 8200, 15_000) in pieces(program)


def test_who_is_off_its_cpu_at_the_end_is_not_on_it() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.off(6, 7, tid=11)
    program.opened = [{"tid": 11, "off_since": p.START + 4000 * US}]
    assert (11, "UNKNOWN", 4000, 15_000) in pieces(program)
    program.opened = [{"tid": 11, "off_since": p.START + 4000 * US, "queued_since": p.START + 6000 * US}]
    assert (11, "QUEUED", 6000, 15_000) in pieces(program)


def test_the_enqueuers_calls_are_distinguished() -> None:
    program = gap()
    program.off(5, 8)
    program.call("cudaMalloc", 4000, 9000)
    program.preempted(5000, 6000)
    analysis = program.analysis()
    inside = analysis.segments.call >= 0
    assert int(analysis.segments.ns[inside].sum()) == 5000 * US
    assert int(analysis.segments.ns.sum()) == 20_000 * US


def test_overlapping_records_still_add_up() -> None:
    program = gap()
    program.off(5, 8)
    program.off(3000, 16_000, 15_000)
    program.off(9000, 18_000, 17_000)  # cannot be: but a damaged file may say so
    program.call("cudaMalloc", 2000, 12_000)
    program.call("cudaMalloc", 4000, 6000)
    program.call("cudaMalloc", 5000, 14_000)
    assert pieces(program)[0] == (MAIN, "RUN", 1000, 2000)


def test_a_slice_that_ends_after_the_last_mark_is_counted_once() -> None:
    program = asleep(waker_tid=11, waker_pid=MAIN)
    program.opened = [{"off_since": p.START + 3000 * US}]  # a torn file: the mark is older than the records
    assert (MAIN, "RUN", 16_000, 21_000) in pieces(program)


def test_what_a_socket_or_a_file_is_waited_for_with() -> None:
    kinds = {
        p.FUTEX: Wait.LOCK,
        p.POLL: Wait.POLL,
        p.PREAD: Wait.DISK,
        p.RECVFROM: Wait.SOCKET,
        0xFFFF: Wait.FAULT,
    }
    program = started()
    for place, number in enumerate(kinds):
        program.off(1000 * place + 10, 1000 * place + 900, op=number)
    slices = program.evidence().slices
    told = dict(zip(slices["syscall"].tolist(), slices["wait"].tolist(), strict=True))
    assert {number: Wait(told[number]) for number in kinds} == kinds
