"""Steps of loops as PyTorch runs them: backward in a thread of its own, waits anywhere or nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests import programs as p
from tests.loops import AUTOGRAD, KIB, MIB, Loop
from tests.programs import D2H, H2D, MAIN, SYNC

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 10))]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("every", [1, 10, 1000])
def test_a_wait_now_and_then_changes_nothing(*, batch: bool, every: int) -> None:
    loop = Loop()
    for number in range(60):
        loop.train(batch=batch)
        if number % every == 0:
            loop.item()
    assert loop.count() == pytest.approx(60, abs=1)


def test_a_tensor_that_is_printed_now_and_then_changes_nothing() -> None:
    loop = Loop()
    for number in range(60):
        loop.train()
        if number % 10 == 9:
            for kernel in range(4):
                loop.kernels(7000 + kernel, 1)
                loop.item()
    assert loop.count() == pytest.approx(60, abs=1)


def test_backward_by_its_own_thread_is_the_main_threads_step() -> None:
    loop = Loop()
    for _ in range(40):
        loop.train()
    facts = loop.facts()
    assert facts is not None
    assert (facts.pid, facts.tid) == (MAIN, MAIN)
    # 2 copies and waits, 34 + 51 + 12 launches, 10 us each, and 3 ms of Python
    assert facts.median_ns == pytest.approx(4_060_000, rel=0.02)


def test_a_main_thread_that_only_waits_for_the_one_that_launches() -> None:
    loop = Loop()
    for _ in range(30):
        begin = loop.now
        loop.kernels(1000, 12, tid=AUTOGRAD)
        loop.call(SYNC, 500, tid=AUTOGRAD)
        loop.program.off(begin, loop.now, waker_tid=AUTOGRAD, waker_pid=MAIN)
        loop.host(50)
    facts = loop.facts()
    assert facts is not None
    assert facts.count == pytest.approx(30, abs=1)
    assert facts.tid == MAIN


@pytest.mark.parametrize("send", [True, False])
def test_layers_are_no_steps(*, send: bool) -> None:
    loop = Loop()
    for _ in range(30):
        if send:
            loop.send(4 * KIB)
        loop.kernels(1, 3)
        loop.forward(layers=24)
        loop.kernels(90, 4)
        loop.item()
    assert loop.count() == pytest.approx(30, abs=1)


def test_layers_of_a_model_that_is_trained_are_no_steps() -> None:
    """Nothing is copied and nobody waits; a layer's forward pass is most of what it launches."""
    loop = Loop()
    for _ in range(60):
        for _ in range(4):
            for _ in range(4):
                loop.kernels(1000, 15)
        for _ in range(4):
            loop.kernels(1000, 10, tid=AUTOGRAD)
            loop.kernels(2000, 6, tid=AUTOGRAD)
        loop.kernels(3000, 4)
    assert loop.count() == pytest.approx(60, abs=1)


@pytest.mark.parametrize("parts", [4, 16])
def test_a_small_optimizer_step_leaves_the_micro_batch_the_step(parts: int) -> None:
    loop = Loop()
    for _ in range(20):
        for _ in range(parts):
            loop.host(2000)
            loop.send()
            loop.forward()
            loop.backward()
        loop.optimizer()
    assert loop.count() == pytest.approx(20 * parts, abs=1)


@pytest.mark.parametrize("batches", [3, 40])
def test_evaluations_with_the_same_model_are_no_steps(batches: int) -> None:
    loop = Loop()
    for number in range(100):
        loop.train()
        if number % 20 == 19:
            for _ in range(batches):
                loop.host(3000)
                loop.send()
                loop.forward()
                loop.kernels(4000, 3)
                loop.item()
    facts = loop.facts()
    assert facts is not None
    assert facts.count == pytest.approx(100, abs=1)
    assert facts.median_ns == pytest.approx(4_060_000, rel=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_of_varying_length(seed: int) -> None:
    loop, random = Loop(), np.random.default_rng(seed)
    for _ in range(60):
        loop.host(3000)
        loop.send(int(2 ** random.uniform(17, 19)))
        for _ in range(int(random.integers(3, 20))):
            loop.kernels(1000 + 100 * int(random.integers(0, 2)), 1)
            loop.kernels(1001, 5)
        loop.backward(int(random.integers(3, 20)))
        loop.optimizer()
    assert loop.count() == pytest.approx(60, abs=1)


def test_reads_in_a_loop_over_the_samples_of_a_batch() -> None:
    """The masked autoencoder: two reads a sample, two loops in each step."""
    loop = Loop()
    for number in range(20):
        loop.host(1000)
        loop.send()
        loop.forward(4)
        for kernels in (1, 3):
            for _ in range(32):
                loop.call(p.COPY_ASYNC, kind=D2H, bytes=32 * 49 * 8)
                loop.call(SYNC, 30)
                loop.host(300)
                loop.kernels(5000 + kernels, kernels)
        loop.forward(8)
        loop.backward()
        loop.optimizer()
        if number % 10 == 9:
            loop.item()
    assert loop.count() == pytest.approx(20, abs=1)


def test_tensors_that_are_moved_for_each_graph_of_a_batch() -> None:
    """The graph network: index tensors for each of sixteen graphs take most of the time."""
    loop = Loop()
    for _ in range(20):
        loop.host(1000)
        for size in (40_000, 9_000, 1_000):
            loop.send(size)
        loop.forward(2)
        for _ in range(16):
            loop.host(400)
            loop.send(3_000)
            loop.send(800)
            loop.kernels(6000, 5)
        loop.forward()
        loop.backward()
        loop.optimizer()
    assert loop.count() == pytest.approx(20, abs=1)


@pytest.mark.parametrize("send", [True, False])
def test_one_graph_launch_a_step(*, send: bool) -> None:
    loop = Loop()
    for number in range(200):
        if send:
            loop.call(p.COPY_ASYNC, kind=H2D, bytes=4 * KIB)
        loop.call("cudaGraphLaunch", aux=0xABC)
        if number % 10 == 9:
            loop.item()
    assert loop.count() == pytest.approx(200, abs=1)


def test_copies_are_steps_of_a_program_that_only_copies() -> None:
    loop = Loop()
    for _ in range(100):
        loop.send(16 * MIB)
    assert loop.count() == pytest.approx(100, abs=1)


def test_parameters_that_are_moved_before_the_loop_are_no_steps() -> None:
    loop, random = Loop(), np.random.default_rng(2)
    for _ in range(150):
        loop.send(int(2 ** random.uniform(10, 22)))
    loop.host(1_000_000)
    for _ in range(7):
        loop.host(600_000)
        loop.send(400 * MIB)
        loop.kernels(1, 6)
    loop.call(p.DEVICE_SYNC, 1000)
    assert loop.count() == pytest.approx(7, abs=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_of_a_server_are_steps(seed: int) -> None:
    loop, random = Loop(), np.random.default_rng(seed)
    for _ in range(40):
        loop.host(int(random.exponential(60_000)))
        loop.send(int(2 ** random.uniform(12, 18)))
        loop.kernels(1, 3)
        loop.forward(int(random.integers(6, 12)))
        loop.call(p.COPY_ASYNC, kind=D2H, bytes=128 * KIB)
        loop.call(SYNC, 500)
    assert loop.count() == pytest.approx(40, abs=1)


def test_a_first_step_that_compiles() -> None:
    loop = Loop()
    loop.kernels(20_000, 400)
    loop.host(4_000_000)
    for _ in range(40):
        loop.train()
    assert loop.count() == pytest.approx(40, abs=1)


def test_two_networks_that_are_trained_by_turns_make_one_step() -> None:
    loop = Loop()
    for _ in range(60):
        loop.send()
        loop.kernels(1000, 8)
        loop.kernels(1100, 6)
        loop.kernels(3000, 4)
        loop.kernels(1000, 8)
        loop.kernels(1200, 8)
        loop.kernels(3100, 4)
    assert loop.count() == pytest.approx(60, abs=1)


def test_each_process_has_its_own_steps() -> None:
    loop = Loop()
    other = Loop(pid=20, program=loop.program)
    loop.program.starts(20)
    for _ in range(40):
        loop.kernels(1000, 12)
        loop.item()
    other.now = loop.now // 3
    for _ in range(25):
        other.kernels(5000, 9)
        other.item()
    analysis = loop.program.analysis()
    found = {pid: p.steps_of(analysis, pid) for pid in (MAIN, 20)}
    assert found == {MAIN: pytest.approx(40, abs=1), 20: pytest.approx(25, abs=1)}
