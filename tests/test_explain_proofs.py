"""What proves a GPU idle and what does not: a test for each rule of docs/explain.md."""

from __future__ import annotations

import pytest

from tests import programs as p
from tests.programs import (
    BLOCKING,
    COPY,
    D2D,
    D2H,
    FREE,
    H2D,
    LAUNCH,
    MAIN,
    PER_THREAD,
    QUERY,
    SYNC,
    Program,
    attached,
    closed_by,
    started,
    with_streams,
)

PROVES = [
    (p.DEVICE_SYNC, {}),
    ("cuCtxSynchronize", {}),
    (SYNC, {}),
    (SYNC, {"stream": 1}),  # another name of the legacy default stream
    ("cuStreamSynchronize", {}),
    (QUERY, {}),
    (COPY, {"kind": D2H, "bytes": 64}),
    ("cuMemcpyDtoH", {"kind": D2H, "bytes": 64}),
]
PROVES_NOTHING = [
    (QUERY, {"ret": 600}),
    (SYNC, {"ret": 700}),
    (SYNC, {"stream": FREE}),
    (SYNC, {"stream": PER_THREAD}),
    (SYNC, {"abandoned": 1}),
    (COPY, {"kind": D2H, "bytes": 0}),
    (COPY, {"kind": H2D, "bytes": 64}),  # from pageable memory: the copy itself may be under way
    (COPY, {"kind": D2D, "bytes": 64}),
    (COPY, {"kind": 0, "bytes": 64}),
    (COPY, {"kind": 4, "bytes": 64}),
    ("cudaMemcpyAsync", {"kind": D2H, "bytes": 64}),
    ("cudaMemset", {"bytes": 64}),
    ("cudaFree", {}),
    ("cudaMalloc", {"bytes": 64}),
    ("cudaHostAlloc", {"bytes": 64}),
    ("cudaFreeHost", {}),
    ("cuModuleLoadData", {}),
    ("cudaExecutionCtxSynchronize", {}),
]


@pytest.mark.parametrize(("op", "more"), PROVES)
def test_calls_whose_success_proves_the_stream_empty(op: str, more: dict[str, int]) -> None:
    assert closed_by(op, **more).gaps() == [(1000, 3000)]


@pytest.mark.parametrize(("op", "more"), PROVES_NOTHING)
def test_calls_that_prove_nothing(op: str, more: dict[str, int]) -> None:
    assert closed_by(op, **more).gaps() == []


def test_a_sync_before_all_work_is_no_proof_and_no_trouble() -> None:
    program = started()
    program.call(p.DEVICE_SYNC, 0, 5)
    program.call(LAUNCH, 10, 20)
    assert program.gaps() == []


def test_a_copy_from_page_locked_memory_waits_for_itself() -> None:
    program = started()
    program.call("cudaHostAlloc", 0, 5, aux=0x7000, bytes=4096)
    program.call(COPY, 100, 1000, kind=H2D, bytes=64, aux=0x7010)
    program.call("cudaFreeHost", 2000, 2005, aux=0x7000)
    program.call(COPY, 3000, 4000, kind=H2D, bytes=64, aux=0x7010)
    program.call(LAUNCH, 6000, 6010)
    assert program.gaps() == [(1000, 3000)]


def test_an_enqueueing_beside_the_sync_voids_it_until_the_next() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(LAUNCH, 90, 120, tid=11)  # had not returned when the sync was called
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    program.call(SYNC, 3020, 4000)
    program.call(LAUNCH, 5000, 5010)
    assert program.gaps() == [(4000, 5000)]


def test_an_enqueueing_during_the_sync_voids_it() -> None:
    program = closed_by(SYNC)
    program.call(LAUNCH, 400, 410, tid=11)
    assert program.gaps() == []


def test_a_copy_beside_another_threads_launch_proves_nothing() -> None:
    program = closed_by(COPY, kind=D2H, bytes=64)
    program.call(LAUNCH, 990, 1000, tid=11)  # both return in the same instant
    assert program.gaps() == []


def test_the_gap_ends_where_the_next_enqueueing_begins_on_any_thread() -> None:
    program = closed_by(SYNC)
    program.call(LAUNCH, 2000, 6000, tid=11)
    assert program.gaps() == [(1000, 2000)]


def test_a_failed_launch_gives_no_work_and_one_that_never_returned_may_have() -> None:
    program = closed_by(SYNC)
    program.call(LAUNCH, 2000, 2010, ret=1)
    assert program.gaps() == [(1000, 3000)]
    program.call(LAUNCH, 1500, 1600, abandoned=1)
    assert program.gaps() == [(1000, 1500)]


def test_a_call_under_way_at_the_end_may_give_any_stream_work() -> None:
    program = closed_by(SYNC)
    op = p.items.api.OP_OF["cudaMemcpyAsync"]
    program.opened = [{"tid": 11, "op": op, "call_since": p.START + 2000 * p.US}]
    assert program.gaps() == [(1000, 2000)]


def test_all_streams_must_be_empty() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call(LAUNCH, 30, 40, stream=FREE)
    program.call(SYNC, 100, 1000, stream=BLOCKING)
    program.call(SYNC, 1100, 2000, stream=FREE)
    program.call(LAUNCH, 3000, 3010, stream=BLOCKING)
    assert program.gaps() == [(2000, 3000)]


def test_a_device_sync_proves_all_streams() -> None:
    program = with_streams()
    for begin, stream in ((10, BLOCKING), (30, FREE), (50, 0), (70, PER_THREAD)):
        program.call(LAUNCH, begin, begin + 10, stream=stream)
    program.call(p.DEVICE_SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


def after_legacy(*, stream: int, tid: int = MAIN) -> list[tuple[int, int]]:
    """Work on a stream, then on the legacy default stream, which alone is waited for."""
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=stream, tid=tid)
    program.call(LAUNCH, 30, 40)
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    return program.gaps()


def test_the_legacy_stream_speaks_for_blocking_streams_only() -> None:
    assert after_legacy(stream=BLOCKING) == [(1000, 3000)]
    assert after_legacy(stream=PER_THREAD, tid=11) == [(1000, 3000)]
    assert after_legacy(stream=FREE) == []
    assert after_legacy(stream=0x200) == []  # its creation was not seen


def test_a_stream_made_anew_without_blocking_is_not_trusted() -> None:
    program = with_streams()
    program.call("cudaStreamDestroy", 4, 5, stream=BLOCKING)
    program.call("cudaStreamCreateWithFlags", 6, 7, stream=BLOCKING, aux=1)
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call(LAUNCH, 30, 40)
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == []


def test_a_blocking_stream_speaks_for_the_legacy_stream() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20)
    program.call(LAUNCH, 30, 40, stream=BLOCKING)
    program.call(SYNC, 100, 1000, stream=BLOCKING)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


def test_a_copy_through_the_legacy_stream_waits_for_blocking_streams() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call(COPY, 100, 1000, kind=D2H, bytes=64)
    program.call(LAUNCH, 3000, 3010, stream=BLOCKING)
    assert program.gaps() == [(1000, 3000)]


@pytest.mark.parametrize("more", [{"kind": 0, "bytes": 64}, {"kind": D2D, "bytes": 0}])
def test_a_copy_that_moves_nothing_on_the_gpu_orders_no_streams(more: dict[str, int]) -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=BLOCKING)
    program.call(COPY, 30, 40, **more)
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == []


def test_per_thread_default_streams_are_one_for_each_thread() -> None:
    program = started()
    program.call(LAUNCH, 0, 10, stream=PER_THREAD)
    program.call(LAUNCH, 0, 10, stream=PER_THREAD, tid=11)
    program.call(SYNC, 100, 1000, stream=PER_THREAD)
    program.call(LAUNCH, 3000, 3010, stream=PER_THREAD)
    assert program.gaps() == []
    program.call(SYNC, 100, 2000, stream=PER_THREAD, tid=11)
    assert program.gaps() == [(2000, 3000)]


def recorded(*, launched_after: bool = False, ret: int = 0) -> Program:
    """Work, an event behind it, a wait for the event; work between the two where requested."""
    program = started()
    program.call("cudaEventCreate", 0, 1, stream=0x9000)
    program.call(LAUNCH, 10, 20)
    program.call(p.RECORD, 30, 35, aux=0x9000)
    if launched_after:
        program.call(LAUNCH, 40, 45)
    program.call(p.EVENT_SYNC, 100, 1000, aux=0x9000, ret=ret)
    program.call(LAUNCH, 3000, 3010)
    return program


def test_an_event_proves_what_was_enqueued_before_its_record() -> None:
    assert recorded().gaps() == [(1000, 3000)]
    assert recorded(launched_after=True).gaps() == []
    assert recorded(ret=700).gaps() == []


def test_an_event_that_was_never_recorded_proves_nothing() -> None:
    program = recorded()
    program.records = [one for one in program.records if one["op"][0] != p.items.api.OP_OF[p.RECORD]]
    assert program.gaps() == []


@pytest.mark.parametrize(
    ("op", "begin", "end", "more"),
    [
        (p.RECORD, 50, 55, {"aux": 0x9000, "stream": FREE}),  # moved to another stream
        (p.RECORD, 25, 45, {"aux": 0x9000, "stream": FREE, "tid": 11}),  # perhaps after the other
        (p.RECORD, 400, 405, {"aux": 0x9000, "stream": FREE, "tid": 11}),  # perhaps before the wait looked
        ("cudaEventCreate", 50, 55, {"stream": 0x9000}),  # another event at the same address
    ],
)
def test_an_event_that_may_be_recorded_elsewhere_proves_nothing(
    op: str, begin: int, end: int, more: dict[str, int]
) -> None:
    program = recorded()
    program.call(op, begin, end, **more)
    assert program.gaps() == []


def test_a_wait_for_an_event_carries_a_proof_from_stream_to_stream() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=FREE)
    program.call(p.RECORD, 30, 35, aux=0x9000, stream=FREE)
    program.call(p.WAIT, 40, 45, aux=0x9000)
    program.call(LAUNCH, 50, 60)
    program.call(SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


def test_what_is_captured_orders_nothing() -> None:
    program = with_streams()
    program.call(LAUNCH, 5, 8, stream=FREE)
    program.call("cudaStreamBeginCapture", 10, 12, stream=FREE)
    program.call(p.RECORD, 30, 35, aux=0x9000, stream=FREE)
    program.call(p.WAIT, 40, 45, aux=0x9000, stream=BLOCKING)
    program.call("cudaStreamEndCapture", 50, 52, stream=FREE)
    program.call(LAUNCH, 60, 70, stream=BLOCKING)
    program.call(SYNC, 100, 1000, stream=BLOCKING)
    program.call(LAUNCH, 3000, 3010, stream=BLOCKING)
    assert program.gaps() == []


def test_graphs_and_host_functions_are_work_of_their_stream() -> None:
    for op in ("cudaGraphLaunch", "cudaLaunchHostFunc", "ncclAllReduce", "cudaMallocAsync"):
        program = closed_by(SYNC)
        program.call(op, 2000, 2010)
        assert program.gaps() == [(1000, 2000)], op


def test_what_a_group_of_collectives_starts_is_work() -> None:
    program = closed_by(SYNC)
    program.call("ncclGroupStart", 1100, 1101)
    program.call("cuLaunchKernel", 1500, 1510, nested=1)
    program.call("ncclGroupEnd", 1400, 1600)
    assert program.gaps() == [(1000, 1500)]


def test_what_a_group_starts_is_work_of_the_gpu_that_its_thread_chose() -> None:
    program = started()
    program.call("cudaSetDevice", 0, 1, aux=1)
    program.call(LAUNCH, 2, 10)
    program.call(SYNC, 100, 1000)
    program.call("ncclGroupStart", 1100, 1101)
    program.call("cuLaunchKernel", 1500, 1510, nested=1)
    program.call("ncclGroupEnd", 1400, 1600)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 1500)]


def test_a_grouped_program_still_proves_by_its_copies() -> None:
    program = closed_by(COPY, kind=D2H, bytes=64)
    program.call("ncclGroupStart", 1, 2)
    program.call("ncclGroupEnd", 3, 4)
    program.call("cuMemcpyDtoH", 150, 990, kind=D2H, bytes=64, nested=1)
    assert program.gaps() == [(1000, 3000)]


def test_streams_of_another_gpu_are_not_waited_for() -> None:
    program = started()
    program.samples.append(p.items.gpus(p.START, 0))
    program.call("cudaSetDevice", 0, 1, aux=1)
    program.call(LAUNCH, 10, 20)
    program.call("cudaSetDevice", 30, 31, aux=0)
    program.call(LAUNCH, 40, 50)
    program.call(p.DEVICE_SYNC, 100, 1000)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]  # device 0; device 1 is never proved empty


def test_a_stream_belongs_to_the_gpu_where_it_was_made() -> None:
    program = started()
    program.call("cudaStreamCreateWithFlags", 0, 1, stream=FREE, aux=1)
    program.call(LAUNCH, 2, 8, stream=FREE)
    program.call(LAUNCH, 9, 10)
    program.call("cudaSetDevice", 11, 12, aux=1)
    program.call("cudaMemcpyAsync", 20, 30, stream=FREE, kind=D2D, bytes=64)  # still device 0's stream
    program.call("cudaSetDevice", 40, 41, aux=0)
    program.call(SYNC, 50, 60)
    program.call(SYNC, 70, 1000, stream=FREE)
    program.call(LAUNCH, 3000, 3010)
    assert program.gaps() == [(1000, 3000)]


def test_two_processes_share_a_gpu_and_both_must_be_idle() -> None:
    program = closed_by(SYNC)
    program.starts(20)
    program.call(LAUNCH, 0, 10, pid=20)
    assert program.gaps() == []
    program.call(SYNC, 100, 2000, pid=20)
    assert program.gaps() == [(2000, 3000)]


def test_the_start_of_a_further_process_ends_no_gap() -> None:
    program = closed_by(SYNC)
    program.starts(20)
    program.call(LAUNCH, 2000, 2010, pid=20)
    program.call(SYNC, 2100, 2900, pid=20)
    assert program.gaps() == [(2900, 3000)]


def test_a_process_that_ends_gives_up_its_work_but_that_is_no_proof() -> None:
    program = closed_by(SYNC)
    program.starts(20)
    program.call(LAUNCH, 0, 10, pid=20)
    program.ends(2000, pid=20)
    assert program.gaps() == []
    assert program.gaps(proved=False) == [(2000, 3000)]


def test_a_process_from_before_is_proved_after_a_device_sync() -> None:
    program = started()
    for number, op in enumerate((SYNC, p.DEVICE_SYNC, SYNC)):
        program.call(LAUNCH, 3000 * number, 3000 * number + 10)
        program.call(op, 3000 * number + 100, 3000 * number + 1000)
    program.call(LAUNCH, 9000, 9010)
    late = attached(program)
    assert program.gaps() == [(1000, 3000), (4000, 6000), (7000, 9000)]
    assert late.gaps() == [(4000, 6000), (7000, 9000)]
    assert late.gaps(proved=False) == [(1000, 3000)]


@pytest.mark.parametrize("other", [MAIN - 1, MAIN + 1])
def test_of_two_processes_the_one_from_before_must_have_waited_for_its_device(other: int) -> None:
    program = closed_by(SYNC)
    program.samples.append(p.items.process(other, cuda_visible_devices=None))
    program.call(LAUNCH, 0, 10, pid=other)
    program.call(SYNC, 20, 900, pid=other)
    assert (program.gaps(), program.gaps(proved=False)) == ([], [(1000, 3000)])
    program.call(p.DEVICE_SYNC, 910, 950, pid=other)
    assert program.gaps() == [(1000, 3000)]


def test_who_waited_for_one_gpu_has_not_waited_for_another() -> None:
    program = started()
    program.call(p.DEVICE_SYNC, 20, 100)
    program.call("cudaSetDevice", 110, 120, aux=1)
    program.call(LAUNCH, 130, 140)
    program.call(SYNC, 150, 1000)
    program.call(LAUNCH, 3000, 3010)
    late = attached(program)
    assert (late.gaps(), late.gaps(proved=False)) == ([], [(1000, 3000)])
