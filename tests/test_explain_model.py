"""The queue with durations held against the unknown, and a GPU's span as parts that add up to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gputop.analysis.answer.report import Account, Range, account, whole
from gputop.analysis.build import explain
from gputop.analysis.chains.analysis import Analysis
from gputop.analysis.estimates.durations import MOST_KERNELS, Learned, Model, learn
from gputop.analysis.estimates.estimate import Estimate
from gputop.analysis.evidence.columns import Ints, intersect, length
from gputop.analysis.proofs.work_queue import queue_of
from gputop.errors import AccountingError
from tests.simulated import SECOND, Deed, Machine, launches

STEPS, STEP_US = 150, 20_000
LEARNED = Learned(np.full(8, 500_000.0), np.ones(8, np.bool_), 1.0, 0.0, 500_000.0)


def fed(busy_us: int = 4_000, waits: int = 0) -> Machine:
    """Steps that nobody waits for, or every so many; the GPU is idle for the rest of each."""
    machine = Machine()
    for number in range(STEPS):
        batch = [Deed("host", STEP_US - 1_000), Deed("send", size=1 << 20)]
        machine.run([*batch, *launches([busy_us // 8] * 8)])
        if waits and number % waits == 0:
            machine.run([Deed("sync")])
    return machine


def modelled(machine: Machine, known: Learned | None = None, operations: int = 300_000) -> Model:
    """The model of a program, with durations that are learned or none."""
    analysis = machine.finished().analysis()
    gpu = analysis.gpu
    queue = queue_of(analysis.evidence, gpu, 0)
    return Model(queue, gpu.unknown[0], gpu.pending(0), known, operations)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_durations_are_found_with_which_the_queue_is_idle_for_so_long(share: float) -> None:
    model = modelled(fed())
    goal = int(share * length(*model.unknown))
    assert model.idle(model.fitted(goal, 0)) == pytest.approx(goal, rel=0.01)


def test_a_kernel_may_take_a_fifth_of_a_second() -> None:
    """Nothing is known of it but that the GPU was busy for 98 % of the time, as NVML reports."""
    machine = Machine()
    for _ in range(12):
        machine.run([*launches([200_000]), Deed("host", 204_000)])
    model = modelled(machine)
    goal = int(0.02 * length(*model.unknown))
    assert model.idle(model.fitted(goal, 0)) == pytest.approx(goal, rel=0.05)


def test_learned_durations_stay_where_they_are_near_enough() -> None:
    model = modelled(fed(), LEARNED)
    known = model.known()
    idle = model.idle(known)
    near, error = idle + 10_000_000, 20_000_000
    assert (model.fitted(near, error) == known).all()
    other = model.fitted(idle // 2, error)
    assert model.idle(other) == pytest.approx(idle // 2, rel=0.02)


def test_kernels_keep_their_proportions_when_they_are_scaled() -> None:
    learned = replace(LEARNED, ns=np.arange(1, 9) * 100_000.0)
    model = modelled(fed(), learned)
    scaled = model.fitted(model.idle(model.known()) // 2, 0)
    kernels = model.queue.kernel
    ratio = (scaled / model.known())[kernels]
    assert ratio == pytest.approx(np.full(len(ratio), ratio[0]))
    assert (scaled[~kernels] == model.known()[~kernels]).all(), "copies last as long as their bytes take"


def test_the_idle_pieces_lie_in_the_unknown_and_nowhere_else() -> None:
    model = modelled(fed(waits=5), LEARNED)
    begin, end = model.pieces(model.known())
    assert (end > begin).all()
    assert length(*intersect((begin, end), model.unknown)) == length(begin, end)
    assert model.idle(model.known()) == length(begin, end)


def test_what_was_learned_shows_idle_time_with_its_error() -> None:
    """Kernels of 4 ms in steps of 20, in the time after the waits and in the time after copies."""
    machine = fed(waits=2)
    analysis = machine.finished().analysis()
    queue = queue_of(analysis.evidence, analysis.gpu, 0)
    learned = learn(analysis.gpu, 0, queue, len(queue))
    assert learned is not None
    model = Model(queue, analysis.gpu.unknown[0], analysis.gpu.pending(0), learned, len(queue))
    told = model.learned_idle()
    assert told is not None
    idle, error = told
    (span,) = analysis.gpu.spans
    truth = machine.idle(machine.first, machine.first + span.span_ns // 1000) * 1000 - span.empty_ns
    assert abs(idle - truth) <= error + 0.02 * truth
    worse = replace(learned, error=0.3)
    wide = Model(queue, analysis.gpu.unknown[0], analysis.gpu.pending(0), worse, len(queue)).learned_idle()
    assert wide is not None
    assert wide[1] > 2 * error
    assert Model(queue, analysis.gpu.unknown[0], analysis.gpu.pending(0), None, 9).learned_idle() is None


def test_a_sample_stands_for_a_long_queue() -> None:
    machine = fed()
    analysis = machine.finished().analysis()
    queue = queue_of(analysis.evidence, analysis.gpu, 0)
    unknown, pending = analysis.gpu.unknown[0], analysis.gpu.pending(0)
    full = Model(queue, unknown, pending, LEARNED, len(queue))
    part = Model(queue, unknown, pending, LEARNED, len(queue) // 4)
    goal = int(0.6 * length(*unknown))
    assert full.idle(part.fitted(goal, 0)) == pytest.approx(goal, rel=0.1)
    assert part.copies_ns == pytest.approx(full.copies_ns, abs=0.001 * length(*unknown))


def test_a_sample_stands_for_nothing_behind_the_last_that_was_given() -> None:
    """A program ends three seconds after its loop, which the queue of no sample reaches."""
    machine = fed(busy_us=12_000)
    machine.now += 3 * SECOND
    machine.program.ends(machine.now)
    analysis = machine.finished().analysis()
    queue = queue_of(analysis.evidence, analysis.gpu, 0)
    unknown, pending = analysis.gpu.unknown[0], analysis.gpu.pending(0)
    assert length(*unknown) > 5.5e9
    part = Model(queue, unknown, pending, LEARNED, len(queue) // 4)
    goal = int(4.2e9)  # 1.2 s of it in the loop's three
    assert part.idle(part.fitted(goal, 0)) == pytest.approx(goal, rel=0.1)


@pytest.mark.parametrize("size", [1 << 20, 4 << 20])
def test_a_large_read_is_no_kernel_and_no_idle_time(size: int) -> None:
    """An image comes to the host in each step; NVML does not see it, and the call waits for the kernels."""
    machine, step = Machine(), [Deed("host", 400), *launches([100] * 8), Deed("fetch", size=size)]
    while machine.length < 3 * SECOND:
        machine.run(step)
    machine.utilization(SECOND // 6)
    (gpu,) = explain(machine.finished().evidence()).gpus
    truth = machine.idle(machine.first, machine.first + gpu.span_ns // 1000) * 1000
    copied = sum(end - begin for begin, end in machine.moved) * 1000
    assert copied > 0.06 * gpu.span_ns
    assert gpu.idle.estimate is not None
    assert gpu.idle.estimate / gpu.span_ns == pytest.approx(truth / gpu.span_ns, abs=0.02)


def test_the_work_of_a_queue_is_reported_but_of_one_that_is_too_long() -> None:
    model = modelled(fed(), LEARNED)
    work = model.work(model.known())
    assert work is not None
    assert length(*work.busy) == pytest.approx(STEPS * 4_000_000, rel=0.05)
    many = MOST_KERNELS + 1
    index: Ints = np.zeros(many, np.int64)
    model.queue = model.queue.take(index)
    assert model.work(np.zeros(many)) is None


def first(analysis: Analysis) -> Account:
    """The account of its GPU, which nobody else uses."""
    return account(analysis, analysis.gpu.spans[0], shared=False)


def parts(told: Account) -> tuple[int, int, int, int]:
    """They add up to the span."""
    return told.proved_ns, told.estimated_ns, told.busy_ns, told.unknown_ns


@pytest.mark.parametrize("waits", [0, 1, 4])
@pytest.mark.parametrize("seen", [False, True])
def test_the_parts_add_up_whoever_says_what(waits: int, seen: bool) -> None:
    machine = fed(waits=waits)
    if seen:
        machine.utilization(SECOND // 6)
    analysis = machine.finished().analysis()
    told = first(analysis)
    assert sum(parts(told)) == told.span_ns
    assert min(parts(told)) >= 0
    assert told.bounds.lower <= (told.idle.estimate or told.bounds.lower) <= told.bounds.upper
    assert (told.unknown_ns == 0) == (told.source is not None)


def test_what_no_source_reports_is_unknown_and_no_estimate() -> None:
    told = first(fed().finished().analysis())
    assert (told.source, told.error_ns, told.idle.estimate) == (None, None, None)
    assert told.unknown_ns > 0.9 * told.span_ns
    assert told.idle.upper == told.proved_ns + told.unknown_ns


def test_an_estimate_that_does_not_fit_the_span_is_an_error_and_no_answer() -> None:
    machine = fed()
    machine.utilization(SECOND // 6)
    analysis = machine.finished().analysis()
    (estimate,) = analysis.estimates
    broken: Estimate = replace(estimate, idle_ns=2 * analysis.gpu.spans[0].span_ns)
    with pytest.raises(AccountingError, match="do not add up"):
        first(replace(analysis, estimates=(broken,)))


def test_work_of_others_that_nvml_saw_is_no_idle_time_of_the_gpu() -> None:
    machine = fed(waits=1)
    for at in range(SECOND // 4, machine.length, SECOND // 4):
        machine.nvml(at, utilization_percent=90)
    analysis = machine.finished().analysis()
    (estimate,) = analysis.estimates
    alone, beside = (account(analysis, analysis.gpu.spans[0], shared=shared) for shared in (False, True))
    assert estimate.busy_share == pytest.approx(0.9)
    assert beside.proved_ns + beside.estimated_ns == pytest.approx(0.1 * beside.span_ns, rel=0.01)
    assert beside.busy_ns > alone.busy_ns
    for told in (alone, beside):
        assert sum(parts(told)) == told.span_ns
        assert min(parts(told)) >= 0


def test_all_gpus_together_have_an_estimate_only_where_each_has_one() -> None:
    known = first(fed(waits=1).finished().analysis())
    unknown = first(fed().finished().analysis())
    both = whole([known, known])
    assert known.idle.estimate is not None
    assert both == Range(2 * known.idle.lower, 2 * known.idle.upper, 2 * known.idle.estimate)
    assert whole([known, unknown]).estimate is None
    assert whole([]) == Range(0, 0)


def test_the_report_says_what_the_accounts_say() -> None:
    machine = fed()
    machine.utilization(SECOND // 6)
    report = explain(machine.finished().evidence())
    (gpu,) = report.gpus
    assert report.idle == gpu.idle == gpu.account.idle
    truth = machine.idle(machine.first, machine.first + gpu.span_ns // 1000) * 1000
    assert gpu.idle.estimate == pytest.approx(truth, rel=0.03)
    assert gpu.account.seen_busy == pytest.approx(0.2, abs=0.03)
