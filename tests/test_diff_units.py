"""``gputop diff`` compares the same work: pairs of loops whose time for it is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gputop.analysis.compare import Diff
from gputop.analysis.findings.step_findings import Unit
from tests import programs as p
from tests.loops import KIB, MIB, Loop, diff
from tests.programs import D2H, H2D, SYNC, US

Step = Callable[[Loop, int], None]


def ran(step: Step, times: int, shift: int = 0) -> Loop:
    """So many steps; each process has its kernels elsewhere."""
    loop = Loop(shift=shift)
    for number in range(times):
        step(loop, number)
    return loop


def times_as_fast(found: Diff) -> float:
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.after is not None
    return duration.before.usual / duration.after.usual


def real(before: Loop, after: Loop, work: tuple[float, float]) -> float:
    """By the loops' own clocks: times for units of work."""
    return (before.now / work[0]) / (after.now / work[1])


def read_each_sample(loop: Loop, _number: int) -> None:
    loop.train()
    for _ in range(20):
        loop.call(p.COPY_ASYNC, kind=D2H, bytes=4)
        loop.call(SYNC, 30)
        loop.host(400)
        loop.kernels(6000, 1)


def read_seldom(loop: Loop, number: int) -> None:
    loop.train()
    loop.kernels(6100, 3)
    if number % 10 == 9:
        loop.item()


def test_removed_waits() -> None:
    before, after = ran(read_each_sample, 30), ran(read_seldom, 100, shift=1 << 20)
    found = diff(before, after)
    assert found.unit is Unit.STEP
    assert found.ratio.times == 1
    assert times_as_fast(found) == pytest.approx(real(before, after, (30, 100)), rel=0.05)
    assert "times as fast" in found.sentence


def launching(count: int, *, batch: bool) -> Step:
    """A step of so many launches."""

    def run(loop: Loop, _number: int) -> None:
        if batch:
            loop.send()
        loop.kernels(1, count)
        loop.host(100)

    return run


def test_removed_launches() -> None:
    before, after = ran(launching(20, batch=True), 80), ran(launching(5, batch=True), 150, shift=77)
    found = diff(before, after)
    assert found.ratio.times == 1, "the same input a step is the same work"
    assert times_as_fast(found) == pytest.approx(real(before, after, (80, 150)), rel=0.05)


def test_of_other_work_nothing_is_called_faster() -> None:
    """Nothing says whether a quarter of the launches is the same work, or a quarter of it."""
    found = diff(ran(launching(20, batch=False), 80), ran(launching(5, batch=False), 150, shift=77))
    assert found.unit is Unit.SECOND
    assert not found.ratio.known
    assert "is other work than one of BEFORE" in found.sentence
    assert "times as" not in found.sentence


def test_work_that_moves_to_the_gpu() -> None:
    def on_host(loop: Loop, _number: int) -> None:
        loop.host(8000)
        loop.send(600 * KIB)  # of floats
        loop.send(2 * KIB)  # labels
        loop.forward()

    def on_gpu(loop: Loop, _number: int) -> None:
        loop.host(500)
        loop.send(150 * KIB)  # of bytes
        loop.send(2 * KIB)
        loop.kernels(8000, 12)
        loop.forward()

    before, after = ran(on_host, 40), ran(on_gpu, 90, shift=77)
    found = diff(before, after)
    assert found.ratio.times == 1
    assert times_as_fast(found) == pytest.approx(real(before, after, (40, 90)), rel=0.05)


def test_copies_that_are_no_longer_made() -> None:
    def moved(loop: Loop, _number: int) -> None:
        loop.send(40 * KIB)
        for _ in range(16):
            loop.host(400)
            loop.send(96 * KIB)
            loop.kernels(6000, 2)
        loop.train(batch=False)

    def made_there(loop: Loop, _number: int) -> None:
        loop.send(40 * KIB)
        for _ in range(16):
            loop.kernels(6000, 5)
        loop.train(batch=False)

    before, after = ran(moved, 20), ran(made_there, 60, shift=77)
    found = diff(before, after)
    assert found.ratio.times == 1
    assert times_as_fast(found) == pytest.approx(real(before, after, (20, 60)), rel=0.05)


@pytest.mark.parametrize("slices", [1, 10])
def test_a_batch_that_is_copied_in_slices(slices: int) -> None:
    """One by one from a loader, or as slices, each with the model behind it."""

    def loader(loop: Loop, _number: int) -> None:
        loop.host(90_000)
        loop.send(400 * MIB)
        loop.forward(1)

    def direct(loop: Loop, _number: int) -> None:
        loop.host(300)
        loop.send(400 * MIB // slices)
        loop.forward(1)

    before, after = ran(loader, 12), ran(direct, 12 * slices, shift=77)
    found = diff(before, after)
    assert found.ratio.times == pytest.approx(1 / slices)
    assert times_as_fast(found) == pytest.approx(real(before, after, (12, 12)), rel=0.1)
    assert ("by its bytes copied to the device" in " ".join(found.notes)) == (slices > 1)


def test_a_batch_that_is_copied_in_pieces_before_the_model() -> None:
    def pieces(count: int) -> Step:
        def run(loop: Loop, _number: int) -> None:
            for _ in range(count):
                loop.host(100)
                loop.call(p.COPY_ASYNC, kind=H2D, bytes=40 * MIB // count)
            loop.forward()

        return run

    found = diff(ran(pieces(1), 60), ran(pieces(8), 60, shift=77))
    assert found.ratio.times == 1
    assert "times as long" in found.sentence


def test_larger_batches_are_more_work() -> None:
    def batch(size: int, host: int) -> Step:
        def run(loop: Loop, _number: int) -> None:
            loop.host(host)
            loop.send(size * 3 * KIB)
            loop.send(size * 8)
            loop.train(batch=False)

        return run

    before, after = ran(batch(32, 2000), 60), ran(batch(128, 4000), 60, shift=77)
    found = diff(before, after)
    assert found.ratio.times == pytest.approx(4)
    assert times_as_fast(found) == pytest.approx(real(before, after, (60, 240)), rel=0.05)
    launches = found.measure("launches")
    assert launches.after is not None
    assert launches.after.usual == pytest.approx(97 / 4)
    assert "the work of one step of BEFORE takes" in found.sentence


@pytest.mark.slow
def test_requests_served_in_batches_of_all_sizes_are_so_many_requests_each() -> None:
    """Two steps take a model to the device, a thousand times as many bytes as a request has."""

    def serve(sizes: list[int]) -> Step:
        def run(loop: Loop, number: int) -> None:
            loop.host(300)
            loop.send(sizes[number] * 4 * KIB)
            if number in (300, 301):  # of two steps that follow each other one is looked at
                loop.send(4 * MIB)
            loop.train(batch=False)

        return run

    sizes = np.random.default_rng(3).integers(8, 17, 600).tolist()
    before, after = ran(serve([1] * 600), 600), ran(serve(sizes), 600, shift=77)
    found = diff(before, after)
    assert found.ratio.times == pytest.approx(np.mean(sizes), rel=0.03)
    assert times_as_fast(found) == pytest.approx(real(before, after, (600, sum(sizes))), rel=0.1)
    assert "times as fast" in found.sentence


def test_a_graph_is_the_work_of_what_it_captured() -> None:
    """Layers and nothing else: which of them make a step, the launches alone do not tell."""

    def layers(loop: Loop, _number: int) -> None:
        for _ in range(48):
            loop.kernels(10, 3)

    def replay(loop: Loop, number: int) -> None:
        if number == 0:
            loop.call("cudaStreamBeginCapture", stream=0x500)
            for _ in range(48):
                loop.kernels(10, 3, stream=0x500)
            loop.call("cudaStreamEndCapture", stream=0x500, aux=0xABC)
        loop.call("cudaGraphLaunch", aux=0xABC)
        loop.host(150)

    before, after = ran(layers, 30), ran(replay, 200, shift=77)
    found = diff(before, after)
    assert times_as_fast(found) == pytest.approx(real(before, after, (30, 200)), rel=0.1)
    assert "by its kernel launches" in found.notes[0]


@pytest.mark.parametrize("times", [1, 4])
def test_a_step_that_repeats_the_other_ones_kernels(times: int) -> None:
    """Each of them so many times over: so many units of work at once."""

    def step(count: int) -> Step:
        def run(loop: Loop, _number: int) -> None:
            for kernel in range(5):
                for _ in range(count):
                    loop.kernels(10 + kernel, 1)
            loop.host(500)

        return run

    before, after = ran(step(1), 100), ran(step(times), 60, shift=1 << 20)
    found = diff(before, after)
    assert found.ratio.times == times
    assert times_as_fast(found) == pytest.approx(real(before, after, (100, 60 * times)), rel=0.05)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.mainly("0", "1")
def test_nothing_changed(seed: int) -> None:
    random = np.random.default_rng(seed)

    def step(loop: Loop, number: int) -> None:
        loop.host(int(random.normal(5000, 1000)))
        loop.train()
        if number % 10 == 9:
            loop.item()

    found = diff(ran(step, 80), ran(step, 120, shift=77))
    assert found.sentence.startswith("no clear change")


@pytest.mark.parametrize("batches", [8, 28, 60])
def test_workers_that_hand_over_four_batches_at_once(batches: int) -> None:
    def bursts(loop: Loop, number: int) -> None:
        if number == 0:
            loop.call("cudaMemset", stream=0)
        if number % 4 == 0:
            loop.host(80_000)
        loop.train()

    def steady(loop: Loop, _number: int) -> None:
        loop.train()

    before, after = ran(bursts, batches), ran(steady, batches, shift=77)
    found = diff(before, after)
    assert "times as fast" in found.sentence
    assert times_as_fast(found) == pytest.approx(real(before, after, (batches, batches)), rel=0.15)


def test_the_first_steps_are_no_part_of_the_steady_loop() -> None:
    def warming(loop: Loop, number: int) -> None:
        loop.host(400_000 // (number + 1) if number < 5 else 0)
        loop.train()

    before, after = ran(warming, 60), ran(lambda loop, _number: loop.train(), 60, shift=77)
    found = diff(before, after)
    assert times_as_fast(found) < 1.5
    assert "far longer than usual not counted" in found.notes[0]


def test_a_host_that_runs_ahead_waits_for_what_the_steps_before_took() -> None:
    def ahead(gpu: int) -> Step:
        def run(loop: Loop, number: int) -> None:
            loop.kernels(10, 6)
            if number % 25 == 24:
                loop.call(p.DEVICE_SYNC, 25 * gpu)

        return run

    before, after = ran(ahead(2000), 50), ran(ahead(500), 50, shift=77)
    found = diff(before, after)
    assert times_as_fast(found) == pytest.approx(real(before, after, (50, 50)), rel=0.1)


def test_evaluations_between_steps_count_as_time_but_not_as_steps() -> None:
    def evaluated(loop: Loop, number: int) -> None:
        loop.train()
        if number % 20 == 19:
            loop.kernels(9000, 30)
            loop.host(200_000)
            loop.item()

    before, after = ran(evaluated, 100), ran(lambda loop, _number: loop.train(), 100, shift=77)
    found = diff(before, after)
    assert times_as_fast(found) == pytest.approx(real(before, after, (100, 100)), rel=0.05)
    assert "followed by other work" in " ".join(found.notes)


def test_where_one_side_has_no_steps_it_is_from_batch_to_batch() -> None:
    random = np.random.default_rng(5)

    def irregular(loop: Loop, _number: int) -> None:
        loop.send(12 * MIB)
        for _ in range(int(random.integers(1, 20))):
            loop.kernels(int(random.integers(1000, 100_000)), int(random.integers(1, 30)))
        loop.host(3000)

    def regular(loop: Loop, _number: int) -> None:
        loop.send(12 * MIB)
        loop.forward()

    before, after = ran(irregular, 40), ran(regular, 90, shift=77)
    assert before.facts() is None
    found = diff(before, after)
    assert found.unit is Unit.BATCH
    assert times_as_fast(found) == pytest.approx(real(before, after, (40, 90)), rel=0.05)
    assert found.sentence.startswith("each batch takes")
    assert "BEFORE has no steps" in found.notes[0]


def test_the_end_of_a_loop_belongs_to_its_steps() -> None:
    """Everything is given at once; the last wait is for all of it."""

    def give(loop: Loop, _number: int) -> None:
        loop.send(MIB)
        loop.kernels(10, 6)

    def ended(gpu: int) -> Loop:
        loop = ran(give, 10, shift=gpu)
        loop.call(p.DEVICE_SYNC, 10 * gpu)
        return loop

    before, after = ended(4000), ended(1000)
    found = diff(before, after)
    assert times_as_fast(found) == pytest.approx(real(before, after, (10, 10)), rel=0.1)
    assert found.measure("duration_ns").before is not None
    assert before.now * US > 40_000_000


def test_threads_that_take_turns_make_some_steps_of_the_work_of_two() -> None:
    """Now and then two requests begin before the first one's layers: one step, of two requests."""

    def serve(host_us: int, together: int) -> tuple[Loop, int]:
        loop, requests = Loop(), 0
        while requests < 600:
            many = 2 if together and requests % together == 0 else 1
            for kernel in (100, *range(200, 206)):
                for _ in range(many):
                    loop.kernels(kernel, 1)
            loop.host(host_us * many)
            loop.call(SYNC, 30)
            requests += many
        return loop, requests

    (before, many), (after, fewer) = serve(3_000, 4), serve(1_000, 0)
    found = diff(before, after)
    assert times_as_fast(found) == pytest.approx(real(before, after, (many, fewer)), rel=0.05)
