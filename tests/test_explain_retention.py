"""What is carried over of a time that is dropped: all that later proofs rest on, and little else."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.proofs.retention import carried
from tests import programs as p
from tests.items import START
from tests.programs import (
    BLOCKING,
    COPY,
    COPY_ASYNC,
    D2H,
    FREE,
    H2D,
    LAUNCH,
    SYNC,
    US,
    Program,
    attached,
    started,
    with_streams,
)
from tests.retained import CUT, gaps_after, kept

EVENT, OTHER_EVENT, THIRD_EVENT = 0x9000, 0x9100, 0x9200
MALLOC = "cudaMalloc"


def test_the_first_wait_for_the_device_shows_that_a_process_from_before_is_known() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(p.DEVICE_SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    program.call(SYNC, 3100, 4000)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(attached(program)) == [(5000, 6000)]


def test_where_calls_were_lost_the_first_wait_for_the_device_since_then_is_carried() -> None:
    program = started()
    for begin in (0, 1000, 2000, 3000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(p.DEVICE_SYNC, begin + 100, begin + 500)
    program.call(SYNC, 3600, 3700)
    program.call(MALLOC, 3800, 3900)
    lost = int(np.flatnonzero(program.batch()["t_end"] == START + 1010 * US)[0])
    assert kept(program, p.DEVICE_SYNC) == [3100]
    # what was lost may have lasted until the record after it, so the wait that told of the loss says nothing
    assert kept(program, p.DEVICE_SYNC, [lost]) == [2100, 3100]


def test_the_first_launch_of_each_kernel_is_carried() -> None:
    program = started()
    for number, kernel in enumerate((0xA, 0xB, 0xA, 0xB, 0xA, 0xB)):
        program.call(LAUNCH, 100 * number, 100 * number + 10, aux=kernel)
    program.call(SYNC, 1000, 2000)
    assert kept(program, LAUNCH) == [0, 100, 400, 500]


HOST_WORK = "cudaLaunchHostFunc"


def test_the_last_work_of_the_host_in_a_stream_is_carried_since_a_gpu_may_wait_for_the_like() -> None:
    program = started()
    for begin in (0, 100, 200):  # the first one of its kind is carried as a launch is
        program.call(HOST_WORK, begin, begin + 10)
    program.call(LAUNCH, 300, 310)
    program.call(LAUNCH, 320, 330)
    program.call(SYNC, 400, 500)
    assert kept(program, HOST_WORK) == [0, 200]


def test_what_a_group_of_collectives_started_keeps_no_call_beside_it() -> None:
    program = started()
    program.call("ncclGroupStart", 1100, 1101)
    program.call("cuLaunchKernel", 1500, 1510, nested=1)
    program.call("ncclGroupEnd", 1400, 1600)
    program.call(MALLOC, 100, 200, tid=12)
    assert kept(program, MALLOC) == []


def test_the_first_stay_off_the_cpu_of_each_thread_shows_since_when_it_is_known() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    for tid in (11, 12):
        for begin in (100, 200, 300):
            program.off(begin + tid, begin + 50, tid=tid)
    slices = carried(program.evidence())[2]
    assert ((slices["begin"] - START) // US).tolist() == [111, 112]


def test_of_a_process_that_has_ended_nothing_is_carried() -> None:
    program = started()
    program.starts(20)
    for pid in (p.MAIN, 20):
        program.call(LAUNCH, 0, 10, pid=pid)
        program.call("ncclGroupStart", 20, 21, pid=pid)
        program.call("cuLaunchKernel", 30, 35, nested=1, pid=pid)
        program.call("ncclGroupEnd", 22, 40, pid=pid)
        program.off(50, 60, pid=pid)
    program.ends(1000, pid=20)
    assert [set(part["pid"].tolist()) for part in carried(program.evidence())] == [{p.MAIN}] * 3


def test_a_stream_is_empty_by_what_came_after_its_last_work_not_by_what_came_before() -> None:
    program = started()
    for begin in (0, 2000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 100, begin + 1000)
    program.call(MALLOC, 4000, 4010)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(program) == [(5000, 6000)]


def test_a_copy_that_waited_for_itself_needs_no_other_proof() -> None:
    program = started()
    program.call(COPY, 100, 1000, kind=D2H, bytes=64)
    program.call(MALLOC, 4000, 4010)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(program) == [(5000, 6000)]


def test_work_that_was_given_during_a_copy_is_carried_with_it() -> None:
    program = started()
    program.call(LAUNCH, 500, 510, tid=11)
    program.call(COPY, 100, 1000, kind=D2H, bytes=64)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(program) == []


@pytest.mark.parametrize("records", [1, 2, 3])
def test_the_last_record_of_an_event_is_there_for_a_wait_to_come(records: int) -> None:
    program = started()
    for number in range(records):
        program.call(LAUNCH, 100 * number, 100 * number + 10)
        program.call(p.RECORD, 100 * number + 20, 100 * number + 30, aux=EVENT)
    program.call(p.EVENT_SYNC, 5500, 6000, aux=EVENT)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]


def test_a_record_that_another_overlaps_is_as_uncertain_as_before() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20)
    program.call(p.RECORD, 25, 35, aux=EVENT, stream=FREE, tid=11)
    program.call(p.RECORD, 30, 40, aux=EVENT)
    program.call(p.EVENT_SYNC, 5500, 6000, aux=EVENT)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == []


def test_of_the_records_of_each_event_two_are_carried() -> None:
    program = started()
    for begin, event in ((10, EVENT), (20, OTHER_EVENT), (30, EVENT), (40, OTHER_EVENT), (50, EVENT)):
        program.call(p.RECORD, begin, begin + 5, aux=event)
    program.call(MALLOC, 60, 70)
    assert kept(program, p.RECORD) == [20, 30, 40, 50]


def handed_on(program: Program, source: int, target: int, begin: int, event: int) -> None:
    """From here on a stream waits for what another has had so far."""
    program.call(p.RECORD, begin, begin + 5, aux=event, stream=source)
    program.call(p.WAIT, begin + 10, begin + 15, aux=event, stream=target)


def overwritten(program: Program, *events: int) -> None:
    """These events are recorded anew, so often that no record from before is carried for its own sake."""
    for number, event in enumerate(events * 2):
        program.call(p.RECORD, 1000 + 10 * number, 1005 + 10 * number, aux=event)


def test_a_wait_for_an_event_carries_a_later_proof_to_the_other_stream() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=FREE)
    handed_on(program, FREE, 0, 30, EVENT)
    program.call(LAUNCH, 50, 60)
    overwritten(program, EVENT)
    program.call(SYNC, 5500, 6000)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]


@pytest.mark.parametrize("again", [False, True])
def test_a_wait_for_an_event_has_carried_a_proof_to_the_other_stream(again: bool) -> None:
    """Also where the stream waits once more after the proof, which carries later ones only."""
    program = with_streams()
    program.call(LAUNCH, 10, 20)
    program.call(SYNC, 30, 40)  # proves the stream itself empty, but not the other
    program.call(LAUNCH, 50, 60, stream=FREE)
    handed_on(program, FREE, 0, 70, EVENT)
    program.call(SYNC, 100, 900)
    if again:
        handed_on(program, FREE, 0, 950, THIRD_EVENT)
    overwritten(program, EVENT, THIRD_EVENT)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(program) == [(5000, 6000)]


def test_the_record_that_a_wait_has_proved_work_by_is_carried_with_it() -> None:
    program = started()
    program.call(LAUNCH, 10, 20)
    program.call(p.RECORD, 30, 35, aux=EVENT)
    program.call(p.EVENT_SYNC, 100, 900, aux=EVENT)
    overwritten(program, EVENT)
    program.call(LAUNCH, 6000, 6010)
    assert gaps_after(program) == [(5000, 6000)]


@pytest.mark.parametrize("again", [False, True])
def test_two_waits_carry_a_later_proof_over_the_stream_between(again: bool) -> None:
    """Also where the stream between waits once more, for which nobody waits."""
    program = with_streams()
    program.call("cudaStreamCreateWithFlags", 4, 5, stream=0x102, aux=1)
    program.call(LAUNCH, 10, 20, stream=FREE)
    handed_on(program, FREE, 0x102, 30, EVENT)
    program.call(LAUNCH, 50, 60, stream=0x102)
    handed_on(program, 0x102, 0, 70, OTHER_EVENT)
    program.call(LAUNCH, 90, 100)
    if again:
        handed_on(program, FREE, 0x102, 110, THIRD_EVENT)
    overwritten(program, EVENT, OTHER_EVENT, THIRD_EVENT)
    program.call(SYNC, 5500, 6000)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]


@pytest.mark.parametrize(("one", "other"), [(0, FREE), (FREE, 0)])
def test_what_an_event_may_prove_later_reaches_as_far_as_the_waits_before_its_record(
    one: int, other: int
) -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=one)
    program.call(LAUNCH, 30, 40, stream=other)
    handed_on(program, other, one, 50, EVENT)
    program.call(p.RECORD, 80, 85, aux=OTHER_EVENT, stream=one)
    handed_on(program, other, one, 100, THIRD_EVENT)  # says more, but to whoever asks for the stream alone
    program.call(p.EVENT_SYNC, 5500, 6000, aux=OTHER_EVENT)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]


def test_the_copies_just_before_a_wait_are_carried_with_it() -> None:
    for between in range(6):
        program = started()
        program.call(MALLOC, 0, 5)
        program.call(COPY_ASYNC, 10, 20, kind=D2H, bytes=64)
        for begin in (30, 50):  # the last work of the stream, from another thread
            program.call(LAUNCH, begin, begin + 10, tid=11)
        for number in range(between):
            program.call(MALLOC, 100 + 10 * number, 105 + 10 * number)
        program.call(SYNC, 200, 1000)
        program.call(MALLOC, 2000, 2010)
        assert kept(program, COPY_ASYNC) == ([10] if between < 4 else [])
        assert kept(program, MALLOC) == [2000]


def test_a_copy_of_another_thread_is_not_before_the_wait() -> None:
    program = started()
    program.call(COPY_ASYNC, 10, 20, kind=D2H, bytes=64, tid=9)
    for begin in (30, 50):
        program.call(LAUNCH, begin, begin + 10, tid=11)
    program.call(SYNC, 200, 1000)
    program.call(MALLOC, 2000, 2010)
    assert kept(program, COPY_ASYNC) == []


def freed_after_a_copy(
    address: int, *, pid: int = p.MAIN, kind: int = H2D, begin: int = 100, op: str = COPY, later: int = 1
) -> Program:
    """Memory that is page-locked from 0x7000 to 0x8000 until 2000 us, a copy, and work after it."""
    program = started()
    program.call("cudaHostAlloc", 0, 5, aux=0x7000, bytes=0x1000)
    program.call(op, begin, begin + 900, kind=kind, bytes=64, aux=address, pid=pid)
    program.call("cudaFreeHost", 2000, 2005, aux=0x7000)
    for number in range(later):
        program.call(LAUNCH, 6000 + 100 * number, 6010 + 100 * number)
    return program


@pytest.mark.parametrize("address", [0x7000, 0x7010, 0x7FFF])
def test_memory_that_was_page_locked_during_a_copy_that_is_carried_still_was(address: int) -> None:
    assert gaps_after(freed_after_a_copy(address)) == [(5000, 6000)]


@pytest.mark.parametrize(
    "program",
    [
        freed_after_a_copy(0x6FFF),
        freed_after_a_copy(0x8000),
        freed_after_a_copy(0x7010, pid=9),
        freed_after_a_copy(0x7010, pid=20),
        freed_after_a_copy(0x7010, kind=D2H),
        freed_after_a_copy(0x7010, begin=2010),
        freed_after_a_copy(0x7010, op=COPY_ASYNC),
        freed_after_a_copy(0x7010, later=2),
    ],
    ids=[
        "below",
        "above",
        "of another",
        "of one with a greater number",
        "back",
        "after it was freed",
        "that waits for nothing",
        "that is not carried",
    ],
)
def test_memory_that_no_copy_came_from_is_forgotten_when_it_is_freed(program: Program) -> None:
    assert kept(program, "cudaHostAlloc") == kept(program, "cudaFreeHost") == []


def test_memory_that_is_page_locked_stays_so() -> None:
    program = started()
    program.call("cudaHostAlloc", 0, 5, aux=0x7000, bytes=0x1000)
    program.call("cudaHostAlloc", 10, 15, aux=0x9000, bytes=0x1000)
    program.call("cudaFreeHost", 20, 25, aux=0x9000)
    program.call(LAUNCH, 30, 40)
    program.call(COPY, 5100, 6000, kind=H2D, bytes=64, aux=0x7010)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]
    assert kept(program, "cudaHostAlloc") == [0]


def test_a_capture_under_way_is_carried() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call("cudaStreamBeginCapture", 30, 35, stream=FREE)
    program.call(LAUNCH, 5100, 5110, stream=FREE)  # into the graph
    program.call("cudaStreamEndCapture", 5200, 5210, stream=FREE)
    program.call(SYNC, 5500, 6000, stream=BLOCKING)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == [(6000, 8000)]


def captured(begin: int, end: int, pid: int = p.MAIN) -> Program:
    """The record of an event from 100 to 110 us, and a capture on another stream."""
    program = with_streams()
    program.call(LAUNCH, 10, 20)
    if begin >= 0:
        program.call("cudaStreamBeginCapture", begin, begin + 5, stream=FREE, pid=pid, tid=12)
    program.call(p.RECORD, 100, 110, aux=EVENT)
    program.call("cudaStreamEndCapture", end, end + 5, stream=FREE, pid=pid, tid=12)
    program.call(MALLOC, 1000, 1010)
    program.call(p.EVENT_SYNC, 5500, 6000, aux=EVENT)
    program.call(LAUNCH, 8000, 8010)
    return program


@pytest.mark.parametrize(("begin", "end"), [(50, 150), (110, 150), (50, 95), (-1, 150)])
def test_a_capture_during_a_call_that_is_carried_is_carried_with_it(begin: int, end: int) -> None:
    """Without a begin on record it was under way since ever."""
    program = captured(begin, end)
    assert gaps_after(program) == []


@pytest.mark.parametrize(("begin", "end", "pid"), [(200, 300, p.MAIN), (50, 150, 9), (50, 150, 20)])
def test_a_capture_beside_no_call_that_is_carried_is_forgotten(begin: int, end: int, pid: int) -> None:
    program = captured(begin, end, pid)
    program.records = [one for one in program.records if one["t_end"][0] < START + CUT * US]
    program.call(MALLOC, 400, 410, pid=pid, tid=12)
    assert kept(program, "cudaStreamBeginCapture") == kept(program, "cudaStreamEndCapture") == []


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("tid", [9, 11])
def test_the_gpu_that_a_thread_chose_last_is_still_its_own(tid: int, failed: bool) -> None:
    """It gives that GPU work, for which a thread waits that chose the same; else it works on another."""
    program = started()
    program.call("cudaSetDevice", 0, 5, aux=1, tid=tid, ret=int(failed))
    program.call("cudaSetDevice", 10, 15, aux=1)
    program.call(LAUNCH, 20, 30)
    program.call(p.DEVICE_SYNC, 40, 50)
    program.call(LAUNCH, 5100, 5110, tid=tid)
    program.call(p.DEVICE_SYNC, 5500, 6000)
    program.call(LAUNCH, 8000, 8010)
    assert gaps_after(program) == ([(5000, 8000)] if failed else [(5000, 5100), (6000, 8000)])
