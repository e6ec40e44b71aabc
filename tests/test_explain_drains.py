"""Which wait drained the queue, whose the short gaps are: facts beside the causes."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import CauseMatch
from gputop.analysis.causes.drains import (
    MANY_READS,
    Drain,
    drained,
    form_of_claim,
    host_is_faster,
    read_between,
)
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.findings.findings import find, owners
from gputop.analysis.findings.gap_findings import causes_of_short, ends_with_copy, short_gaps
from probes.api import OP_OF
from probes.source import FRAMES, Sample
from tests.items import START
from tests.programs import LAUNCH, MAIN, SYNC, started
from tests.simulated import SECOND, Deed, Machine

Steps = list[Deed]


def scene(step: Steps, length: int = 2 * SECOND) -> AttributionContext:
    """A loop of some seconds with NVML beside it."""
    machine = Machine()
    while machine.length < length:
        machine.run(step)
    machine.run([Deed("sync")])
    machine.utilization(SECOND // 6)
    return AttributionContext(machine.finished().analysis())


def paced(work: int, between: int, *more: Deed) -> Steps:
    """Ten kernels, each after some Python."""
    return [
        *(one for number in range(10) for one in (Deed("host", between), Deed("launch", work, number))),
        *more,
    ]


def named(found: AttributionContext) -> dict[str, float]:
    """Share of the span by cause, of what is reported or too small for it."""
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
    assert not host_is_faster(AttributionContext(program.analysis()), MAIN)


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


READING = [Deed("launch", 5, 50), Deed("host", 100), Deed("read", size=800), Deed("host", 150)] * 20


def test_what_lies_between_the_reads_of_a_loop_goes_back_to_them() -> None:
    """An element is read, a kernel launched, again and again; the host is far slower than the GPU."""
    found = scene([*paced(30, 30), *READING])
    between = found.gaps.estimated & (read_between(found) >= 0)
    assert not host_is_faster(found, MAIN)
    assert between.sum() > 0.5 * found.gaps.estimated.sum()
    assert (read_between(found)[between] == 800).all()
    assert max(named(found).items(), key=lambda one: one[1])[0] == "C02"


def test_gaps_between_reads_are_reported_with_the_size_and_the_number_of_the_reads() -> None:
    """Those behind the reads themselves may be another cause's: an agent whose every action is read."""
    found = scene([*paced(30, 30), *READING])
    between = found.gaps.estimated & (read_between(found) >= 0)
    claim = CauseMatch(found, between[found.segments.gap], np.flatnonzero(between))
    form, pattern = form_of_claim(claim)
    assert (form, pattern.size) == ("read", 800)
    steps = claim.steps
    assert steps is not None
    assert pattern.count / steps.count == pytest.approx(20, rel=0.1)


def test_a_loss_and_a_metric_are_no_loop_of_reads() -> None:
    """As many reads as a usual step makes, the rest of it between them."""
    part = [*paced(20, 200), Deed("read")]
    found = scene(part * (MANY_READS - 1))
    assert (drained(found)[found.gaps.estimated] == Drain.NONE).all()


# -- gaps that are too short to follow ---------------------------------------------------------------


def short(step: Steps) -> tuple[AttributionContext, dict[str, int]]:
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
    found = AttributionContext(program.analysis())
    assert short_gaps(found, owners(found)) == {}


def test_the_line_of_a_read_is_that_of_the_gaps_that_go_back_to_it() -> None:
    """Most of what it costs lies behind launches, whose lines are not known."""
    machine = Machine()
    short = [one for number in range(15) for one in (Deed("launch", 10, number), Deed("host", 30))]
    step = [*short, *(Deed("launch", 400, 50 + number) for number in range(5)), Deed("read")]
    while machine.length < 2 * SECOND:
        machine.run(step)
    machine.utilization(SECOND // 6)
    program = machine.finished()
    for rows in program.records:
        rows["stack"][np.isin(rows["op"], [OP_OF["cudaMemcpyAsync"], OP_OF[SYNC]])] = 5
    frames = [[["/app/train.py", 12, "train"]]]
    program.samples.append(Sample(FRAMES, START, {"pid": [MAIN], "stack": [5], "frames": frames}))
    found = next(one for one in program.report().findings if one.cause == "C01")
    assert found.line is not None
    assert (found.line.function, found.line.line) == ("train", 12)
