"""How far a gap reaches and what is known beside it: late returns, losses, proved work, the span."""

from __future__ import annotations

import pytest

from probes.schema import OffFlag
from tests import programs as p
from tests.programs import LAUNCH, QUERY, SYNC, Program, closed_by, started, with_streams

FREE = p.FREE


def malloc(program: Program, number: int) -> int:
    """Where the records of a program hold its n-th cudaMalloc."""
    calls = (program.batch()["op"] == p.items.api.OP_OF["cudaMalloc"]).nonzero()[0]
    return int(calls[number])


def test_a_sleeper_that_was_woken_and_got_no_cpu_opens_the_gap_when_it_was_woken() -> None:
    program = closed_by(SYNC)
    program.off(110, 995, 400, flags=int(OffFlag.WAKER_IRQ))
    assert program.gaps() == [(400, 3000)]
    program.call(LAUNCH, 500, 510, tid=11)  # another thread's work while it waits for its CPU
    assert program.gaps() == []


def test_a_sleeper_that_goes_on_waiting_opens_the_gap_when_it_returns() -> None:
    program = closed_by(SYNC)
    program.off(110, 450, 400, flags=int(OffFlag.WAKER_IRQ))
    assert program.gaps() == [(1000, 3000)]


def test_a_spinner_that_lost_its_cpu_opens_the_gap_when_it_returns() -> None:
    program = closed_by(SYNC)
    program.preempted(400, 995)
    assert program.gaps() == [(1000, 3000)]
    (span,) = program.analysis().gpu.spans
    assert span.unknown_ns >= 590 * p.US


def test_the_span_ends_with_the_last_gap_and_holds_it() -> None:
    (span,) = closed_by(SYNC).analysis().gpu.spans
    assert (span.begin, span.end, span.empty_ns) == (p.START, p.START + 3000 * p.US, 2000 * p.US)


def test_a_lost_record_voids_the_gaps_that_need_it() -> None:
    program = started()
    for begin in range(0, 50_000, 10_000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 5000)
        program.call("cudaMalloc", begin + 7000, begin + 7001)
    analysis = program.analysis([malloc(program, 1)])
    gaps = [(begin - p.START) // p.US for begin in analysis.gpu.gaps.begin.tolist()]
    assert gaps == [5000, 25_000, 35_000]
    assert analysis.gpu.voided_ns == 5000 * p.US


def test_a_stream_unproved_since_a_loss_leaves_gaps_strong() -> None:
    program = with_streams()
    program.call(LAUNCH, 10, 20, stream=FREE)
    program.call(SYNC, 30, 100, stream=FREE)
    for begin in range(10_000, 60_000, 10_000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 5000)
        program.call("cudaMalloc", begin + 5001, begin + 5002)
    analysis = program.analysis([malloc(program, 2)])
    assert [(begin - p.START) // p.US for begin in analysis.gpu.gaps.begin.tolist()] == [
        100,
        15_000,
        25_000,
        45_000,
    ]
    assert analysis.gaps.proved.tolist() == [True, True, True, False]


def test_pending_is_what_a_wait_had_to_wait_for() -> None:
    (span,) = closed_by(SYNC).analysis().gpu.spans
    assert span.pending_ns == (1000 - 10 - 10 - 20) * p.US  # less the latencies of launch and return
    (span,) = closed_by(QUERY).analysis().gpu.spans
    assert span.pending_ns == 0  # a query does not wait, however long it takes
    preempted = closed_by(SYNC)
    preempted.preempted(105, 999)
    (span,) = preempted.analysis().gpu.spans
    assert span.pending_ns == 0


@pytest.mark.parametrize(
    ("apart_us", "took_us", "waited"),
    [
        (80, 60, True),
        (900, 60, False),  # on real GPUs a synchronisation with nothing to wait for takes up to 68 us
        (900, 80, True),
        (300_000, 60, False),
        (300_000, 400, False),
        (300_000, 600, True),
    ],
)
def test_a_short_wait_long_after_the_last_work_may_just_have_returned_late(
    apart_us: int, took_us: int, *, waited: bool
) -> None:
    program = started()
    program.call(LAUNCH, 10, 20)
    program.call(SYNC, 20 + apart_us, 20 + apart_us + took_us)
    program.call(LAUNCH, 400_000, 400_010)
    (span,) = program.analysis().gpu.spans
    assert (span.pending_ns > 0) == waited


def test_a_query_that_finds_work_bounds_the_idle_time() -> None:
    program = closed_by(QUERY, ret=600)
    program.call(SYNC, 3020, 3025)
    (span,) = program.analysis().gpu.spans
    assert span.pending_ns == (100 - 10 - 20) * p.US
