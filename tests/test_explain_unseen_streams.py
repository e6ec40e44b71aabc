"""A record is missing: it may have been the only work of a stream that nobody ever saw."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.evidence.api_classes import Role
from tests.gpu_truth import World
from tests.items import START
from tests.programs import DEVICE_SYNC, FREE, LAUNCH, MAIN, SYNC, US, Program, with_streams
from tests.random_worlds import DEEDS, false_gaps, seeds

LOST_US = 15_500
OTHER = 500  # another process


def program(*, stream: int = FREE, waits_at: int = 0) -> Program:
    """A round each 10 ms on the default stream; one launch on another stream, which has work to the end."""
    made = with_streams()
    for begin in range(1000, 60_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(SYNC, begin + 20, begin + 3000, stream=0)
    made.call(LAUNCH, LOST_US - 10, LOST_US, stream=stream)
    made.call("cudaMalloc", LOST_US + 10, LOST_US + 20)  # what is missing ended before it
    if waits_at:
        made.call(DEVICE_SYNC, waits_at, waits_at + 500)
    return made


def proved(made: Program, end_us: int = LOST_US) -> dict[int, bool]:
    """Begin of each gap in us -> whether it is proved, without the record of the call that ended then."""
    lost = np.flatnonzero(made.batch()["t_end"] == START + end_us * US).tolist()
    assert lost
    gaps = made.analysis(lost).gpu.gaps
    return {int(at - START) // US: bool(sure) for at, sure in zip(gaps.begin, gaps.proved, strict=True)}


@pytest.mark.parametrize("stream", [FREE, 0x300])
def test_without_its_only_record_no_gap_behind_it_is_proved(stream: int) -> None:
    found = proved(program(stream=stream))
    assert {sure for at, sure in found.items() if at < LOST_US - 5000} == {True}, "as sure as ever"
    assert {sure for at, sure in found.items() if at > LOST_US} == {False}


def test_a_wait_for_the_whole_gpu_ends_the_doubt() -> None:
    found = proved(program(waits_at=36_000))
    assert {sure for at, sure in found.items() if LOST_US < at < 36_000} == {False}
    assert {sure for at, sure in found.items() if at > 36_500} == {True}


def test_a_wait_that_began_before_the_loss_was_over_ends_no_doubt() -> None:
    made = program()
    made.call(DEVICE_SYNC, LOST_US - 1000, LOST_US + 1)  # it may not have waited for what came beside it
    found = proved(made)
    assert {sure for at, sure in found.items() if at > LOST_US + 1000} == {False}


@pytest.mark.parametrize(("ends_us", "sure"), [(30_000, True), (70_000, False)])
def test_another_process_may_have_been_it_until_it_ends(ends_us: int, sure: bool) -> None:
    made = program(waits_at=17_000)
    made.starts(OTHER, at=0)
    made.call("cudaMalloc", 10, 20, pid=OTHER)
    made.ends(ends_us, pid=OTHER)
    found = proved(made)
    assert {one for at, one in found.items() if 31_000 < at < 60_000} == {sure}


def test_a_process_that_began_after_the_loss_was_not_it() -> None:
    made = program(waits_at=17_000)
    made.starts(OTHER, at=20_000)
    made.call("cudaMalloc", 20_010, 20_020, pid=OTHER)
    assert {one for at, one in proved(made).items() if at > 21_000} == {True}


RARE = 0x101
MOSTLY_ONE = (0, 0, 0, 0, 0, 0, 0, RARE)  # the other one gets work once in a while, some time only once


def rows_that_give_work(made: World, *, stream: int = -1) -> list[int]:
    """Places of the records of calls that give a stream work, or any."""
    evidence = made.program.evidence()
    gives = evidence.role(evidence.calls) == Role.ENQUEUE
    if stream >= 0:
        gives &= evidence.calls["stream"] == stream
    ends = set(evidence.calls["end"][gives].tolist())
    return [row for row, end in enumerate(made.program.batch()["t_end"].tolist()) if int(end) in ends]


@seeds(80)
def test_whichever_work_of_a_rare_stream_is_lost_no_proved_gap_is_busy(seed: int) -> None:
    made = World(seed, ("launch", "sync"), MOSTLY_ONE)
    made.run(1, 1, 30)
    for row in rows_that_give_work(made, stream=RARE):
        assert not false_gaps(made, made.program.analysis([row])), f"without record {row}"


@pytest.mark.slow
@pytest.mark.parametrize("deeds", DEEDS)
@seeds(16)
def test_whichever_work_is_lost_no_proved_gap_is_busy(deeds: str, seed: int) -> None:
    made = World(seed, DEEDS[deeds], MOSTLY_ONE)
    made.run(1, 1 + seed % 2, 20)
    for row in rows_that_give_work(made)[1:-1]:
        assert not false_gaps(made, made.program.analysis([row])), f"without record {row}"


@pytest.mark.parametrize(("lost_us", "known"), [(500, False), (50, True)])
def test_a_call_that_was_lost_beside_a_wait_may_have_given_its_stream_work(lost_us: int, known: bool) -> None:
    """The wait covers what had been given when it began; the loss was over before it returned."""
    made = with_streams()
    made.call(LAUNCH, 10, 20)
    made.call("cudaMalloc", lost_us - 5, lost_us, tid=11)
    made.call("cudaMalloc", lost_us + 10, lost_us + 20, tid=11)
    made.call(SYNC, 100, 1000)
    made.call(LAUNCH, 3000, 3010)
    assert (1000 in proved(made, lost_us)) == known


SECOND, SET, OTHER_THREAD = 1, "cudaSetDevice", 11


def on_two_gpus(first: int, then: int) -> Program:
    """A thread that chooses another GPU at ``LOST_US`` and goes on; one that works on the second GPU."""
    made = Program()
    made.starts()
    made.thread(OTHER_THREAD)
    made.call("cudaMalloc", 2, 4)  # on the first GPU, which nobody needs to choose
    made.call(SET, 10, 20, aux=first)
    made.call(SET, 30, 40, aux=SECOND, tid=OTHER_THREAD)
    for begin in range(1000, 60_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(DEVICE_SYNC, begin + 20, begin + 3000)
    made.call(SET, LOST_US - 10, LOST_US, aux=then)
    made.call("cudaMalloc", LOST_US + 10, LOST_US + 20)
    return made


def of_second(made: Program) -> dict[int, bool]:
    """Begin of each gap of the second GPU in us -> whether it is proved, without the record of the choice."""
    lost = np.flatnonzero(made.batch()["t_end"] == START + LOST_US * US).tolist()
    gpu = made.analysis(lost).gpu
    second = gpu.devices.labels.index(f"device {SECOND} of process {MAIN}")
    rows = zip(gpu.gaps.begin.tolist(), gpu.gaps.proved.tolist(), gpu.gaps.device.tolist(), strict=True)
    return {(at - START) // US: sure for at, sure, device in rows if device == second}


def test_a_wait_proves_nothing_of_a_gpu_where_the_choice_of_another_may_be_missing() -> None:
    """The thread waits for the first GPU from then on; the second one may have work of the other thread."""
    made = on_two_gpus(first=SECOND, then=0)
    made.call(LAUNCH, 20_000, 20_010, tid=OTHER_THREAD)
    found = of_second(made)
    assert {sure for at, sure in found.items() if at < LOST_US - 5000} == {True}
    assert {sure for at, sure in found.items() if at > LOST_US} == {False}


def test_work_of_a_thread_whose_choice_may_be_missing_may_be_on_each_of_its_gpus() -> None:
    """The other thread waits for its GPU, and then has a pause: in it the first one may give that work."""
    made = on_two_gpus(first=0, then=SECOND)
    for begin in (500, 17_000, 58_000):
        made.call(LAUNCH, begin, begin + 10, tid=OTHER_THREAD)
        made.call(DEVICE_SYNC, begin + 20, begin + 500, tid=OTHER_THREAD)
    assert of_second(made) == {17_500: False}


def test_who_says_again_which_gpu_it_works_on_proves_again() -> None:
    made = on_two_gpus(first=SECOND, then=0)
    made.call(SET, 30_000, 30_010, aux=SECOND)
    found = of_second(made)
    assert {sure for at, sure in found.items() if LOST_US < at < 30_000} == {False}
    assert {sure for at, sure in found.items() if at > 30_000} == {True}
