"""Random loops in virtual time, NVML told from their truth: how near the estimated idle time comes to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from gputop.analysis.build import explain
from tests.programs import US
from tests.simulated import SECOND, Deed, Machine, launches

pytestmark = pytest.mark.xdist_group("oracle")  # both tests ask the same programs
PROGRAMS, LENGTH = 30, 6 * SECOND
MANY = 200  # programs, of which make test-long takes all
NEAR, OFTEN = 0.05, 0.95
ROUNDED = 1e-5  # of the span: truths are whole microseconds
WINDOWS = (SECOND // 6, SECOND // 2, SECOND)


class Author:
    """Writes loops: kernels of all lengths, batches sent or not, waits now and then or never."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.window = int(self.random.choice(WINDOWS))
        self.lag = int(self.random.integers(0, self.window // 2))
        self.sends = self.random.random() < 0.7
        self.size = int(self.random.choice([100_000, 1_000_000, 4_000_000]))
        # a wait in no step, in some or in each
        self.reads = int(self.random.choice([0, 0, 1, 3, 10]))
        self.host = int(self.random.choice([1_500, 4_000, 12_000]))
        kernels = int(self.random.integers(3, 25))
        usual = float(self.random.choice([8, 60, 400]))
        self.kernels = np.maximum(self.random.lognormal(np.log(usual), 0.8, kernels), 2).astype(int)

        # another stream may be at work, too: a prefetcher, a model of its own
        self.beside = int(self.random.choice([0, 0, 0, 200, 2_000]))
        # a part of the time everything else is the same and Python is slower: an evaluation, a busy machine
        self.slow = (
            sorted(self.random.uniform(0, LENGTH, 2).tolist()) if self.random.random() < 0.5 else [0, 0]
        )

    def step(self, number: int, now: int) -> list[Deed]:
        """One step; nothing takes quite as long as the last time."""
        slower = 4 if self.slow[0] <= now < self.slow[1] else 1
        deeds = [Deed("host", int(slower * self.host * self.random.uniform(0.7, 1.3)))]
        if self.sends:
            deeds.append(Deed("send", size=self.size))
        took = self.kernels * self.random.uniform(0.95, 1.05, len(self.kernels))
        for deed in launches(np.maximum(took, 1).astype(int).tolist()):
            deeds += [deed, Deed("host", int(self.random.integers(2, 15)))]
        if self.beside:
            deeds.insert(int(self.random.integers(0, len(deeds))), Deed("beside", self.beside, 99))
        if self.reads and number % self.reads == 0:
            deeds.append(Deed("read"))
        if not self.sends and not self.reads and number % 50 == 0:
            deeds.append(Deed("sync"))  # somebody prints now and then
        return deeds

    def program(self) -> Machine:
        """The loop for six seconds."""
        machine, number = Machine(), 0
        while machine.length < LENGTH:
            machine.run(self.step(number, machine.now))
            number += 1
            if machine.length - machine.now > SECOND // 5:  # the queue of a real stream is full some time
                machine.run([Deed("sync")])
            machine.now = max(machine.now, machine.beside)
        machine.utilization(self.window, self.lag)
        return machine


@dataclass
class Told:
    """Of one program: idle shares of the span."""

    truth: float
    lower: float
    estimate: float | None
    upper: float


@cache
def told(seed: int) -> Told:
    """What is reported of a random program, and the truth."""
    machine = Author(seed).program()
    (gpu,) = explain(machine.finished().evidence()).gpus
    # the span begins with the first work that is given and ends where the recording does
    truth = machine.idle(machine.first, machine.first + gpu.span_ns // US)
    shares = [None if ns is None else ns / gpu.span_ns for ns in (gpu.idle.lower, gpu.idle.estimate)]
    return Told(truth * US / gpu.span_ns, shares[0] or 0.0, shares[1], gpu.idle.upper / gpu.span_ns)


@pytest.mark.parametrize(
    "programs", [pytest.param(PROGRAMS, marks=pytest.mark.slow), pytest.param(MANY, marks=pytest.mark.long)]
)
def test_the_estimated_idle_share_is_within_five_points_of_the_truth(programs: int) -> None:
    every = {seed: told(seed) for seed in range(programs)}
    far = {}
    for seed, one in every.items():
        assert one.lower <= one.truth + ROUNDED, f"program {seed}: more was called proved than was idle"
        assert one.truth <= one.upper + ROUNDED, f"program {seed}: it was idle for longer than was possible"
        assert one.estimate is not None, f"program {seed}: NVML saw six seconds of it"
        assert one.lower <= one.estimate <= one.upper, f"program {seed}"
        if abs(one.estimate - one.truth) > NEAR:
            far[seed] = one
    assert len(far) <= (1 - OFTEN) * programs, far


@pytest.mark.slow
def test_the_random_programs_are_of_all_kinds() -> None:
    """An oracle of programs that are all idle, or all busy, or all proved, would be none."""
    every = [told(seed) for seed in range(PROGRAMS)]
    truth = np.array([one.truth for one in every])
    assert ((truth > 0.2) & (truth < 0.8)).mean() > 0.2
    assert (truth < 0.2).any()
    assert (truth > 0.8).any()
    assert np.mean([one.truth - one.lower > 0.1 for one in every]) > 0.5, "most of it is not proved"
