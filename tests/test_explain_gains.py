"""What a change can win: loops with known arithmetic, and random ones that are run again without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gputop.analysis.answer import wording
from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.build import explain
from gputop.analysis.estimates.whatif import LEAST_MARGIN, MARGIN, bound
from gputop.analysis.ledger import LEFT
from tests.simulated import SECOND, Deed, Machine, launches

STEPS = 200


def run(deeds: list[Deed], without: str = "-") -> Machine:
    """A program of its own."""
    machine = Machine()
    machine.run(deeds, without)
    return machine


def told(deeds: list[Deed]) -> tuple[Machine, Report]:
    """The program with NVML beside it, and what is reported of it."""
    machine = run([*deeds, Deed("sync")])
    machine.utilization(SECOND // 6)
    return machine, explain(machine.finished().evidence())


def first(report: Report, cause: str) -> Finding:
    """The first finding, which is of that cause."""
    finding = report.findings[0]
    assert finding.cause == cause
    return finding


def after(report: Report, place: int = 0) -> float:
    """The share of a step that is left without the first causes."""
    return report.what_if[place].after_ns / report.what_if[0].before_ns


@pytest.mark.parametrize(
    ("host", "work"), [(6_000, 4_000), (4_000, 6_000), (7_500, 2_500), (1_000, 9_000), (5_000, 5_000)]
)
def test_without_its_wait_a_loop_takes_what_the_longer_of_host_and_gpu_takes(host: int, work: int) -> None:
    step = [Deed("host", host), *launches([work // 4] * 4), Deed("read", cause="read")]
    machine, report = told(step * STEPS)
    finding = first(report, "C01")
    whole = machine.length
    won = whole - run(step * STEPS, "read").length
    assert won == pytest.approx(STEPS * min(host, work), rel=0.05)
    assert won <= finding.gain.ns / 1e3 <= (1 + MARGIN) * won + 2 * LEAST_MARGIN * whole
    assert after(report) == pytest.approx(max(host, work) / (host + work), abs=0.02)


def test_a_wait_now_and_then_wins_less_than_one_in_each_step() -> None:
    def gain(every: int) -> float:
        step = [Deed("host", 5_000), *launches([1_000] * 5)]
        deeds = [deed for number in range(STEPS) for deed in [*step, *[Deed("read")] * (number % every == 0)]]
        machine, report = told(deeds)
        return report.findings[0].gain.ns / 1e3 / machine.length

    each, fifth = gain(1), gain(5)
    assert fifth < 0.5 * each


def test_input_that_is_made_elsewhere_leaves_the_rest_of_the_step() -> None:
    step = [
        Deed("host", 8_000, cause="input"),
        Deed("send", size=1 << 20),
        *launches([500] * 4),
        Deed("host", 1_000),
    ]
    machine, report = told(step * STEPS)
    finding = first(report, "C12")
    won = machine.length - run(step * STEPS, "input").length
    assert won <= finding.gain.ns / 1e3 <= 2 * won


def test_what_a_step_of_the_warm_up_wins_is_part_of_the_gain() -> None:
    """Without it a change that won all of a step but for a hundredth won more than the most that was said."""
    send, *rest = [Deed("send", size=1 << 10), *launches([3] * 4)]
    step = [Deed("host", 30_000, cause="input"), send, *rest]
    deeds = [send, Deed("host", 600_000), *rest, *step * 60]
    machine, report = told(deeds)
    finding = first(report, "C12")
    won = (machine.length - run(deeds, "input").length) / 60
    saved = wording.saved_of_step(finding, report)
    assert saved is not None
    assert won <= saved[0] / 1e3 <= 1.02 * won
    assert finding.gain.ns / 1e3 == pytest.approx(61 * saved[0] / 1e3, rel=0.001)


def test_what_a_cause_costs_beside_the_steps_goes_too() -> None:
    """The same input is prepared for another loop, which is too short to have steps of its own."""
    slow = [Deed("host", 6_000, cause="input"), Deed("send", size=1 << 20)]
    step = [*slow, *launches([300] * 12)]
    deeds = [*step * STEPS, *[*slow, Deed("launch", 300, 50)] * (STEPS // 2)]
    machine, report = told(deeds)
    won = machine.length - run(deeds, "input").length
    assert won <= first(report, "C12").gain.ns / 1e3 <= 1.5 * won


def test_kernels_that_run_side_by_side_take_the_gpu_once() -> None:
    """Two streams of 4 ms each leave of 11.5 ms a step 5.5, not 9.5."""
    step = [Deed("host", 6_000, cause="input"), Deed("send", size=1 << 20), Deed("beside", 4_000, 9)]
    step += [*launches([1_000] * 4), Deed("read"), Deed("host", 1_500)]
    machine, report = told(step * STEPS)
    won = machine.length - run(step * STEPS, "input").length
    assert won <= report.findings[0].gain.ns / 1e3 <= 1.5 * won


def test_copies_from_pageable_memory_win_what_the_cpu_staged() -> None:
    step = [Deed("host", 500), Deed("send", size=32 << 20, cause="send"), *launches([300] * 3)]
    machine, report = told(step * STEPS)
    finding = first(report, "C04")
    won = machine.length - run(step * STEPS, "send").length
    assert won <= finding.gain.ns / 1e3 <= 2 * won


@pytest.mark.slow
def test_many_small_copies_are_replaced_by_launches() -> None:
    """Tensors are made on the device instead: a launch each, which the host still has to make."""
    copies = [Deed("send", size=2_048, cause="copies"), Deed("host", 10)] * 50
    fills = [deed for number in range(50) for deed in (Deed("launch", 2, 100 + number), Deed("host", 4))]
    rest = [deed for one in launches([40] * 4) for deed in (one, Deed("host", 4))]
    machine, report = told([*copies, *rest] * (8 * STEPS))
    finding = first(report, "C05")
    instead = run([*fills, *rest] * (8 * STEPS)).length
    gone = run(rest * (8 * STEPS)).length
    assert machine.length - instead <= finding.gain.ns / 1e3
    assert gone / machine.length <= after(report) <= 1.3 * instead / machine.length


@pytest.mark.slow
def test_what_is_launched_instead_of_copies_is_hidden_behind_the_gpus_work() -> None:
    copies = [Deed("send", size=2_048, cause="copies"), Deed("host", 10)] * 50
    step = [*copies, *launches([1_000] * 4)]
    _machine, report = told(step * (3 * STEPS))
    first(report, "C05")
    # the GPU works for 4 ms of a step; fifty launches take the host a tenth of that
    whole = report.what_if[0].before_ns
    assert report.what_if[0].after_ns / 1e6 == pytest.approx(4.0, rel=0.05)
    assert whole / 1e6 > 5


def test_allocations_that_go_win_their_time_where_the_gpu_waits_for_them() -> None:
    def gain(work: int) -> tuple[float, float]:
        step = [*[Deed("malloc", 600, cause="malloc")] * 5, *launches([work // 4] * 4), Deed("read")]
        machine, report = told(step * STEPS)
        finding = next(one for one in report.findings if one.cause == "C20")
        return finding.gain.ns / 1e3, machine.length - run(step * STEPS, "malloc").length

    for work in (400, 4_000):
        said, won = gain(work)
        assert won <= said <= 2 * won


def test_a_loop_of_reads_goes_as_a_whole_with_what_lies_between_them() -> None:
    reads = [Deed("read", size=800, cause="reads"), Deed("host", 200, cause="reads")] * 20
    step = [Deed("host", 300), *launches([200] * 5), *reads, *launches([200] * 5, 10)]
    machine, report = told(step * STEPS)
    finding = first(report, "C02")
    won = machine.length - run(step * STEPS, "reads").length
    assert won <= finding.gain.ns / 1e3 <= 2 * won


def test_a_loop_of_reads_leaves_the_kernels_of_the_rest_of_its_step() -> None:
    """However soon the next read comes: no two reads are more than a quarter of a step apart."""
    reads = [Deed("read", size=800, cause="reads"), Deed("host", 2_000, cause="reads")] * 8
    step = [*launches([400] * 3), *reads, *launches([300] * 3, 10)]
    machine, report = told(step * STEPS)
    finding = first(report, "C02")
    fixed = run(step * STEPS, "reads").length
    assert machine.length - fixed <= finding.gain.ns / 1e3
    assert after(report) == pytest.approx(fixed / machine.length, abs=0.03)


@pytest.mark.parametrize("work", [2_000, 12_000])
def test_no_change_wins_the_time_in_which_the_gpu_is_known_to_have_worked(work: int) -> None:
    step = [Deed("host", 6_000), *launches([work // 4] * 4), Deed("read", cause="read")]
    _machine, report = told(step * STEPS)
    finding = first(report, "C01")
    gpu = report.gpus[0].account
    worked = (gpu.span_ns - gpu.bounds.upper) / gpu.span_ns
    assert worked == pytest.approx(work / (work + 6_000), abs=0.1), "nearly all of it: the read waits for it"
    assert finding.gain.ns <= (1 + LEAST_MARGIN - worked) * report.duration_ns


def test_one_fix_after_the_other_leaves_less_each_time() -> None:
    step = [
        *[Deed("malloc", 600)] * 5,
        Deed("host", 6_000),
        Deed("send", size=8 << 20),
        *launches([100] * 4),
    ]
    _machine, report = told(step * STEPS)
    assert len(report.what_if) >= 2
    for one, other in zip(report.what_if, report.what_if[1:], strict=False):
        assert other.before_ns == one.after_ns
        assert other.after_ns <= other.before_ns


@pytest.mark.parametrize("queued", [500, 2_000])
def test_who_sleeps_less_may_also_wait_less_for_a_cpu(queued: int) -> None:
    step = [
        Deed("host", 3_000),
        Deed("preempted", queued, cause="read"),
        *launches([1_000] * 3),
        Deed("read", cause="read"),
    ]
    machine, report = told(step * STEPS)
    finding = next(one for one in report.findings if one.cause == "C01")
    won = machine.length - run(step * STEPS, "read").length
    assert won <= finding.gain.ns / 1e3 <= 2 * won


def test_what_other_processes_may_give_back_is_no_less_than_what_caches_may() -> None:
    assert bound(1_000, 700, 100, 20) == bound(1_000, 700, 100, 0)
    assert bound(1_000, 700, 100, 200) == 300 + 200 + 10


def test_a_bound_never_lets_the_gpu_work_in_less_time_than_most_of_its_work() -> None:
    assert bound(1_000, 1_000, 500, 0) == 10, "a hundredth may be anything"
    assert bound(1_000, 700, 100, 0) == 300 * 1.3 + 10
    assert bound(1_000, 100, 600, 0) == 900, "what the run without it says stands"
    assert bound(1_000, 500, 600, 0) == pytest.approx(1_000 - 600 * 0.7, abs=1)
    assert bound(1_000, 1_200, 500, 0) == 10, "nothing takes longer without a cause"


class Author:
    """Writes random loops with one thing in them that can be left out."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.host = int(self.random.choice([200, 2_000, 6_000]))
        usual = self.random.choice([20, 100, 500])
        count = int(self.random.integers(3, 15))
        self.kernels = np.maximum(self.random.lognormal(np.log(usual), 0.7, count), 2).astype(int)
        self.every = int(self.random.choice([1, 2, 5]))
        self.between = int(self.random.choice([3, 10, 40]))
        self.many = int(self.random.integers(8, 30))
        self.prints = bool(self.random.random() < 0.5)

    def about(self, us: int) -> int:
        """Nothing takes the same time twice."""
        return int(us * self.random.uniform(0.9, 1.1))

    def step(self, cause: str, number: int) -> list[Deed]:
        """One step."""
        model = [
            deed
            for place, us in enumerate(self.kernels.tolist())
            for deed in (Deed("launch", self.about(us), place), Deed("host", self.about(self.between)))
        ]
        half = len(model) // 2
        more = getattr(self, f"_{cause}")()
        # somebody prints a loss now and then; where reads are the matter there are no others
        prints = [Deed("read")] if self.prints and number % 20 == 0 and cause[:4] != "read" else []
        host = Deed("host", self.about(self.host))
        if cause == "reads":
            return [host, *model[:half], *more, *model[half:], *prints]
        if cause == "read":
            return [host, *model, *(more if number % self.every == 0 else prints)]
        return [*([] if cause == "input" else [host]), *more, *model, *prints]

    def _read(self) -> list[Deed]:
        return [Deed("read", cause="read")]

    def _reads(self) -> list[Deed]:
        pair = [Deed("read", size=800, cause="reads"), Deed("host", self.between, cause="reads")]
        return pair * self.many

    def _input(self) -> list[Deed]:
        return [Deed("host", self.about(max(self.host, 1_000)), cause="input"), Deed("send", size=1 << 20)]

    def _send(self) -> list[Deed]:
        return [Deed("send", size=16 << 20, cause="send")]

    def _copies(self) -> list[Deed]:
        pair = [Deed("send", size=2_048, cause="copies"), Deed("host", self.between, cause="copies")]
        return pair * self.many

    def _malloc(self) -> list[Deed]:
        return [Deed("malloc", self.about(300), cause="malloc") for _ in range(5)]

    def program(self, cause: str, length: int) -> list[Deed]:
        """Some seconds of it."""
        machine, deeds, number = Machine(), list[Deed](), 0
        while machine.length < length:
            step = self.step(cause, number)
            machine.run(step)
            deeds += step
            number += 1
        return deeds


_CAUSES = {
    "read": {"C01"},
    "reads": {"C01", "C02"},
    "input": {"C12"},
    "send": {"C04"},
    "copies": {"C05", "C27"},
    "malloc": {"C20"},
}


SHORT, LONG = 6 * SECOND // 5, 5 * SECOND // 2  # NVML reports nothing of the shorter one


@pytest.mark.slow
@pytest.mark.parametrize("length", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
@pytest.mark.parametrize("cause", _CAUSES)
@pytest.mark.mainly("reads-1200000", "copies-1200000")
def test_the_bound_holds_in_random_loops(cause: str, length: int) -> None:
    """What is won when the program is really run without the cause is at most what was reported."""
    found = 0
    short, long = (7, 12) if cause == "read" else (3, 8)  # of a slow host the work is reported, not the read
    for seed in range(long if length == LONG else short):
        author = Author(1_000 * sorted(_CAUSES).index(cause) + seed)
        deeds = author.program(cause, length)
        machine, report = told(deeds)
        won = machine.length - run([*deeds, Deed("sync")], cause).length
        mine = [one for one in report.findings if one.cause in _CAUSES[cause] and one.kind == "idle"]
        if not mine:
            # nobody is told to change what wins nothing
            told_so = won < 0.1 * machine.length or report.findings or length == SHORT
            assert told_so, f"seed {seed}: {won / machine.length:.2f}"
            continue
        found += 1
        gain = sum(one.gain.ns for one in mine) / 1e3
        if any(one.gain.because == LEFT for one in mine):  # the findings before it promise all the rest
            gain = sum(one.gain.ns for one in report.findings) / 1e3
        assert won <= gain + 0.002 * machine.length, f"seed {seed}: {won} us won, {gain} told"
    assert found >= (3 if length == LONG else 1)


def _always(_deed: Deed) -> bool:
    return True


@pytest.mark.parametrize("chosen", [_always, lambda deed: deed.kind != "host"])
def test_a_program_without_anything_to_change_promises_nothing(chosen: Callable[[Deed], bool]) -> None:
    step = [deed for deed in [Deed("host", 200), *launches([500] * 10)] if chosen(deed)]
    deeds = [deed for number in range(600) for deed in [*step, *[Deed("read")] * (number % 50 == 0)]]
    _machine, report = told(deeds)
    assert report.what_if == ()
    assert sum(one.gain.ns for one in report.findings) == 0
