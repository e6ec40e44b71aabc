"""What a GPU was given, as queues: ends, idle time and proofs against a loop over the operations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.analysis.evidence.columns import FOREVER
from gputop.analysis.proofs.work_queue import (
    COPY_NS,
    PINNED_RATE,
    START_NS,
    UNIT_NS,
    Queue,
    link_rate,
    queue_of,
)
from tests import items
from tests import programs as p
from tests.items import START
from tests.programs import D2D, D2H, H2D, LAUNCH, SYNC, US, Program, attached, started

NEVER = 1 << 62


def queue(
    ready: list[int],
    *,
    group: list[int] | None = None,
    limit: list[int] | None = None,
    streams: int = 1,
) -> Queue:
    """Kernels, each another one."""
    size = len(ready)
    return Queue(
        row=np.arange(size),
        thread=np.zeros(size, np.int64),
        ready=np.array(ready, np.int64),
        group=np.array([0] * size if group is None else group, np.int64),
        limit=np.array([NEVER] * size if limit is None else limit, np.int64),
        kernel=np.ones(size, np.bool_),
        fixed=np.zeros(size),
        staged=np.zeros(size, np.bool_),
        kind=np.arange(size),
        streams=streams,
    )


def slowly(made: Queue, duration: list[int]) -> list[tuple[int, int]]:
    """(begin, end) of each operation, one after the other; proofs cut them off."""
    found: list[tuple[int, int]] = []
    end, before = 0, -1
    for ready, group, limit, took in zip(
        made.ready.tolist(), made.group.tolist(), made.limit.tolist(), duration, strict=True
    ):
        begin = ready if group != before else max(end, ready)
        end, before = begin + took, group
        found.append((min(begin, limit), min(end, limit)))
    return found


def idle_slowly(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where none of the operations is under way, between the first and the last."""
    gaps, reach = [], None
    for begin, end in sorted(row for row in rows if row[1] > row[0]):
        if reach is not None and begin > reach:
            gaps.append((reach, begin))
        reach = end if reach is None else max(reach, end)
    return gaps


@st.composite
def queues(draw: st.DrawFn, streams: int = 1, least: int = 0) -> tuple[Queue, list[int]]:
    """A queue of some streams with proofs in them, and durations; times are whole units.

    Each operation is there for the ``least`` of units.
    """
    ready, group, limit, duration = [], [], [], []
    number = 0
    for _ in range(streams):
        at = draw(st.integers(0, 50)) * UNIT_NS
        for _ in range(draw(st.integers(1, 4))):
            size = draw(st.integers(1, 8))
            for _ in range(size):
                at += draw(st.integers(0, 30)) * UNIT_NS
                ready.append(at)
                group.append(number)
                duration.append(draw(st.integers(least, 60)) * UNIT_NS)
            # a proof comes after the last of them was given, perhaps before the durations would have it
            at += draw(st.integers(least, 100)) * UNIT_NS
            limit += [at] * size
            number += 1
        last = draw(st.booleans())
        if last:
            limit[-size:] = [NEVER] * size
    return queue(ready, group=group, limit=limit, streams=streams), duration


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(queues())
def test_ends_are_those_of_a_loop_over_the_operations(case: tuple[Queue, list[int]]) -> None:
    made, duration = case
    free = replace(made, limit=np.full(len(made), NEVER))
    assert free.ends(np.array(duration, float)).tolist() == [end for _begin, end in slowly(free, duration)]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(queues())
def test_no_operation_takes_longer_than_until_the_proof(case: tuple[Queue, list[int]]) -> None:
    made, duration = case
    real = made.real(np.array(duration, float)).tolist()
    assert real == [end - begin for begin, end in slowly(made, duration)]


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.slow
@pytest.mark.mainly("1", "2")
def test_idle_is_where_no_stream_has_an_operation_under_way(streams: int) -> None:
    @settings(max_examples=150, deadline=None)
    @given(queues(streams, least=1))
    def check(case: tuple[Queue, list[int]]) -> None:
        made, duration = case
        begin, end = made.idle(np.array(duration, float))
        *between, last = zip(begin.tolist(), end.tolist(), strict=True)
        assert between == idle_slowly(slowly(made, duration))
        assert last == (max(until for _begin, until in slowly(made, duration)), FOREVER), "nothing came after"

    check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 20_000)), min_size=1, max_size=50))
def test_times_that_are_no_whole_units_are_right_to_a_unit_an_operation(
    rows: list[tuple[int, float]],
) -> None:
    made = queue(np.cumsum([wait for wait, _took in rows]).tolist())
    told = made.ends(np.array([took for _wait, took in rows]))
    end = 0.0
    for place, (ready, (_wait, took)) in enumerate(zip(made.ready.tolist(), rows, strict=True)):
        end = max(end, ready) + took
        assert abs(told[place] - end) <= UNIT_NS * (place / 2 + 1.5)


@pytest.mark.parametrize("streams", [1, 2])
def test_work_without_a_pause_leaves_no_slivers_of_idle_time(streams: int) -> None:
    ready = list(range(0, 50_000, 50))
    made = queue(ready, group=[0] * len(ready), streams=streams)
    begin, end = made.idle(np.linspace(1_001, 2_003, len(ready)))
    assert end.tolist() == [FOREVER]
    assert begin[0] > ready[-1]


def test_an_empty_queue_has_neither_ends_nor_idle_time() -> None:
    made = queue([])
    none = np.zeros(0)
    assert not len(made.ends(none))
    assert not len(made.real(none))
    assert not len(made.idle(none)[0])


def test_a_days_queues_of_many_groups_do_not_overflow() -> None:
    day, groups = 86_400 * 10**9, 1_000
    ready = np.linspace(0, day, 10 * groups).astype(np.int64) // UNIT_NS * UNIT_NS
    made = queue(ready.tolist(), group=np.repeat(np.arange(groups), 10).tolist())
    duration = [5 * 10**9] * len(ready)
    assert made.ends(np.array(duration, float)).tolist() == [end for _begin, end in slowly(made, duration)]


def given_by(program: Program) -> Queue:
    """What the program's GPU was given."""
    evidence = program.evidence()
    analysis = program.analysis()
    return queue_of(evidence, analysis.gpu, int(analysis.gpu.spans[0].device))


def at(us: int) -> int:
    """Of a moment of a program, ns."""
    return START + us * US


def test_an_operation_can_begin_some_time_after_its_launch_returned() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(LAUNCH, 20, 31)
    program.call(SYNC, 40, 900)
    assert given_by(program).ready.tolist() == [at(10) + START_NS, at(31) + START_NS]


def test_a_proof_parts_the_queue_and_is_the_latest_end_of_what_came_before() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(LAUNCH, 20, 30)
    program.call(SYNC, 40, 900)
    program.call(LAUNCH, 1000, 1010)
    program.call(LAUNCH, 1020, 1030)
    made = given_by(program)
    assert np.diff(made.group).tolist() == [0, 1, 0]
    assert made.limit[0] == made.limit[1] <= at(900)
    assert (made.limit[2:] >= NEVER).all(), "nobody waited for the last"


def test_a_wait_for_one_stream_proves_nothing_of_another() -> None:
    program = started()
    for handle in (0x101, 0x103):
        program.call("cudaStreamCreateWithFlags", 0, 1, stream=handle, aux=1)
    for handle, begin in ((0x101, 10), (0x103, 30), (0x101, 50)):
        program.call(LAUNCH, begin, begin + 10, stream=handle)
    program.call(SYNC, 100, 900, stream=0x101)
    program.call(LAUNCH, 1000, 1010, stream=0x101)
    made = given_by(program)
    assert made.streams == 2
    ends = {int(ready): int(limit) for ready, limit in zip(made.ready, made.limit, strict=True)}
    assert ends[at(20) + START_NS] <= at(900)
    assert ends[at(40) + START_NS] >= NEVER
    assert ends[at(60) + START_NS] <= at(900)


def test_the_same_kernel_of_the_same_process_has_one_number() -> None:
    program = started()
    program.starts(1000)
    for number, (pid, kernel) in enumerate([(10, 1), (10, 2), (1000, 1), (10, 1), (1000, 2), (1000, 1)]):
        program.call(LAUNCH, 100 * number, 100 * number + 10, pid=pid, tid=pid, aux=p.KERNEL + kernel)
    program.call(SYNC, 1000, 2000)
    made = given_by(program)
    kinds = dict(
        zip(((made.ready - START - START_NS) // US // 100).tolist(), made.kind.tolist(), strict=True)
    )
    assert kinds[0] == kinds[3]
    assert kinds[2] == kinds[5]
    assert len(set(kinds.values())) == 4


def test_copies_last_as_their_bytes_do_and_are_no_kernels() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(p.COPY_ASYNC, 20, 30, kind=D2H, bytes=120_000, aux=1 << 40)
    program.call(p.COPY_ASYNC, 40, 50, kind=D2D, bytes=1_500_000)
    program.call("cudaMemsetAsync", 60, 70, bytes=3_000_000)
    program.call(SYNC, 80, 900)
    made = given_by(program)
    order = np.argsort(made.ready)
    assert made.kernel[order].tolist() == [True, False, False, False]
    assert made.fixed[order].tolist() == pytest.approx(
        [0, COPY_NS + 120_000 / PINNED_RATE, COPY_NS + 1_000, COPY_NS + 2_000]
    )
    assert (made.kind[order] >= 0).tolist() == [True, False, False, False]


def test_what_the_cpu_staged_inside_the_call_is_not_moved_again_after_it() -> None:
    size = 12_000_000
    program = started()
    program.call("cudaHostAlloc", 0, 5, bytes=size, stream=0x5000_0000)
    program.call(p.COPY_ASYNC, 100, 1_100, kind=H2D, bytes=size, aux=1 << 40)
    program.call(LAUNCH, 1_200, 1_210)
    program.call(SYNC, 1_220, 1_900)
    made = given_by(program)
    copy = np.flatnonzero(~made.kernel)
    assert made.staged[copy].tolist() == [True]
    assert made.fixed[copy].tolist() == [COPY_NS], "the link moved it while the CPU staged it"
    slow = started()
    slow.call(p.COPY_ASYNC, 100, 2_100, kind=H2D, bytes=size, aux=1 << 40)
    slow.call(LAUNCH, 2_200, 2_210)
    assert given_by(slow).fixed.max() == COPY_NS, "no less where the CPU took longer than the link"
    small = started()
    small.call(p.COPY_ASYNC, 100, 110, kind=H2D, bytes=4096, aux=1 << 40)
    small.call(LAUNCH, 200, 210)
    assert not given_by(small).staged.any()


def test_what_was_running_before_the_recording_makes_no_difference_to_the_queue() -> None:
    program = started()
    for begin in range(0, 1000, 100):
        program.call(LAUNCH, begin, begin + 10)
    program.call(SYNC, 1000, 2000)
    whole, late = given_by(program), given_by(attached(program))
    assert late.ready.tolist() == whole.ready.tolist()
    assert late.limit.tolist() == whole.limit.tolist()


def test_the_first_so_many_operations_are_a_part_of_the_whole() -> None:
    program = started()
    for begin in range(0, 2000, 100):
        program.call(LAUNCH, begin, begin + 10)
    program.call(SYNC, 2000, 3000)
    evidence, gpu = program.evidence(), program.analysis().gpu
    whole, part = queue_of(evidence, gpu, 0), queue_of(evidence, gpu, 0, most=7)
    assert part.ready.tolist() == whole.ready[:7].tolist()
    assert part.limit.tolist() == whole.limit[:7].tolist()


def test_what_was_proved_complete_before_it_could_begin_took_no_time() -> None:
    assert queue([96, 192], group=[0, 1], limit=[50, NEVER]).real(np.array([30.0, 32.0])).tolist() == [0, 32]


@pytest.mark.parametrize("first", [LAUNCH, "cudaLaunchHostFunc"])
def test_what_a_group_of_collectives_started_is_a_kernel_of_no_known_kind(first: str) -> None:
    """Whatever the first of all calls is, whose row it has not."""
    program = started()
    program.call(first, 0, 10)
    program.call("ncclGroupStart", 1100, 1101)
    program.call("cuLaunchKernel", 1500, 1510, nested=1)
    program.call("ncclGroupEnd", 1400, 1600)
    made = given_by(program)
    assert made.kernel[np.argsort(made.ready)].tolist() == [first == LAUNCH, True]
    assert made.kind[np.argsort(made.ready)].tolist()[1] == -1


@pytest.mark.parametrize("op", ["cudaLaunchHostFunc", "cuStreamWaitValue32"])
@pytest.mark.parametrize("first", [True, False])
def test_what_only_holds_a_stream_up_is_no_kernel(op: str, first: bool) -> None:
    """Also where it is the first of all calls."""
    program = started()
    program.call(op if first else LAUNCH, 0, 10)
    program.call(LAUNCH if first else op, 20, 30)
    program.call(SYNC, 40, 900)
    assert given_by(program).kernel.tolist() == [not first, first]


@pytest.mark.parametrize(("generation", "width"), [(3, 16), (4, 16), (5, 8)])
def test_a_copy_takes_as_long_as_the_newest_that_nvml_says_of_the_link(generation: int, width: int) -> None:
    """A lane of PCIe 3 moves 985 MB a second, of each further generation twice of that; 0.8 of it arrives."""
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(p.COPY_ASYNC, 20, 30, kind=D2H, bytes=120_000, aux=1 << 40)
    known = items.gpus(START, 0)
    known.data["gpus"][0].update(pcie_generation=generation, pcie_width=width)
    old = items.gpus(START, 0)
    old.data["gpus"][0].update(pcie_generation=1, pcie_width=1)
    program.samples += [old, known]  # and a later one that does not know it
    rate = 0.8 * 0.985 * {3: 1, 4: 2, 5: 4}[generation] * width
    assert given_by(program).fixed.max() == pytest.approx(COPY_NS + 120_000 / rate)


@pytest.mark.parametrize("figures", [{}, {"pcie_generation": 4}, {"pcie_width": 16}])
def test_a_link_that_nvml_does_not_report_counts_as_pcie_3(figures: dict[str, int]) -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    told = items.gpus(START, 0)
    told.data["gpus"][0].update(figures)
    program.samples.append(told)
    assert link_rate(program.evidence()) == PINNED_RATE
