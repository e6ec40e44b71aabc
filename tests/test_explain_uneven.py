"""Steps that grow, steps that differ, and what is no loss of a loop: what the report says of each."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Report
from gputop.analysis.answer.report_output import report_to_text
from gputop.documents.fields import document
from tests.loops import Loop
from tests.programs import SYNC

STEPS = 160


def looped(host_us: list[int], kernels: list[int] | None = None) -> Report:
    """One step for each: so much work of the host before its launches, so many of these, and a wait."""
    loop = Loop()
    for number, us in enumerate(host_us):
        loop.host(us)
        loop.send()
        loop.kernels(1, kernels[number] if kernels is not None else 6)
        loop.call(SYNC, 200)
    return loop.program.report()


def test_steps_that_get_longer_are_reported_with_their_growing_part() -> None:
    report = looped([500 + 20 * number for number in range(STEPS)])
    assert report.steps is not None
    growth = report.steps.growth
    assert growth is not None
    quarter = STEPS // 4
    grown = 20_000 * (STEPS - quarter)  # ns, between the middles of the two quarters
    assert growth.last_ns - growth.first_ns == pytest.approx(grown, rel=0.05)
    assert growth.part_ns == pytest.approx(grown, rel=0.1)
    assert "[C" in growth.part, "the part is a cause of idle time"
    assert "its launches stay at" in growth.text()
    assert "Its steps grow from" in report.verdict
    said = document(report)["steps"]
    assert said is not None
    assert said["growth"] is not None
    assert said["growth"]["last_ns"] == growth.last_ns


def test_launches_that_grow_are_reported_as_such() -> None:
    report = looped([500] * STEPS, [20 + number // 2 for number in range(STEPS)])
    assert report.steps is not None
    assert report.steps.growth is not None
    assert "its launches grow from " in report.steps.growth.text()


@pytest.mark.parametrize("pattern", ["even", "random", "first", "shrinks"])
def test_steps_that_do_not_grow_are_not_reported_to(pattern: str) -> None:
    us = {
        "even": [2_000] * STEPS,
        "random": [1_000 + 3_000 * (number * 7919 % 13) // 13 for number in range(STEPS)],
        "first": [9_000] * 8 + [2_000] * (STEPS - 8),
        "shrinks": [6_000 - 20 * number for number in range(STEPS)],
    }[pattern]
    report = looped(us)
    assert report.steps is not None
    assert report.steps.growth is None
    assert "grow" not in report.verdict


def test_where_few_steps_take_most_of_the_time_the_answer_speaks_of_totals() -> None:
    report = looped([300_000 if number % 40 == 39 else 200 for number in range(STEPS)])
    assert report.steps is not None
    assert report.steps.long is not None
    assert report.steps.long.count == 4
    assert report.steps.long.ns > 4 * 300_000_000
    text = report_to_text(report)
    assert "4 long ones take" in text
    assert "lost in each" not in text
    assert " step\n" not in text, "no gain is told by a step that there is not"
    assert all(finding.per_step_ns is None for finding in report.findings if finding.gaps < 10)


def test_no_evidence_shows_the_mean_of_steps_that_differ() -> None:
    """Eight batches at once, then a wait for the loader, and memory that is allocated in each step."""
    loop = Loop()
    for number in range(STEPS):
        loop.host(400_000 if number % 8 == 7 else 200)
        loop.send()
        loop.kernels(1, 6)
        loop.call(SYNC, 200)
        loop.call("cudaMalloc", 4_000)
    said = {one.cause: " ".join(one.evidence) for one in loop.program.report().findings}
    assert f"{STEPS} steps, 4.0ms lost in each" in said["C20"]


def test_even_steps_are_reported_by_their_mean() -> None:
    report = looped([5_000] * STEPS)
    assert report.steps is not None
    assert report.steps.long is None
    assert f"{STEPS} steps of" in report_to_text(report)


def test_a_pause_that_takes_most_of_the_time_comes_first_with_its_sum() -> None:
    report = looped([300] * 20 + [4_000_000] + [300] * STEPS)
    assert report.verdict.startswith("No loop")
    assert ", 4.00s. " in report.verdict


def test_idle_time_that_no_loop_loses_has_a_reason() -> None:
    loop = Loop()
    for _burst in range(3):
        loop.kernels(1, 40)
        loop.call(SYNC, 500)
        loop.host(1_500_000)
    loop.kernels(1, 40)
    loop.call(SYNC, 500)
    report = loop.program.report()
    assert "no recurring stall" not in report.verdict
    assert report.findings or report.verdict.startswith("No loop")


def test_a_gain_above_the_loss_says_why() -> None:
    report = looped([3_000] * STEPS)
    for finding in report.findings:
        loss = max(finding.loss.lower, finding.loss.estimate or 0)
        assert bool(finding.gain.because) == (finding.gain.ns > 1.1 * loss)
