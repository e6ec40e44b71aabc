"""What a GPU's span is made of, to the us: proved empty, proved at work, first uses, start-ups, the rest."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.chains.analysis import analyse
from gputop.analysis.proofs.gaps import FIRST_NS, DeviceTime
from tests import programs as p
from tests.items import START
from tests.programs import LAUNCH, SYNC, US, Program, closed_by, started

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


def test_each_of_several_waits_for_events_is_for_what_its_own_event_covers() -> None:
    program = started()
    begins = (0, 2000, 4000, 6000)
    for number, begin in enumerate(begins):
        event = 0x9000 + number
        program.call("cudaEventCreate", begin, begin + 1, aux=event)
        program.call(LAUNCH, begin + 10, begin + 20)
        program.call(p.RECORD, begin + 50, begin + 55, aux=event, stream=0)
        program.call(LAUNCH, begin + 60, begin + 70)
        program.call("cudaEventSynchronize", begin + 100, begin + 1000, aux=event)
    analysis = program.analysis()
    calls = analysis.evidence.calls
    waits = np.flatnonzero(calls["end"] - calls["begin"] > 500 * US)
    until = (analysis.gpu.waited_for(waits) - START) // US
    assert [begin + 20 <= at <= begin + 55 for begin, at in zip(begins, until, strict=True)] == [True] * 4


def test_a_first_use_on_one_gpu_is_none_of_another() -> None:
    """The other GPU's time is unknown meanwhile: a record is missing there."""
    program = started()
    program.thread(11)
    program.call("cudaSetDevice", 1, 2, aux=0)
    program.call("cudaSetDevice", 1, 2, aux=1, tid=11)
    end = 1000 + LOADS_US
    for tid in (10, 11):
        program.call(LAUNCH, 10, 20, tid=tid, aux=1)
        program.call(p.DEVICE_SYNC, 30, 500, tid=tid)
    program.call("cudaMalloc", 590, 600, tid=11)
    program.call(LAUNCH, 700, 700 + LOADS_US, aux=2)
    for tid in (10, 11):
        program.call(LAUNCH, end, end + 10, tid=tid, aux=1)
        program.call(p.DEVICE_SYNC, end + 20, end + 500, tid=tid)
    lost = np.flatnonzero(program.batch()["t_end"] == START + 600 * US).tolist()
    first, second = program.analysis(lost).gpu.spans
    assert first.outside_ns == LOADS_US * US
    assert second.outside_ns == 0
    assert second.unknown_ns >= LOADS_US * US


def test_time_ends_with_the_last_proof_however_short_the_wait_was() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(LAUNCH, 1000, 1010)
    program.call(SYNC, 1015, 1025)
    program.call("cudaMalloc", 2000, 2010)
    (span,) = program.analysis().gpu.spans
    assert span.end == START + 1025 * US


def test_a_gap_that_begins_where_a_stretch_ends_is_none_of_it() -> None:
    evidence = closed_by(SYNC).evidence()
    (begin,) = analyse(evidence, (START, evidence.end_ns)).gpu.gaps.begin.tolist()
    assert not len(analyse(evidence, (START, begin)).gpu.gaps)
    assert len(analyse(evidence, (START, begin + 1)).gpu.gaps) == 1


def test_a_gap_ends_with_the_first_work_after_it_not_with_what_comes_later() -> None:
    program = closed_by(SYNC)
    program.call(LAUNCH, 4000, 4010, tid=11)
    gaps = program.analysis().gpu.gaps
    assert program.evidence().calls["begin"][gaps.refilled_by].tolist() == [START + 3000 * US]
