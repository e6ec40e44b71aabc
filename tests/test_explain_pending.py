"""When a GPU certainly had work: by which waits, queries and copies, and by which not."""

from __future__ import annotations

import numpy as np
import pytest

from probes.schema import OffFlag
from tests import items
from tests import programs as p
from tests.gpu_truth import NOT_READY
from tests.items import START
from tests.programs import (
    BLOCKING,
    COPY,
    DEVICE_SYNC,
    LAUNCH,
    QUERY,
    SYNC,
    US,
    Program,
    started,
    with_streams,
)

OTHER, THREAD = 20, 11


def pending(program: Program, device: int = 0, without: int = -1) -> list[tuple[int, int]]:
    """In us."""
    begin, end = program.analysis().gpu.pending(device, without)
    return [
        ((low - START) // US, (high - START) // US)
        for low, high in zip(begin.tolist(), end.tolist(), strict=True)
    ]


def works_at(program: Program, at: int, device: int = 0, without: int = -1) -> bool:
    return any(low <= at < high for low, high in pending(program, device, without))


def test_a_wait_for_the_whole_gpu_says_that_some_stream_had_work() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(DEVICE_SYNC, 100, 1000)
    assert works_at(program, 500)


def test_work_of_another_gpu_and_of_a_process_that_is_left_out_does_not_count() -> None:
    program = started()
    program.starts(OTHER)
    program.samples.append(items.gpus(START, 0))
    for pid in (p.MAIN, OTHER):
        program.call("cudaSetDevice", 0, 1, aux=int(pid == OTHER), pid=pid, tid=pid)
        program.call(LAUNCH, 2, 10, pid=pid, tid=pid)
    program.call(SYNC, 100, 1000)
    program.call(SYNC, 100, 3000, pid=OTHER, tid=OTHER)
    analysis = program.analysis().gpu
    devices = {int(device) for device in analysis.streams.device}
    assert len(devices) == 2
    own = int(analysis.streams.device[analysis.streams.pid == p.MAIN][0])
    assert works_at(program, 500, own)
    assert not works_at(program, 2000, own)
    assert works_at(program, 2000, *(devices - {own}))
    assert not works_at(program, 500, own, without=p.MAIN)
    assert works_at(program, 500, own, without=OTHER)


def test_what_was_given_before_anybody_looked_is_not_known_to_have_begun() -> None:
    """A query finds work on a stream that was given none on record: since when is not known."""
    program = started()
    program.call(QUERY, 100, 105, ret=NOT_READY)
    program.call(LAUNCH, 200, 210)
    program.call(SYNC, 300, 1000)
    assert min(low for low, _high in pending(program)) >= 200


@pytest.mark.parametrize(("until", "told"), [(1000, [0, 0, 990]), (104, [0, 0, 0])], ids=["waits", "not"])
def test_what_comes_behind_an_event_begins_when_the_wait_for_it_ended(until: int, told: list[int]) -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(p.RECORD, 30, 35, aux=0x9000)
    program.call(LAUNCH, 34, 45, tid=THREAD)  # perhaps before the event
    program.call(LAUNCH, 50, 60)
    program.call(p.EVENT_SYNC, 100, until, aux=0x9000)
    earliest = program.analysis().gpu.work.earliest(0)
    assert np.maximum((earliest - START) // US, 0).tolist() == told


def test_a_wait_that_begins_when_all_is_proved_complete_returns_late_for_another_reason() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 100, 300)
    program.call(SYNC, 400, 500)
    assert works_at(program, 200)
    assert not works_at(program, 350)
    assert not works_at(program, 450)


def test_a_copy_to_the_host_that_takes_longer_than_its_bytes_waited_for_work() -> None:
    for direction, waited in ((p.D2H, True), (p.H2D, False)):
        program = started()
        program.call(LAUNCH, 0, 10)
        program.call("cudaMemcpyAsync", 100, 1500, kind=direction, bytes=64)
        assert works_at(program, 700) == waited, direction


def test_a_copy_through_the_legacy_stream_waited_for_a_blocking_one() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call(COPY, 100, 1500, kind=p.D2H, bytes=64)
    assert works_at(program, 700)


def test_what_began_before_a_copy_is_waited_for_and_what_began_beside_it_leaves_doubt() -> None:
    for begin, known in ((90, True), (110, False)):
        program = started()
        program.thread(THREAD)
        program.call(LAUNCH, begin, begin + 20, tid=THREAD)
        program.call(COPY, 100, 1500, kind=p.D2H, bytes=64)
        assert works_at(program, 700) == known, begin


def test_a_copy_that_had_to_wait_for_a_cpu_may_have_begun_later() -> None:
    """Meanwhile another thread may have given the work that it waited for."""
    for queued in (900, 1000, 1100, 1300):
        program = started()
        program.thread(THREAD)
        program.call(LAUNCH, 0, 10)
        program.call(LAUNCH, 600, 610, tid=THREAD)
        program.preempted(101, 101 + queued)
        program.call(COPY, 100, 3000, kind=p.D2H, bytes=64)
        assert not works_at(program, 300), queued


def test_a_stay_that_was_over_at_once_was_no_sleep() -> None:
    """A spinner that lost its CPU had not seen the end before; what came before that says nothing."""
    program = started()
    program.call(LAUNCH, 0, 10)
    program.off(110, 410, 110, flags=int(OffFlag.WAKER_IRQ))
    program.preempted(700, 995)
    program.call(SYNC, 100, 1000)
    assert works_at(program, 600)


def test_no_wait_leaves_nothing_known() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(LAUNCH, 500, 510)
    assert pending(program) == []
    assert np.asarray(program.analysis().gpu.pending(0)[0]).size == 0


def test_who_waits_for_an_event_of_its_own_gpu_waits_for_nothing_else() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=p.FREE)
    program.call(p.RECORD, 30, 35, aux=0x9000, stream=p.FREE)
    program.call(p.WAIT, 40, 45, aux=0x9000)
    program.call(LAUNCH, 50, 60)
    program.call(SYNC, 100, 1000)
    assert works_at(program, 500)
