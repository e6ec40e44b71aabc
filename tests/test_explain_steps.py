"""Steps are found by themselves: as many as there are, or none."""

from __future__ import annotations

import numpy as np
import pytest

from tests import programs as p
from tests.programs import D2H, H2D, LAUNCH, SYNC, Program, started


class Script:
    """A program written call after call."""

    def __init__(self) -> None:
        self.program, self.now = started(), 0

    def call(self, op: str, length: int = 8, pause: int = 20, **more: int) -> None:
        """One call, a pause after it."""
        self.program.call(op, self.now, self.now + length, **more)
        self.now += length + pause

    def train(self, kernels: int = 5, *, host: int = 500, launch: int = 8) -> None:
        """One usual step: input, kernels, the loss read back."""
        self.call(p.COPY_ASYNC, kind=H2D, bytes=1 << 20)
        for number in range(kernels):
            self.call(LAUNCH, aux=100 + number % 5, length=launch)
        self.read(host=host)

    def read(self, *, host: int = 500) -> None:
        """A scalar comes back."""
        self.call(p.COPY_ASYNC, kind=D2H, bytes=4)
        self.call(SYNC, length=2000, pause=host)

    def evaluate(self) -> None:
        """Other kernels, other sizes."""
        for number in range(7):
            self.call(LAUNCH, aux=900 + number)
        self.call(p.COPY_ASYNC, kind=D2H, bytes=1 << 16)
        self.call(p.DEVICE_SYNC, length=3000)

    def count(self) -> int | None:
        """How many steps are found."""
        return found(self.program)


def found(program: Program) -> int | None:
    """How many steps are reported."""
    steps = program.report().steps
    return None if steps is None else steps.count


@pytest.mark.parametrize("count", [5, 40, 300])
def test_constant_steps(count: int) -> None:
    script = Script()
    for _ in range(count):
        script.train()
    assert script.count() == pytest.approx(count, abs=1)


def test_a_varying_number_of_kernels() -> None:
    for seed in range(5):
        script, random = Script(), np.random.default_rng(seed)
        for _ in range(60):
            script.train(int(random.integers(5, 40)))
        assert script.count() == pytest.approx(60, abs=1)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_gradient_accumulation(parts: int) -> None:
    script = Script()
    for _ in range(40):
        for _ in range(parts):
            script.call(p.COPY_ASYNC, kind=H2D, bytes=1 << 20)
            for number in range(5):
                script.call(LAUNCH, aux=100 + number)
        for number in range(3):
            script.call(LAUNCH, aux=200 + number)
        script.read()
    assert script.count() == pytest.approx(40, abs=1)


@pytest.mark.parametrize("every", [5, 10, 25])
def test_an_evaluation_now_and_then_is_no_step(every: int) -> None:
    script = Script()
    for number in range(1, 101):
        script.train()
        if number % every == 0:
            script.evaluate()
    assert script.count() == pytest.approx(100, abs=1)


def test_two_loops_one_after_the_other() -> None:
    script = Script()
    for _ in range(30):
        script.train()
    for _ in range(50):
        for number in range(4):
            script.call(LAUNCH, aux=500 + number)
        script.call(p.DEVICE_SYNC, length=1500)
    assert script.count() == pytest.approx(80, abs=1)


def test_steps_with_several_waits() -> None:
    script = Script()
    for _ in range(50):
        script.train()
        script.call(LAUNCH, aux=300)
        script.call(p.COPY_ASYNC, kind=D2H, bytes=1 << 12)
        script.call(SYNC, length=500)
    assert script.count() == pytest.approx(50, abs=1)


def test_a_loop_that_runs_ahead_and_waits_for_the_event_of_two_steps_before() -> None:
    script = Script()
    for number in range(60):
        for kernel in range(5):
            script.call(LAUNCH, aux=100 + kernel)
        script.call(p.RECORD, aux=0x9000 + number % 2)
        if number >= 2:
            script.call(p.EVENT_SYNC, length=1000, aux=0x9000 + number % 2)
    script.call(p.DEVICE_SYNC, length=500)
    assert script.count() == pytest.approx(60, abs=1)


def test_a_loop_without_waits() -> None:
    script = Script()
    for _ in range(50):
        for kernel in range(5):
            script.call(LAUNCH, aux=100 + kernel)
    script.call(p.DEVICE_SYNC, length=500)
    assert script.count() == pytest.approx(50, abs=1)


@pytest.mark.slow
def test_an_irregular_program_has_none() -> None:
    for seed in range(5):
        script, random = Script(), np.random.default_rng(seed)
        for _ in range(200):
            for _ in range(int(random.integers(1, 30))):
                script.call(LAUNCH, aux=int(random.integers(0, 400)))
            if random.integers(0, 2):
                script.call(p.COPY_ASYNC, kind=D2H, bytes=1 << int(random.integers(2, 24)))
            script.call([SYNC, p.DEVICE_SYNC, p.EVENT_SYNC][int(random.integers(0, 3))], length=200)
        assert script.count() is None


def test_three_launches_are_no_program() -> None:
    script = Script()
    for number in range(3):
        script.call(LAUNCH, aux=number)
        script.call(SYNC, length=100)
    assert script.count() is None


def test_another_irregular_program_has_none() -> None:
    script, random = Script(), np.random.default_rng(0)
    for number in range(40):  # set-up that never does the same twice
        for kernel in range(int(random.integers(1, 9))):
            script.call(LAUNCH, aux=1000 + 10 * number + kernel)
        script.call(SYNC, length=100, pause=int(random.integers(10, 5000)))
    assert script.count() is None


def test_steps_that_begin_in_a_stretch() -> None:
    script = Script()
    begins = []
    for _ in range(40):
        begins.append(script.now)
        script.train()
    report = script.program.report((begins[10] - 100, begins[20] - 100))
    assert report.steps is not None
    assert report.steps.count == pytest.approx(10, abs=1)
    assert report.steps.median_ns == pytest.approx((begins[1] - begins[0]) * p.US, rel=0.02)


def test_a_first_step_that_loads_everything_is_no_usual_one() -> None:
    script = Script()
    script.train(launch=80_000)
    for _ in range(100):
        script.train()
    steps = script.program.report().steps
    assert steps is not None
    assert steps.usual_ns == pytest.approx(steps.median_ns, rel=0.01)


def test_a_long_step_in_the_middle_counts() -> None:
    script = Script()
    for number in range(101):
        script.train(launch=80_000 if number == 50 else 8)
    steps = script.program.report().steps
    assert steps is not None
    assert steps.usual_ns > 1.5 * steps.median_ns
