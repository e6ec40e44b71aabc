"""A record is missing: it may be the first work of a stream that nobody saw used until later."""

from __future__ import annotations

import numpy as np
import pytest

from tests.items import START
from tests.programs import DEVICE_SYNC, FREE, LAUNCH, SYNC, US, Program, started, with_streams

LOST_US, LATER_US = 15_500, 70_000
OTHER = 500  # another process


def program() -> Program:
    """Work on the default stream, a round each 10 ms; work on another one that never ends, and more later."""
    made = with_streams()
    for begin in range(1000, 60_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(SYNC, begin + 20, begin + 3000, stream=0)
        made.call("cudaMalloc", begin + 4000, begin + 4001)
    made.call(LAUNCH, LOST_US - 10, LOST_US, stream=FREE)
    made.call(LAUNCH, LATER_US, LATER_US + 10, stream=FREE)
    return made


def without(made: Program, end_us: int) -> list[int]:
    """The record of a call that ended then, as the lost one."""
    return np.flatnonzero(made.batch()["t_end"] == START + end_us * US).tolist()


def proved(made: Program, lost: list[int]) -> dict[int, bool]:
    """Begin of each gap in us -> whether it is proved."""
    gaps = made.analysis(lost).gpu.gaps
    return {int(at - START) // US: bool(sure) for at, sure in zip(gaps.begin, gaps.proved, strict=True)}


def test_while_the_work_is_seen_there_is_no_gap_behind_it() -> None:
    assert max(proved(program(), [])) < LOST_US


def test_without_its_record_no_gap_behind_it_is_proved() -> None:
    made = program()
    found = proved(made, without(made, LOST_US))
    assert {at: sure for at, sure in found.items() if at < LOST_US}, "what came before is as sure as ever"
    assert all(sure for at, sure in found.items() if at < LOST_US - 5000)
    assert not any(sure for at, sure in found.items() if at > LOST_US)


def test_a_stream_that_was_made_after_the_loss_had_no_work_then() -> None:
    made = program()
    lost = without(made, 5001)  # a cudaMalloc of the first round
    made.records = [record for record in made.records if not _is_on_free(record)]
    made.call(DEVICE_SYNC, 36_000, 36_010)
    made.call("cudaStreamCreateWithFlags", 40_500, 40_510, stream=FREE + 64, aux=1)
    made.call(LAUNCH, LATER_US, LATER_US + 10, stream=FREE + 64)
    assert any(sure for at, sure in proved(made, lost).items() if at > LOST_US)


def _is_on_free(record: np.ndarray) -> bool:
    return bool(record["stream"][0] == FREE)


@pytest.mark.parametrize(("born_us", "sure"), [(30_000, True), (0, False)])
def test_the_default_stream_of_a_process_was_there_from_its_birth(born_us: int, sure: bool) -> None:
    made = with_streams()
    made.starts(OTHER, at=born_us)
    for begin in range(1000, 60_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(DEVICE_SYNC, begin + 20, begin + 3000)
        made.call("cudaMalloc", begin + 4000, begin + 4001)
    made.call(LAUNCH, LATER_US, LATER_US + 10, pid=OTHER)
    found = proved(made, without(made, 15_001))
    assert {one for at, one in found.items() if 30_000 < at < 60_000} == {sure}


def test_what_is_proved_again_behind_the_loss_is_as_sure_as_before() -> None:
    """The proofs that a gap needs are its own, not those of the gap before it."""
    made = started()
    for begin in range(0, 50_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(DEVICE_SYNC, begin + 20, begin + 5000)
        made.call("cudaMalloc", begin + 7000, begin + 7001)
    assert proved(made, without(made, 17_001)) == {5000: True, 25_000: True, 35_000: True}
