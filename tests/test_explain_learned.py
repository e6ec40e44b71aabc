"""What the work of kernels takes, learned from waits: known durations are found again, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gputop.analysis.chains.analysis import Analysis
from gputop.analysis.estimates.durations import FEWEST, WAITS, WORST, Learned, as_waited, learn
from gputop.analysis.proofs.work_queue import Queue, queue_of
from tests.programs import LAUNCH, SYNC, Program, started
from tests.simulated import Deed, Machine, launches

Step = Callable[[int], list[Deed]]


def program(steps: int, step: Step) -> Program:
    """So many steps, and a kernel at the end that nobody waits for."""
    machine = Machine()
    for number in range(steps):
        machine.run(step(number))
    machine.run(launches([1], 999))
    return machine.finished()


def queued(made: Program) -> tuple[Analysis, Queue]:
    """The analysis of a program and what its GPU was given."""
    analysis = made.analysis()
    return analysis, queue_of(analysis.evidence, analysis.gpu, 0)


def learned(made: Program) -> Learned | None:
    """What its waits teach."""
    analysis, queue = queued(made)
    return learn(analysis.gpu, 0, queue, len(queue))


def taught(made: Program) -> Learned:
    """The same where they teach something."""
    found = learned(made)
    assert found is not None
    return found


def total(found: Learned, numbers: list[int]) -> float:
    """What some kernels take together, us; kernels are numbered by their handles, so by the program."""
    return float(found.ns[numbers].sum()) / 1e3


@pytest.mark.parametrize("waits", [Deed("sync"), Deed("read")], ids=["sync", "read"])
def test_one_kernel_a_wait_is_found_as_it_is(waits: Deed) -> None:
    times = [200, 700, 1_500, 90]
    found = taught(program(40, lambda number: [*launches([times[number % 4]], number % 4), waits]))
    assert found.ns[:4] / 1e3 == pytest.approx(times, rel=0.1, abs=15)
    assert found.measured[:4].all()
    assert found.error < 0.1


def test_of_kernels_that_always_come_together_the_sum_is_found() -> None:
    times = [100, 900, 300, 700]
    found = taught(program(40, lambda _number: [*launches(times), Deed("sync")]))
    assert total(found, [0, 1, 2, 3]) == pytest.approx(2_000, rel=0.02)
    assert found.error < 0.05


def test_mixtures_distinguish_kernels_that_never_come_alone() -> None:
    times = np.array([100, 900, 300, 1_400])
    random = np.random.default_rng(7)

    def step(_number: int) -> list[Deed]:
        counts = random.integers(0, 4, 4)
        counts[0] += 1
        chosen = np.repeat(np.arange(4), counts)
        random.shuffle(chosen)
        return [*(Deed("launch", int(times[one]), int(one)) for one in chosen), Deed("sync")]

    found = taught(program(300, step))
    # the long ones show first: the fit comes nearer to the short ones with each of its rounds
    assert found.ns[:4].argsort().tolist() in ([0, 2, 1, 3], [2, 0, 1, 3])
    assert found.ns[[1, 3]] / 1e3 == pytest.approx(times[[1, 3]], rel=0.2)
    assert found.error < 0.1, "each wait ends where the durations say, or nearly"


def test_a_wait_in_every_tenth_step_teaches_what_all_of_them_take() -> None:
    times = [300] * 8
    found = taught(
        program(
            200,
            lambda number: [
                *launches(times),
                Deed("host", 500),
                *([Deed("sync")] if number % 10 == 9 else []),
            ],
        )
    )
    assert total(found, list(range(8))) == pytest.approx(2_400, rel=0.05)


def test_idle_time_between_launches_is_not_mistaken_for_work() -> None:
    """The host gives the last kernel late: only what was given last decides when the wait ends."""
    found = taught(
        program(
            60, lambda _number: [*launches([100]), Deed("host", 2_000), *launches([600], 1), Deed("sync")]
        )
    )
    assert found.ns[1] / 1e3 == pytest.approx(600, rel=0.1)
    assert found.ns[0] / 1e3 < 2_000, "it had ended before the next was given, that is all one knows"


def test_what_never_decides_the_end_of_a_wait_is_not_measured() -> None:
    found = taught(
        program(
            60, lambda _number: [*launches([100]), Deed("host", 2_000), *launches([600], 1), Deed("sync")]
        )
    )
    assert not found.measured[0]
    assert found.measured[1]


def test_upper_bounds_alone_teach_nothing() -> None:
    """Each wait came when everything had ended long ago."""
    made = program(100, lambda _number: [*launches([100, 200]), Deed("host", 3_000), Deed("sync")])
    assert learned(made) is None


def test_a_few_waits_are_an_anecdote() -> None:
    assert learned(program(WAITS - 1, lambda _number: [*launches([500]), Deed("sync")])) is None
    rare = taught(
        program(
            40,
            lambda number: [
                *launches([500]),
                *(launches([800], 1) if number % 10 == 9 else []),
                Deed("sync"),
            ],
        )
    )
    assert FEWEST > 4
    assert rare.measured[0]
    assert not rare.measured[1], "four times"


def test_no_work_and_no_wait_teach_nothing() -> None:
    made = started()
    for begin in range(0, 5_000, 100):
        made.call(LAUNCH, begin, begin + 10)
    assert learned(made) is None
    idle = started()
    idle.call("cudaMalloc", 0, 10)
    idle.call(LAUNCH, 20, 30)
    idle.call(SYNC, 40, 42)
    assert learned(idle) is None


def test_the_error_shows_how_far_work_is_from_the_same_each_time() -> None:
    random = np.random.default_rng(3)

    def spread(by: float) -> float:
        return taught(
            program(
                200,
                lambda _number: [*launches([int(1_000 * np.exp(random.normal(0, by)))]), Deed("sync")],
            )
        ).error

    steady, usual, wild = spread(0.01), spread(0.2), spread(1.2)
    assert steady < 0.03 < usual < WORST < wild


def test_sure_is_the_share_of_the_time_for_which_the_program_waited() -> None:
    waits = taught(program(60, lambda _number: [*launches([2_000]), Deed("sync")]))
    works = taught(program(60, lambda _number: [*launches([2_000]), Deed("host", 1_000), Deed("sync")]))
    assert waits.sure > 0.95
    assert works.sure > 0.95, "the wait says that the kernel was under way since it was given"
    late = taught(program(60, lambda _number: [*launches([500] * 4), Deed("host", 1_000), Deed("sync")]))
    assert late.sure > 0.4


def test_kernels_that_are_not_learned_make_no_estimate_of_their_own() -> None:
    """Two kernels out of three are given in unknown time, where nobody ever waits for them."""

    def step(number: int) -> list[Deed]:
        unknown = [deed for one in launches([50] * 6, 10) for deed in (one, Deed("host", 400))]
        return [*unknown, Deed("sync"), *launches([500] * 3), Deed("sync")]

    analysis, queue = queued(program(60, step))
    found = learn(analysis.gpu, 0, queue, len(queue))
    assert found is not None
    assert not found.enough(queue, analysis.gpu.unknown[0])


def test_durations_are_those_of_the_kernels_and_the_usual_one_for_the_others() -> None:
    found = Learned(np.array([10.0, 20.0]), np.array([True, True]), 1.0, 0.0, 5.0)
    assert found.durations(np.array([1, -1, 0, 1]), 7.0).tolist() == [20.0, 7.0, 10.0, 20.0]


def test_what_a_wait_waited_for_took_until_its_end() -> None:
    made = program(20, lambda _number: [*launches([100, 300]), Deed("sync")])
    analysis, queue = queued(made)
    real = as_waited(analysis.gpu, 0, queue, np.full(len(queue), 1_000.0))
    groups = queue.group - queue.group[0]
    sums = np.bincount(groups, weights=real)[:20] / 1e3
    assert sums == pytest.approx([400] * 20, rel=0.1), "durations of a microsecond are stretched to the wait"
    long = as_waited(analysis.gpu, 0, queue, np.full(len(queue), 1e9))
    assert np.bincount(groups, weights=long)[:20].max() / 1e3 < 450, "a wait ended them"
