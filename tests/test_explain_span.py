"""What a GPU's span is made of, to the us: proved empty, proved at work, first uses, start-ups, the rest."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.explain.proofs.gaps import FIRST_NS, DeviceTime
from tests import programs as p
from tests.items import START
from tests.programs import LAUNCH, SYNC, US, Program, started

LOADS_US = FIRST_NS // US
OTHER = 500  # another process


def span(program: Program) -> DeviceTime:
    (only,) = program.analysis().gpu.spans
    return only


def test_what_is_not_known_is_what_the_others_leave() -> None:
    assert DeviceTime(0, 100, 1100, 300, 450, 50).unknown_ns == 200
    assert DeviceTime(0, 100, 1100, 300, 650, 50).unknown_ns == 0
    assert DeviceTime(0, 100, 1100, 300, 450, 0).unknown_ns == 250


def rounds(*launches: tuple[int, int]) -> Program:
    """A launch of kernel 1, then of each (kernel, us that the call takes), each waited for; 10 ms a round."""
    program = started()
    for number, (kernel, lasts) in enumerate([(1, 10), *launches]):
        at = 10_000 * number
        program.call(LAUNCH, at, at + lasts, aux=kernel)
        program.call(SYNC, at + lasts + 10, at + lasts + 500)
    end = 10_000 * (len(launches) + 1)
    program.call(LAUNCH, end, end + 10, aux=1)
    return program


@pytest.mark.parametrize(
    ("launches", "first_us"),
    [
        ([(2, 10), (3, 10)], 0),
        ([(2, LOADS_US)], LOADS_US),
        ([(2, LOADS_US - 1)], 0),  # too short to have loaded anything
        ([(2, LOADS_US), (2, LOADS_US), (2, LOADS_US)], LOADS_US),  # only the first one is
        ([(2, LOADS_US), (3, LOADS_US + 500), (2, 10), (3, 10)], 2 * LOADS_US + 500),
        ([(2, 10), (2, LOADS_US)], 0),  # slow, but not the first
    ],
)
def test_the_first_launch_of_a_kernel_that_takes_long_is_a_first_use(
    launches: list[tuple[int, int]], first_us: int
) -> None:
    found = span(rounds(*launches))
    assert found.outside_ns == first_us * US
    assert found.span_ns == found.empty_ns + found.pending_ns + found.outside_ns + found.unknown_ns


def test_a_launch_that_failed_was_no_first_use() -> None:
    program = rounds((1, 10))
    program.call(LAUNCH, 15_000, 15_000 + LOADS_US, aux=9, ret=98)
    assert span(program).outside_ns == 0


def test_the_start_of_a_further_process_is_neither_idle_nor_unknown() -> None:
    program = rounds((1, 10))
    alone = span(program)
    program.starts(OTHER, at=11_000)
    program.call(LAUNCH, 15_000, 15_010, pid=OTHER)
    program.call(SYNC, 15_020, 15_500, pid=OTHER)
    both = span(program)
    begin = 10_000 + 10 + 500  # the return of the wait before
    assert both.outside_ns == (15_000 - begin) * US
    assert both.empty_ns == alone.empty_ns - (15_500 - begin) * US
    assert both.span_ns == alone.span_ns


def test_a_wait_for_an_event_is_for_what_was_given_before_the_event() -> None:
    program = started()
    program.call("cudaEventCreate", 0, 1, aux=0x9000)
    program.call(LAUNCH, 10, 20)
    program.call(p.RECORD, 50, 55, aux=0x9000, stream=0)
    program.call(LAUNCH, 60, 70)
    program.call("cudaEventSynchronize", 100, 1000, aux=0x9000)
    program.call(SYNC, 1100, 2000)
    analysis = program.analysis()
    calls = analysis.evidence.calls
    waits = np.flatnonzero(calls["end"] - calls["begin"] > 500 * US)
    until = {
        int(calls["begin"][row] - START) // US: int(at - START) // US
        for row, at in zip(waits, analysis.gpu.waited_for(waits), strict=True)
    }
    assert until[1100] == 1100
    assert 20 <= until[100] <= 55, "not the launch that came after the event"
