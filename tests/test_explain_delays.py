"""When a wait for the GPU was over, where the scheduler delayed its return: among other stays off the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gputop.analysis.proofs.proofs import RETURN_NS, WOKEN_NS
from probes.schema import OffFlag
from tests.items import START
from tests.programs import COPY, COPY_ASYNC, LAUNCH, MAIN, QUERY, SYNC, US, Program, closed_by

IRQ = int(OffFlag.WAKER_IRQ)
RETURNS, NEXT = 1000, 3000  # of closed_by's wait, and the begin of what it launches then, in us
BEFORE, AFTER = 5, 70  # threads of the same process, numbered around the submitting one


def crowded(program: Program) -> Program:
    """With stays of other threads, and of the submitting one before its wait and behind it."""
    for tid in (BEFORE, AFTER):
        program.thread(tid)
        for begin in range(30, 2000, 300):
            program.off(begin, begin + 250, begin + 200, tid=tid, flags=IRQ)
    program.off(40, 60, 55, flags=IRQ)
    program.off(RETURNS + 500, RETURNS + 900, RETURNS + 890, flags=IRQ)
    return program


def opens_at(program: Program) -> int:
    """When the gap behind the wait opens, in us."""
    ((begin, end),) = program.gaps()
    assert end == NEXT
    return begin


def waiting() -> Program:
    return crowded(closed_by(SYNC))


def test_among_other_stays_the_gap_still_opens_when_the_sleeper_was_woken() -> None:
    program = waiting()
    program.off(110, 995, 400, flags=IRQ)
    assert opens_at(program) == 400


@pytest.mark.parametrize("preemptions", [1, 2, 3])
def test_who_is_woken_and_loses_its_cpu_again_had_what_it_waited_for_when_it_was_woken(
    preemptions: int,
) -> None:
    program = waiting()
    program.off(110, 410, 400, flags=IRQ)
    for number in range(preemptions):
        program.preempted(420 + 100 * number, 510 + 100 * number)
    program.preempted(520 + 100 * (preemptions - 1), 995)
    assert opens_at(program) == (400 if preemptions < 3 else RETURNS), "so far back is looked, and no further"


def test_a_preemption_that_no_sleep_came_before_says_nothing() -> None:
    program = waiting()
    program.preempted(700, 995)
    assert opens_at(program) == RETURNS


def test_a_sleep_long_before_the_preemption_was_not_for_what_came_then() -> None:
    program = closed_by(SYNC)
    program.off(110, 120, 115, flags=IRQ)
    program.preempted(121 + WOKEN_NS // US, 995)
    assert opens_at(program) == RETURNS


def test_another_threads_sleep_is_not_the_waiters() -> None:
    """The records of two threads follow each other; the one before is not always of the same thread."""
    program = closed_by(SYNC)
    program.thread(BEFORE)
    program.off(110, 410, 400, tid=BEFORE, flags=IRQ)
    program.preempted(500, 995)
    assert opens_at(program) == RETURNS


def test_who_was_woken_by_its_own_process_had_waited_for_a_lock() -> None:
    program = waiting()
    program.off(110, 995, 400, waker_pid=MAIN, waker_tid=AFTER)
    assert opens_at(program) == RETURNS


def test_who_was_woken_by_another_process_had_waited_for_the_gpu() -> None:
    program = waiting()
    program.off(110, 995, 400, waker_pid=999, waker_tid=999)
    assert opens_at(program) == 400


def test_a_sleep_that_began_before_the_wait_was_for_something_else() -> None:
    program = waiting()
    program.off(95, 995, 400, flags=IRQ)
    assert opens_at(program) == RETURNS


def at_return(before_ns: int, stay: Sequence[int]) -> Program:
    """A wait that returns so long after a stay (begin, woken) off the CPU."""
    program = waiting()
    program.off(stay[0], RETURNS - before_ns // US, stay[1], flags=IRQ)
    return program


def test_a_sleeper_that_worked_on_for_long_was_woken_by_something_else() -> None:
    assert opens_at(at_return(WOKEN_NS, (110, 400))) == 400
    assert opens_at(at_return(WOKEN_NS + US, (110, 400))) == RETURNS


@pytest.mark.parametrize(("later_ns", "certain_us"), [(RETURN_NS, 300), (RETURN_NS + US, 0)])
def test_a_spinner_that_lost_its_cpu_leaves_unknown_what_it_did_not_see(
    later_ns: int, certain_us: int
) -> None:
    """It had certainly waited until it was preempted, if it returned at once when it was back."""
    program = closed_by(SYNC)
    begin, end = RETURNS - later_ns // US - 300, RETURNS - later_ns // US
    program.preempted(begin, end)
    analysis = program.analysis()
    low, high = analysis.gpu.pending(0)
    behind = [
        (max(one, START + begin * US), other) for one, other in zip(low.tolist(), high.tolist(), strict=True)
    ]
    known = sum(max(min(other, START + end * US) - one, 0) for one, other in behind)
    assert known // US == 300 - certain_us


@pytest.mark.parametrize("flags", [OffFlag.QUEUED, OffFlag.QUEUED | OffFlag.THROTTLED])
def test_who_is_stopped_twice_after_its_wakeup_had_what_it_waited_for_when_it_was_woken(
    flags: OffFlag,
) -> None:
    """Whether or not the kernel counted that as a preemption."""
    program = waiting()
    program.off(110, 410, 400, flags=IRQ)
    program.off(420, 510, 420, flags=int(flags))
    program.off(520, 995, 520, flags=int(flags))
    assert opens_at(program) == 400


@pytest.mark.parametrize(
    ("op", "waits"),
    [
        (SYNC, True),
        (COPY, True),
        (LAUNCH, False),
        (COPY_ASYNC, False),
        ("cudaMemsetAsync", False),
        (QUERY, False),
    ],
)
def test_only_what_waits_for_the_gpu_can_be_late_in_telling_of_it(op: str, waits: bool) -> None:
    program = closed_by(op, bytes=64)
    program.off(110, 995, 400, flags=IRQ)
    begin, end = program.analysis().gpu.delays.intervals
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == (
        [(START + 400 * US, START + 995 * US)] if waits else []
    )
