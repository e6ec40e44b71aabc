"""NVML as a witness: GPM, kept samples and utilisation of any window and age; models held against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.nvml_witness import (
    FEWEST,
    MANY,
    ROUNDED,
    SHORTEST_NS,
    ModelledWork,
    misfit,
    witness,
)
from probes.source import GPUS, Sample
from tests.items import SECOND, START
from tests.programs import US, started
from tests.simulated import Deed, Machine, launches

SPAN = 6
WHOLE = (START, START + SPAN * SECOND)


def evidence(samples: list[Sample]) -> Evidence:
    """A recording in which nothing happens but these samples."""
    program = started()
    program.call("cudaMalloc", 0, 10)
    return replace(program.evidence(), gpus=samples)


def sample(at_s: float, **figures: object) -> Sample:
    """One look at NVML, seconds after the start."""
    return Sample(GPUS, START + round(at_s * SECOND), {"gpus": [{"index": 0, **figures}]})


def every(step_s: float, **figures: object) -> list[Sample]:
    """The same figures from the start to the end."""
    return [sample(at, **figures) for at in np.arange(step_s, SPAN + 1e-9, step_s).tolist()]


def kept(rows: list[tuple[float, int]]) -> list[Sample]:
    """Samples that NVML kept, all read at the end."""
    rows_ns = [[START + round(at * SECOND), percent] for at, percent in rows]
    return [sample(SPAN, utilization_percent=99, utilization_samples=rows_ns)]


def changing(window_s: float, lag_s: float) -> Machine:
    """Busy for a while, then not, in turns that fit no window; with NVML's utilisation."""
    machine = Machine()
    for number in range(int(SPAN / 0.4)):
        machine.run([*launches([(2_000, 9_000)[number % 2]] * 20), Deed("sync"), Deed("host", 200_000)])
    machine.utilization(round(window_s * 1e6), round(lag_s * 1e6))
    return machine


def work(machine: Machine, scale: float = 1.0) -> ModelledWork:
    """A model that knows when kernels ran, or takes them for longer."""
    rows = np.array(machine.kernels, np.int64)
    begin = START + rows[:, 0] * US
    end = begin + ((rows[:, 1] - rows[:, 0]) * US * scale).astype(np.int64)
    return ModelledWork((begin, end), np.zeros(0, np.int64), np.zeros(0))


def test_gpm_counts_exactly_between_two_readings() -> None:
    percent = [10.0, 30.0, 50.0, 70.0] * 6
    samples = [
        sample(0.25 * (place + 1), graphics_active_percent=value) for place, value in enumerate(percent)
    ]
    found = witness(evidence(samples), 0, *WHOLE)
    assert found is not None
    assert found.source == "gpm"
    assert found.busy == pytest.approx(0.40, abs=0.02)
    assert found.error < 0.03


def test_a_reading_counts_for_the_time_since_the_one_before() -> None:
    """Readings do not come evenly: a long silence counts for longer."""
    samples = [sample(at, graphics_active_percent=value) for at, value in [(0, 50.0), (1, 0.0), (2, 0.0)]]
    samples.append(sample(SPAN, graphics_active_percent=90.0))
    found = witness(evidence(samples), 0, *WHOLE)
    assert found is not None
    assert found.busy == pytest.approx(4 * 0.9 / 6, abs=0.01)


def test_the_first_reading_of_gpm_reports_a_time_that_nobody_knows() -> None:
    samples = [sample(3.0, graphics_active_percent=100.0)]
    samples += [sample(3.0 + 0.5 * number, graphics_active_percent=20.0) for number in range(1, 7)]
    found = witness(evidence(samples), 0, *WHOLE)
    assert found is not None
    assert found.busy == pytest.approx(0.2, abs=0.01)
    assert found.error > 0.02, "of half of the time nobody heard"


def test_samples_that_nvml_kept_are_believed_before_the_figure_of_the_moment() -> None:
    found = witness(evidence(kept([(0.1 * number, 40) for number in range(60)])), 0, *WHOLE)
    assert found is not None
    assert (found.source, found.busy) == ("samples", pytest.approx(0.4))


def test_gpm_is_believed_before_samples() -> None:
    samples = kept([(0.1 * number, 40) for number in range(60)])
    samples += every(0.25, graphics_active_percent=10.0)
    found = witness(evidence(samples), 0, *WHOLE)
    assert found is not None
    assert (found.source, found.busy) == ("gpm", pytest.approx(0.1))


def test_samples_that_cover_less_than_half_are_left_to_the_utilisation() -> None:
    samples = every(0.25, utilization_percent=70)
    samples[-1] = sample(
        SPAN,
        utilization_percent=70,
        utilization_samples=[[START + SPAN * SECOND - number * SECOND // 10, 10] for number in range(20)],
    )
    found = witness(evidence(samples), 0, *WHOLE)
    assert found is not None
    assert (found.source, found.busy) == ("utilization", pytest.approx(0.7))


@pytest.mark.parametrize(
    ("index", "seconds", "samples"),
    [
        pytest.param(-1, SPAN, every(0.25, utilization_percent=50), id="a GPU that NVML does not know"),
        pytest.param(1, SPAN, every(0.25, utilization_percent=50), id="another GPU"),
        pytest.param(0, SHORTEST_NS / SECOND - 0.1, every(0.25, utilization_percent=50), id="too short"),
        pytest.param(0, SPAN, every(2.5, utilization_percent=50)[: FEWEST - 1], id="too few"),
        pytest.param(0, SPAN, every(2.5, utilization_percent=50)[:1], id="one"),
        pytest.param(0, SPAN, every(0.25, utilization_percent=None), id="not offered"),
        pytest.param(0, SPAN, [], id="no NVML"),
    ],
)
def test_too_little_is_no_witness(index: int, seconds: float, samples: list[Sample]) -> None:
    assert witness(evidence(samples), index, START, START + int(seconds * SECOND)) is None


def test_steady_utilisation_is_sure_and_unsteady_utilisation_is_not() -> None:
    steady = witness(evidence(every(0.25, utilization_percent=30)), 0, *WHOLE)
    turns = [
        sample(0.25 * number, utilization_percent=100 * (number // 4 % 2)) for number in range(1, 4 * SPAN)
    ]
    unsteady = witness(evidence(turns), 0, *WHOLE)
    assert steady is not None
    assert unsteady is not None
    assert steady.error == pytest.approx(ROUNDED)
    # turns of a second: each second tells something new
    assert unsteady.error == pytest.approx(ROUNDED + 0.5 / np.sqrt(SPAN), rel=0.1)


@pytest.mark.parametrize("window", [1 / 6, 1 / 4, 1 / 2, 1])
@pytest.mark.parametrize("late", [0, 0.5])
def test_the_error_holds_the_truth_whatever_the_window_and_the_age(window: float, late: float) -> None:
    machine = changing(window, late * window)
    found = witness(machine.finished().evidence(), 0, START, START + machine.length * US)
    assert found is not None
    truth = machine.ran(0, machine.length) / machine.length
    assert abs(found.busy - truth) <= found.error + ROUNDED


@pytest.mark.parametrize("window", [1 / 6, 1 / 4, 1 / 2, 1])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_model_is_held_against_the_window_in_which_it_fits(window: float, scale: float) -> None:
    machine = changing(window, 0.0)
    found = misfit(machine.finished().evidence(), 0, START, START + machine.length * US, work(machine, scale))
    assert found is not None
    off, error = found
    truth = machine.ran(0, machine.length) / machine.length
    # a reader sees a window that ended up to a window ago; the model knows each kernel
    assert off == pytest.approx(truth * (1 - scale), abs=error + 0.02)


def test_a_right_model_is_nearer_to_nvml_than_the_mean_of_what_it_says() -> None:
    machine = changing(1 / 2, 0.0)
    seen = machine.finished().evidence()
    whole = (START, START + machine.length * US)
    mean, found = witness(seen, 0, *whole), misfit(seen, 0, *whole, work(machine))
    assert mean is not None
    assert found is not None
    assert found[1] < mean.error


def no_work() -> ModelledWork:
    """A model that knows of nothing."""
    return ModelledWork((np.zeros(0, np.int64), np.zeros(0, np.int64)), np.zeros(0, np.int64), np.zeros(0))


@pytest.mark.parametrize("count", [MANY - 1, MANY])
def test_few_readings_say_nothing_of_the_window(count: int) -> None:
    early = [0.05, 0.1, 0.15]  # however short the window, it had begun before the stretch
    few = [sample(at, utilization_percent=50) for at in [*early, *np.linspace(3, SPAN, count).tolist()]]
    assert (misfit(evidence(few), 0, *WHOLE, no_work()) is None) == (count < MANY)


def test_copies_are_no_kernels() -> None:
    busy = np.array([0, 1_000], np.int64), np.array([500, 2_000], np.int64)
    made = ModelledWork(busy, np.array([100, 1_200], np.int64), np.array([200.0, 5_000.0]))
    begin, end = np.array([0, 1_000, 0]), np.array([500, 2_000, 50])
    assert made.kernels(begin, end).tolist() == [300.0, 0.0, 50.0], "never less than none"


def test_a_figure_shows_the_time_a_third_of_a_second_before_it_was_read() -> None:
    """Readings of a second more than the stretch: those count that tell of it as a usual product would."""
    low, high = START + SECOND, START + 5 * SECOND
    readings = [
        sample(0.05 * number, utilization_percent=100 if number > 102 else 0) for number in range(20 * SPAN)
    ]
    found = witness(evidence(readings), 0, low, high)
    assert found is not None
    counted = range(27, 107 + 1)  # read 1.35 to 5.35 s after the start
    assert found.samples == len(counted)
    assert found.busy == pytest.approx(sum(number > 102 for number in counted) / len(counted))


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_a_model_that_knows_of_nothing_is_off_by_all_that_nvml_saw(percent: int) -> None:
    found = misfit(evidence(every(0.25, utilization_percent=percent)), 0, *WHOLE, no_work())
    assert found == (pytest.approx(percent / 100), pytest.approx(ROUNDED))


def test_what_nvml_said_of_other_times_makes_nothing_less_sure() -> None:
    """Before the stretch and after it the GPU was busy now and then."""
    low, high = 2.0, 5.0
    steady = [sample(at, utilization_percent=30) for at in np.arange(low + 0.05, high + 1.05, 0.1).tolist()]
    early = [sample(0.1 * number, utilization_percent=100 * (number % 2)) for number in range(20)]
    late = [sample(high + 1.1 + 0.1 * number, utilization_percent=100 * (number % 2)) for number in range(20)]
    found = witness(
        evidence([*early, *steady, *late]), 0, START + round(low * SECOND), START + round(high * SECOND)
    )
    assert found is not None
    assert (found.busy, found.error) == (pytest.approx(0.3), pytest.approx(ROUNDED))
    off = misfit(
        evidence([*early, *steady, *late]),
        0,
        START + round(low * SECOND),
        START + round(high * SECOND),
        no_work(),
    )
    assert off == (pytest.approx(0.3), pytest.approx(ROUNDED))


@pytest.mark.parametrize("window", [166_666_666, 250_000_000, 500_000_000, 1_000_000_000])
@pytest.mark.parametrize("late", [0, 0.5, 1])
def test_where_nvml_looks_at_a_window_that_is_known_a_right_model_is_never_off(
    window: int, late: float
) -> None:
    random = np.random.default_rng(5)
    edges = START + np.cumsum(random.integers(20_000_000, 300_000_000, 60)).astype(np.int64)
    model = ModelledWork((edges[::2], edges[1::2]), np.zeros(0, np.int64), np.zeros(0))
    time = START + np.arange(1, 8 * SPAN + 1) * SECOND // 8
    end = time - int(late * window)
    share = model.kernels(end - window, end) / window
    samples = [
        sample((at - START) / SECOND, utilization_percent=100 * one)
        for at, one in zip(time.tolist(), share.tolist(), strict=True)
    ]
    found = misfit(evidence(samples), 0, *WHOLE, model)
    assert found == (pytest.approx(0, abs=1e-6), pytest.approx(ROUNDED, abs=1e-6))
