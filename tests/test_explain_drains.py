"""Which wait drained the queue, whose the short gaps are, which rank is late: facts beside the causes."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.explain.answer.report import Finding
from gputop.explain.causes import CATALOGUE
from gputop.explain.causes.drains import MANY_READS, Drain, drained, host_is_faster, read_between
from gputop.explain.chains.scene import Scene
from gputop.explain.findings.attribution import owners
from gputop.explain.findings.findings import find
from gputop.explain.findings.shortgaps import causes_of_short, ends_with_copy, short_gaps
from tests.programs import LAUNCH, MAIN, SYNC, US, Program, attached, started
from tests.simulated import SECOND, Deed, Machine

Steps = list[Deed]


def scene(step: Steps, length: int = 3 * SECOND) -> Scene:
    """A loop of some seconds with NVML beside it."""
    machine = Machine()
    while machine.length < length:
        machine.run(step)
    machine.run([Deed("sync")])
    machine.utilization(SECOND // 6)
    return Scene(machine.finished().analysis())


def paced(work: int, between: int, *more: Deed) -> Steps:
    """Ten kernels, each after some Python."""
    return [
        *(one for number in range(10) for one in (Deed("host", between), Deed("launch", work, number))),
        *more,
    ]


def named(found: Scene) -> dict[str, float]:
    """Share of the span by cause, of what is told or too small for it."""
    span = sum(span.span_ns for span in found.analysis.gpu.spans)
    outcome = find(found, span, coverage=True)
    return {one.cause: one.loss.middle / span for one in outcome.findings}


def test_a_host_is_faster_that_would_be_ahead_without_its_waits() -> None:
    assert host_is_faster(scene(paced(400, 30, Deed("read"))), MAIN)
    assert not host_is_faster(scene(paced(30, 400, Deed("read"))), MAIN)


def test_waits_are_no_work_of_the_host() -> None:
    """The host sleeps in its waits for two thirds of the time, and is the faster one."""
    assert host_is_faster(scene(paced(300, 100, Deed("sync"))), MAIN)


def test_a_process_without_steps_is_not_faster() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 20, 900)
    assert not host_is_faster(Scene(program.analysis()), MAIN)


@pytest.mark.parametrize(
    ("wait", "drain"),
    [(Deed("read"), Drain.READ), (Deed("send", size=1 << 20), Drain.MOVED), (Deed("sync"), Drain.EXPLICIT)],
)
def test_launches_after_a_wait_are_the_waits_doing_where_the_host_is_faster(wait: Deed, drain: Drain) -> None:
    """The kernels are long, but for the first: right after the wait the GPU is idle between launches."""
    quick = [one for number in range(5) for one in (Deed("host", 40), Deed("launch", 4, number))]
    found = scene([wait, *quick, *paced(700, 20)])
    kinds = drained(found)
    guessed = found.gaps.estimated & (found.gap_facts.sent_bytes < 0)
    assert host_is_faster(found, MAIN)
    assert guessed.any()
    assert (kinds[guessed] == drain).mean() > 0.9
    assert "C06" not in named(found)


def test_launches_are_what_costs_where_the_host_is_slower() -> None:
    found = scene(paced(30, 300, Deed("read")))
    kinds = drained(found)[found.gaps.estimated]
    assert (kinds == Drain.NONE).all()
    assert (read_between(found)[found.gaps.estimated] == -1).all()
    causes = named(found)
    assert max(causes, key=lambda one: causes[one]) == "C06"


def test_what_lies_between_the_reads_of_a_loop_goes_back_to_them() -> None:
    """An element is read, a kernel launched, again and again; the host is far slower than the GPU."""
    loop = [Deed("launch", 5, 50), Deed("host", 100), Deed("read", size=800), Deed("host", 150)] * 20
    found = scene([*paced(30, 30), *loop])
    between = found.gaps.estimated & (read_between(found) >= 0)
    assert not host_is_faster(found, MAIN)
    assert between.sum() > 0.5 * found.gaps.estimated.sum()
    assert (read_between(found)[between] == 800).all()
    assert max(named(found).items(), key=lambda one: one[1])[0] == "C02"


def test_a_loss_and_a_metric_are_no_loop_of_reads() -> None:
    """As many reads as a usual step makes, the rest of it between them."""
    part = [*paced(20, 200), Deed("read")]
    found = scene(part * (MANY_READS - 1))
    assert (drained(found)[found.gaps.estimated] == Drain.NONE).all()


# -- gaps that are too short to follow ---------------------------------------------------------------


def short(step: Steps) -> tuple[Scene, dict[str, int]]:
    """A loop and the time of its short gaps by cause."""
    found = scene(step)
    told = short_gaps(found, owners(found))
    return found, {CATALOGUE[row].number: ns for (row, _pid), ns in told.items()}


@pytest.mark.slow
def test_short_gaps_before_launches_are_the_launching_threads() -> None:
    tight = [one for number in range(60) for one in (Deed("launch", 8, number), Deed("host", 4))]
    found, told = short(tight)
    (estimate,) = found.analysis.estimates
    small = estimate.small
    assert len(small.begin) > 1_000
    assert not ends_with_copy(found, small).any()
    assert told == {"C06": int((small.end - small.begin).sum())}


@pytest.mark.slow
def test_all_time_of_short_gaps_is_given_to_somebody() -> None:
    step = [
        *[one for _ in range(30) for one in (Deed("send", size=2_048), Deed("launch", 9, 1))],
        *[one for number in range(30) for one in (Deed("launch", 8, number), Deed("host", 4))],
        Deed("host", 500),
    ]
    found, told = short(step)
    (estimate,) = found.analysis.estimates
    assert sum(told.values()) == pytest.approx((estimate.small.end - estimate.small.begin).sum(), rel=1e-3)
    rows = causes_of_short(found, owners(found), estimate.small)
    assert {CATALOGUE[row].number for row in np.unique(rows).tolist()} <= set(told)


def test_a_scene_without_an_estimate_has_no_short_gaps() -> None:
    program = started()
    for begin in range(0, 100_000, 1_000):
        program.call(LAUNCH, begin, begin + 10)
    found = Scene(program.analysis())
    assert short_gaps(found, owners(found)) == {}


# -- ranks --------------------------------------------------------------------------------------------

RANKS, OTHER, STEP_US, COUNT = "ncclAllReduce", 1000, 12_000, 60


def ranks(late: int, *, each: int = 1, size: int = 1 << 20) -> Program:
    """Two ranks on two GPUs; the second comes late to each collective."""
    program = started()
    program.starts(OTHER)
    for pid, wait in ((MAIN, 0), (OTHER, late)):
        program.call("cudaSetDevice", 0, 5, pid=pid, aux=int(pid == OTHER))
        for number in range(COUNT):
            begin = 10 + number * STEP_US
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            for place in range(each):
                at = begin + 100 + wait + place * 30
                program.call(RANKS, at, at + 20, pid=pid, bytes=size if pid == MAIN else 1 << 20)
            program.call(SYNC, begin + 900 + wait, begin + STEP_US - 20, pid=pid)
    return program


def straggler(program: Program) -> Finding | None:
    """What is told of ranks."""
    return next((one for one in program.report().findings if one.cause == "C23"), None)


def found(program: Program) -> Finding:
    """The same where there is something to tell."""
    finding = straggler(program)
    assert finding is not None
    return finding


def test_the_rank_that_comes_last_is_named_with_what_the_others_wait() -> None:
    finding = found(ranks(6_000))
    assert (finding.pid, str(finding.level)) == (OTHER, "proved")
    assert finding.loss.lower == COUNT * 6_000 * US


def test_a_host_that_is_steps_ahead_of_its_gpu_is_a_hint_where_nobody_saw_the_gpu() -> None:
    program = started()
    program.starts(OTHER)
    for pid, pace in ((MAIN, STEP_US // 4), (OTHER, STEP_US)):
        program.call("cudaSetDevice", 0, 5, pid=pid, aux=int(pid == OTHER))
        for number in range(COUNT):
            begin = 10 + number * pace
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            program.call(RANKS, begin + 100, begin + 120, pid=pid, bytes=1 << 20)
    assert str(found(program).level) == "hint"


def test_ranks_that_come_together_wait_for_nobody() -> None:
    assert straggler(ranks(0)) is None
    assert straggler(ranks(20)) is None


def test_several_collectives_of_a_step_are_late_once() -> None:
    finding = found(ranks(6_000, each=10))
    # ten that are 30 us apart, each 6 ms late: the early rank waits for 6.27 ms, not for 60
    assert finding.loss.lower == COUNT * (6_000 + 9 * 30) * US


def test_ranks_that_ran_before_the_recording_are_not_proved() -> None:
    assert str(found(attached(ranks(6_000))).level) == "strong"


def test_processes_whose_collectives_differ_are_not_of_one_job() -> None:
    assert straggler(ranks(6_000, size=4 << 20)) is None
