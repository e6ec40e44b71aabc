"""Steps of several alike parts: by lines and GPUs they are joined, by times alone it is reported."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gputop.analysis.answer.report import StepFacts
from gputop.analysis.answer.wording import steps_text
from tests import programs as p
from tests.loops import KIB, Loop
from tests.programs import D2H, LAUNCH, SYNC

STEPS = 40
FIRST_LINE, OTHER_LINE, THIRD_LINE = 101, 202, 303


def facts(loop: Loop) -> StepFacts:
    found = loop.facts()
    assert found is not None
    return found


def part(loop: Loop, wait_us: int = 2000, line: int = FIRST_LINE) -> None:
    """One kernel and a wait for it."""
    loop.call(LAUNCH)
    loop.call(SYNC, wait_us, stack=line)


@pytest.mark.parametrize("lines", [(1, 2), (1, 1, 2), (1, 2, 3), (1, 1, 1, 2, 2), tuple(range(1, 13))])
@pytest.mark.parametrize("pause_us", [0, 9000])
def test_alike_parts_at_several_lines_are_one_step(lines: tuple[int, ...], pause_us: int) -> None:
    loop, random = Loop(), np.random.default_rng(len(lines))
    begin = loop.now
    for _ in range(STEPS):
        for line in lines:
            part(loop, int(random.uniform(1000, 3000)), 100 + line)
        loop.host(pause_us)
    found = facts(loop)
    assert found.count == pytest.approx(STEPS, abs=1)
    assert found.usual_ns / 1000 == pytest.approx((loop.now - begin) / STEPS, rel=0.03)
    assert found.together == 1


@pytest.mark.parametrize("gpus", [(0, 3), (0, 1, 2, 3)])
def test_gpus_in_turns_are_one_step_where_a_pause_separates_the_rounds(gpus: tuple[int, ...]) -> None:
    loop = Loop()
    for _ in range(STEPS):
        for gpu in gpus:
            loop.call("cudaSetDevice", aux=gpu)
            part(loop, 1000 + 2000 * (gpu == 0))
        loop.host(6000)
    assert facts(loop).count == pytest.approx(STEPS, abs=1)


def test_requests_in_turns_on_two_gpus_are_steps_of_their_own() -> None:
    loop = Loop()
    for number in range(STEPS * 2):
        loop.call("cudaSetDevice", aux=number % 2)
        part(loop)
        loop.host(6000)
    found = facts(loop)
    assert found.count == pytest.approx(STEPS * 2, abs=1)
    assert found.together == 1


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_where_only_times_distinguish_parts_the_text_says_so(parts: int) -> None:
    loop = Loop()
    for _ in range(STEPS):
        for _ in range(parts):
            part(loop)
        loop.host(9000)
    found = facts(loop)
    assert found.count == pytest.approx(STEPS * parts, abs=1), "nothing proves a longer step"
    assert found.together == parts
    assert steps_text(found).endswith(
        f"each {parts} may be one step of the program, since one of them takes longer"
    )


@pytest.mark.parametrize("every", [2, 4, 10])
def test_a_loss_that_is_logged_now_and_then_makes_no_longer_step(every: int) -> None:
    loop = Loop()
    for number in range(STEPS * 5):
        part(loop)
        if number % every == 0:
            loop.call(p.COPY, 20, kind=D2H, bytes=4, stack=OTHER_LINE)
            loop.host(5000)
    found = facts(loop)
    assert found.count == pytest.approx(STEPS * 5, abs=1)
    assert found.together == 1


def test_equal_parts_without_a_pause_are_steps() -> None:
    loop, random = Loop(), np.random.default_rng(5)
    for _ in range(STEPS * 3):
        part(loop, int(random.uniform(1000, 3000)))
        loop.host(int(random.exponential(2000)))
    found = facts(loop)
    assert found.count == pytest.approx(STEPS * 3, abs=1)
    assert found.together == 1
    assert "may be" not in steps_text(found)


def test_batches_of_a_loader_that_come_in_bursts_are_steps() -> None:
    """Four workers: each fourth batch is late. An input begins a step, so nothing is unclear."""
    loop = Loop()
    for number in range(STEPS * 4):
        loop.host(9000 if number % 4 == 0 else 100)
        loop.send(64 * KIB)
        loop.kernels(1, 1)
    found = facts(loop)
    assert found.count == pytest.approx(STEPS * 4, abs=1)
    assert found.together == 1


def test_parts_that_are_interrupted_now_and_then_stay_one_step() -> None:
    loop = Loop()
    for number in range(STEPS):
        part(loop, line=FIRST_LINE)
        part(loop, line=OTHER_LINE)
        loop.host(4000)
        if number % 15 == 9:
            part(loop, line=THIRD_LINE)
    assert facts(loop).count == pytest.approx(STEPS, abs=3)


def _send(loop: Loop) -> None:
    loop.call(p.COPY_ASYNC, 1500, kind=p.H2D, bytes=8 << 20)
    loop.call(SYNC, 1500)


#: What a step does twice, and the cause of it; behind the second one the host works so long that this is C28.
TWICE = {
    "C03": (lambda loop: loop.call(SYNC, 2500), 4000),
    "C27": (_send, 3000),
    "C01": (lambda loop: loop.item(), 900),
}


@pytest.mark.parametrize("cause", TWICE)
@pytest.mark.parametrize("others", [1, 2])
def test_a_title_counts_all_calls_of_its_kind_whichever_cause_has_their_gaps(cause: str, others: int) -> None:
    waits, host_us = TWICE[cause]
    loop = Loop()
    for _ in range(STEPS):
        for pause_us in (host_us, *[14_000] * others):
            loop.kernels(1, 6)
            waits(loop)
            loop.host(pause_us)
    found = {one.cause: one for one in loop.program.report().findings}
    assert "C28" in found, "most of these waits are another cause's"
    assert "every step" in found[cause].title, "a step holds two and three of them"


def test_the_advice_has_the_length_of_the_gaps_that_make_up_the_loss() -> None:
    """It sleeps for 14 ms once a step, and for 200 us three times: the median of all is no figure."""
    loop = Loop()
    for _ in range(STEPS):
        for sleep_us in (14_000, 200, 200, 200):
            loop.call(LAUNCH)
            loop.call(SYNC, 800)
            loop.program.off(loop.now, loop.now + sleep_us, op=p.NANOSLEEP)
            loop.now += sleep_us + 5
    (finding,) = [one for one in loop.program.report().findings if one.cause == "C32"]
    (usual,) = re.findall(r"median ([\d.]+ms)", finding.evidence[0])
    assert usual.startswith("14.0")
    assert f"it sleeps for {usual}" in finding.advice[0]
    steps = loop.facts()
    assert steps is not None
    assert f"{STEPS / steps.count:.1f} times a step" in finding.advice[0], "so often, not four times as often"
