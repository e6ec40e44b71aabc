"""Streams that are made, captured or left unused, beside those that have work."""

from __future__ import annotations

import pytest

from tests import items
from tests.items import START
from tests.programs import BLOCKING, DEVICE_SYNC, FREE, LAUNCH, SYNC, started, with_streams


@pytest.mark.parametrize("used", [(), (FREE,), (BLOCKING,), (BLOCKING, FREE)])
def test_a_stream_that_was_made_and_got_no_work_is_no_part_of_any_gpu(used: tuple[int, ...]) -> None:
    program = with_streams()
    program.samples.append(items.gpus(START, 0))
    program.call("cudaSetDevice", 5, 6, aux=1)
    program.call(LAUNCH, 10, 20)
    program.call("cudaSetDevice", 30, 31, aux=0)
    for stream in used:
        program.call(LAUNCH, 35, 38, stream=stream)
    program.call(LAUNCH, 40, 50)
    program.call(DEVICE_SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


def test_what_is_captured_is_no_work_of_its_stream() -> None:
    program = with_streams()
    program.call("cudaStreamBeginCapture", 10, 12, stream=FREE)
    program.call(LAUNCH, 20, 25, stream=FREE)
    program.call("cudaStreamEndCapture", 50, 52, stream=FREE)
    program.call(LAUNCH, 60, 70)
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("both", [True, False])
def test_a_stream_is_on_the_gpu_where_it_was_made_whichever_is_current_when_it_gets_work(
    device: int, both: bool
) -> None:
    """Where nobody saw that it was made it is on the one that is current."""
    program = started()
    program.samples.append(items.gpus(START, 0))
    for number, (stream, chosen) in enumerate(((BLOCKING, device), (FREE, 1 - device))):
        program.call("cudaSetDevice", 10 * number, 10 * number + 1, aux=chosen)
        if both or stream == BLOCKING:
            program.call("cudaStreamCreate", 10 * number + 2, 10 * number + 3, stream=stream)
        begin = 20 + 10 * number
        program.call("cudaSetDevice", begin, begin + 1, aux=1 - chosen)
        program.call("cudaMemcpyAsync", begin + 2, begin + 3, stream=stream, bytes=64)
    gpu = program.analysis().gpu
    of_stream = dict(zip(gpu.streams.handle.tolist(), gpu.streams.device.tolist(), strict=True))
    labels = ("GPU 0", "device 1 of process 10")
    assert gpu.devices.labels[of_stream[BLOCKING]] == labels[device]
    assert gpu.devices.labels[of_stream[FREE]] == labels[1 - device if both else device]
