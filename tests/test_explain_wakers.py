"""Who ended a wait: wakeups on their way between CPUs, and rows of waits that time out."""

from __future__ import annotations

import pytest

from gputop.analysis.causes import CATALOGUE
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.findings.findings import owners
from probes.schema import OffFlag
from tests import programs as p
from tests.gap_pieces import pieces
from tests.programs import LAUNCH, MAIN, SYNC, Program, started

IRQ, MISSED = int(OffFlag.WAKER_IRQ), int(OffFlag.WAKE_MISSED)
WORKER, HOLDER = 20, 21


def waiting(end: int = 15_000) -> Program:
    """The main thread is idle from 3000 to ``end``, then woken by a thread of a worker process."""
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 20, 1000)
    program.call(LAUNCH, 21_000, 21_010)
    program.off(5, 8)
    program.off(3000, end, waker_tid=WORKER, waker_pid=WORKER, op=p.POLL)
    program.starts(WORKER, at=1, maker=MAIN)
    program.thread(HOLDER, pid=WORKER, at=2, maker=WORKER)
    program.off(3, 4, pid=WORKER)
    program.off(3, 4, pid=WORKER, tid=HOLDER)
    return program


def states(program: Program, tid: int) -> dict[str, int]:
    """State -> microseconds of one thread in the gap."""
    found: dict[str, int] = {}
    for thread, state, low, high in pieces(program):
        if thread == tid:
            found[state] = found.get(state, 0) + high - low
    return found


def test_a_wakeup_on_its_way_to_another_cpu_is_a_wait_for_a_cpu() -> None:
    program = waiting()
    # a full pipe: main reads, which wakes the worker, and sleeps before the worker is in a queue
    program.off(2000, 3012, 3009, pid=WORKER, waker_tid=MAIN, waker_pid=MAIN)
    assert states(program, WORKER) == {"QUEUED": 12, "RUN": 15_000 - 3012}


def test_a_waker_that_slept_far_too_long_is_a_loop() -> None:
    program = waiting()
    program.off(2000, 8000, 7000, pid=WORKER, waker_tid=MAIN, waker_pid=MAIN)
    assert states(program, WORKER) == {"LOOP": 4000, "QUEUED": 1000, "RUN": 7000}


def test_a_wakeup_is_never_on_its_way_before_the_wait_began() -> None:
    program = waiting()
    program.off(3004, 3012, 3009, pid=WORKER, waker_tid=MAIN, waker_pid=MAIN)
    assert states(program, WORKER) == {"RUN": 4 + 15_000 - 3012, "QUEUED": 8}


def looking(program: Program, *stays: tuple[int, int, int]) -> None:
    """The worker looks for a lock between (begin, end, flags); the last is ended by the holder at 13000."""
    for begin, end, flags in stays:
        program.off(begin, end, pid=WORKER, flags=flags)
    program.off(stays[-1][1] + 10, 13_000, pid=WORKER, waker_tid=HOLDER, waker_pid=WORKER)


def test_a_row_of_timed_waits_goes_on_over_a_preemption() -> None:
    program = waiting()
    program.off(3000, 6000, pid=WORKER, flags=IRQ)
    program.preempted(6010, 7000, pid=WORKER)
    looking(program, (7010, 9000, IRQ))
    assert states(program, WORKER) == {"RUN": 30 + 2000, "QUEUED": 990}
    assert states(program, HOLDER) == {"RUN": 3000 + 1990 + 3990}


@pytest.mark.parametrize("flags", [IRQ, MISSED])
def test_a_wait_that_is_taken_up_again_had_not_brought_what_it_was_for(flags: int) -> None:
    program = waiting()
    looking(program, (3000, 6000, IRQ), (6010, 9000, flags))
    assert states(program, HOLDER) == {"RUN": 3000 + 2990 + 3990}
    assert states(program, WORKER) == {"RUN": 20 + 2000}


def test_a_missed_end_of_the_last_wait_leaves_the_row_unknown() -> None:
    program = waiting()
    program.off(3000, 6000, pid=WORKER, flags=IRQ)
    program.off(6010, 9000, pid=WORKER, flags=MISSED)
    assert states(program, WORKER) == {"UNKNOWN": 3000 + 2990, "RUN": 10 + 6000}


def test_waits_in_different_calls_are_no_row() -> None:
    program = waiting()
    program.off(3000, 6000, pid=WORKER, flags=IRQ, op=p.POLL)
    looking(program, (6010, 9000, IRQ))
    assert states(program, WORKER)["BLOCKED"] == 3000


@pytest.mark.parametrize("called", [False, True])
def test_a_wait_in_the_next_cuda_call_is_another(called: bool) -> None:
    program = waiting()
    program.off(3000, 9000, 6000, pid=WORKER, flags=IRQ)  # the driver sleeps; its thread gets no CPU for 3 ms
    if called:
        program.call("cudaStreamCreate", 9050, 9060, pid=WORKER)
    looking(program, (9200, 10_000, IRQ))
    assert states(program, WORKER).get("QUEUED", 0) == (3000 if called else 0)


def test_what_a_worker_waits_for_outside_is_distinguished_from_what_its_threads_hand_each_other() -> None:
    program = waiting()
    program.off(3500, 9000, pid=WORKER, tid=HOLDER, waker_tid=99, waker_pid=99, op=p.RECVFROM)
    program.off(3200, 14_000, pid=WORKER, waker_tid=HOLDER, waker_pid=WORKER, op=p.RECVFROM)
    scene = AttributionContext(program.analysis())
    outside = scene.segments.state == State.OUTSIDE
    assert int(scene.ns[outside].sum()) == 5500 * p.US
    taken = owners(scene)[outside]
    assert {CATALOGUE[row].number for row in taken.tolist()} == {"C19"}
