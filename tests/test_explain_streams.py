"""Which stream each operation goes to, in which order, and which streams wait for one another."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gputop.analysis.evidence.api_classes import Role
from gputop.analysis.proofs.streams import CROWD, Streams
from probes import api
from tests.items import START
from tests.programs import BLOCKING, FREE, LAUNCH, MAIN, SYNC, US, WAIT, started, with_streams


def of_handle(streams: Streams, handle: int) -> int:
    """The number of a stream."""
    return streams.handle.tolist().index(handle)


def test_the_default_stream_and_a_usual_one_wait_for_each_other_and_two_usual_ones_do_not() -> None:
    program = with_streams()
    program.call("cudaStreamCreate", 4, 5, stream=0x102)
    for number, stream in enumerate((0, BLOCKING, FREE, 0x102)):
        program.call(LAUNCH, 10 + 10 * number, 15 + 10 * number, stream=stream)
    streams = program.analysis().gpu.streams
    legacy, usual, free, other = (of_handle(streams, handle) for handle in (0, BLOCKING, FREE, 0x102))
    assert sorted(streams.peers(legacy)) == sorted([usual, other])
    assert streams.peers(usual) == [legacy]
    assert streams.peers(free) == []


def test_streams_of_different_processes_do_not_wait_for_each_other() -> None:
    program = with_streams()
    program.starts(20)
    for pid in (MAIN, 20):
        program.call("cudaStreamCreate", 4, 5, pid=pid, stream=0x102)
        program.call(LAUNCH, 10, 15, pid=pid)
        program.call(LAUNCH, 20, 25, pid=pid, stream=0x102)
    streams = program.analysis().gpu.streams
    for stream in range(len(streams)):
        (peer,) = streams.peers(stream)
        assert streams.pid[peer] == streams.pid[stream]
        assert streams.handle[peer] != streams.handle[stream]


def test_operations_are_in_the_order_of_their_return_also_when_two_threads_give_them_at_once() -> None:
    program = started()
    program.call(LAUNCH, 0, 100, aux=0xA)
    program.call(LAUNCH, 10, 50, tid=11, aux=0xB)
    streams = program.analysis().gpu.streams
    ends = streams.enqueue_end[streams.operations(0)]
    assert ((ends - START) // US).tolist() == [50, 100]


@pytest.mark.parametrize(
    ("op", "gives"),
    [(LAUNCH, True), ("cudaMemcpy", True), (SYNC, False), (WAIT, False), ("cudaMalloc", False)],
)
def test_a_call_that_never_returned_may_have_given_every_stream_of_its_process_work(
    op: str, gives: bool
) -> None:
    program = with_streams()
    program.starts(20)
    program.call(LAUNCH, 10, 20, stream=FREE)
    program.call(LAUNCH, 30, 40)
    program.call(LAUNCH, 30, 40, pid=20)
    program.opened = [{"pid": MAIN, "tid": 12, "op": api.OP_OF[op], "call_since": START + 100 * US}]
    streams = program.analysis().gpu.streams
    late = np.flatnonzero(streams.enqueue_begin == START + 100 * US)
    handles = streams.handle[streams.enqueue_stream[late]].tolist()
    assert sorted(handles) == ([0, FREE] if gives else [])
    assert set(streams.pid[streams.enqueue_stream[late]].tolist()) <= {MAIN}
    # of no call that is on record
    assert set(streams.enqueue_row[late].tolist()) <= {-1}


@pytest.mark.parametrize(
    ("begin", "end", "pid", "inside"),
    [
        (110, 120, MAIN, True),
        (90, 110, MAIN, True),
        (190, 210, MAIN, True),
        (80, 90, MAIN, False),
        (210, 220, MAIN, False),
        (110, 120, 20, False),
    ],
)
def test_a_call_during_a_capture_of_its_own_process_may_be_in_the_graph(
    begin: int, end: int, pid: int, inside: bool
) -> None:
    program = with_streams()
    program.starts(20)
    program.call("cudaStreamBeginCapture", 100, 105, stream=FREE)
    program.call("cudaStreamEndCapture", 195, 200, stream=FREE)
    program.call(LAUNCH, begin, end, tid=12 if pid == MAIN else pid, pid=pid)
    evidence = program.evidence()
    streams = program.analysis().gpu.streams
    rows = np.flatnonzero(evidence.calls["op"] == api.OP_OF[LAUNCH])
    assert streams.captured(rows).tolist() == [inside]


def test_what_is_put_into_a_stream_during_its_second_capture_is_put_into_a_graph_too() -> None:
    program = with_streams()
    for begin in (100, 300, 500):
        program.call("cudaStreamBeginCapture", begin, begin + 5, stream=FREE)
        program.call(LAUNCH, begin + 10, begin + 20, stream=FREE)
        program.call("cudaStreamEndCapture", begin + 30, begin + 35, stream=FREE)
        program.call(LAUNCH, begin + 50, begin + 60, stream=FREE)
    evidence = program.evidence()
    streams = program.analysis().gpu.streams
    rows = np.flatnonzero(evidence.calls["op"] == api.OP_OF[LAUNCH])
    rows = rows[np.argsort(evidence.calls["begin"][rows])]
    assert streams.into_graphs(rows).tolist() == [True, False] * 3


@pytest.mark.parametrize(
    ("most", "crowded"),
    [(15, set()), (14, {10}), (11, {10, 20}), (3, {10, 20, 30})],  # they have 9, 4 and 2 streams
)
def test_who_has_most_streams_has_one_in_place_of_them_until_half_as_many_are_left_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch, most: int, crowded: set[int]
) -> None:
    monkeypatch.setattr(sys.modules[Streams.__module__], "MOST_STREAMS", most)
    program = started()
    for pid, count in ((20, 4), (10, 9), (30, 2)):
        program.starts(pid)
        for number in range(count):
            program.call(LAUNCH, 20 + number, 21 + number, pid=pid, stream=0x1000 + number)
    streams = program.analysis().gpu.streams
    assert set(streams.pid[streams.handle == CROWD].tolist()) == crowded


@pytest.mark.parametrize("gpus", [1, 2])
def test_of_a_crowd_over_two_gpus_nobody_knows_which_of_them_has_its_work(
    monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    monkeypatch.setattr(sys.modules[Streams.__module__], "MOST_STREAMS", 4)
    program = started()
    for number in range(8):
        if gpus == 2 and number == 4:
            program.call("cudaSetDevice", 50, 51, aux=1)
        program.call(LAUNCH, 20 + 10 * number, 21 + 10 * number, stream=0x1000 + number)
    streams = program.analysis().gpu.streams
    assert streams.handle.tolist() == [CROWD] * gpus
    assert [streams.is_of_one_gpu(stream) for stream in range(gpus)] == [gpus == 1] * gpus


def test_a_process_that_makes_up_streams_without_end_keeps_nobody_else_from_being_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[Streams.__module__], "MOST_STREAMS", 20)
    program = started()
    program.starts(20)
    program.call(LAUNCH, 0, 5, aux=0xA)
    program.call(SYNC, 5, 10)
    for number in range(30):
        program.call(LAUNCH, 20 + number, 21 + number, pid=20, stream=0x1000 + number)
    program.call("cudaStreamSynchronize", 60, 61, pid=20, stream=0x1000)
    program.call(LAUNCH, 100, 105, aux=0xA)
    streams = program.analysis().gpu.streams
    assert sorted(zip(streams.pid.tolist(), streams.handle.tolist(), strict=True)) == [(MAIN, 0), (20, CROWD)]
    crowd = streams.handle.tolist().index(CROWD)
    assert len(streams.operations(crowd)) == 30
    assert streams.peers(crowd) == []
    named = streams.number(streams.rows(Role.PROVE_STREAM)).tolist()
    assert crowd not in named, "no call says that such a stream is empty"
