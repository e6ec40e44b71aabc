"""Long work between launches (C28), told from waits, inputs and launches; and what is left without it."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.build import explain
from tests.programs import MAIN
from tests.simulated import SECOND, Deed, Machine, launches

HOLDER, LENGTH = 11, 2 * SECOND


def run(step: list[Deed], without: str = "-", steps: int = 0) -> tuple[Machine, int]:
    """A loop of three seconds, or of so many steps: (the machine, its steps)."""
    machine = Machine()
    machine.program.thread(HOLDER, MAIN)
    count = 0
    while machine.length < LENGTH if not steps else count < steps:
        machine.run(step, without)
        count += 1
    machine.run([Deed("sync")])
    return machine, count


def told(step: list[Deed]) -> tuple[Report, float]:
    """What is said of a loop with NVML beside it, and a step of it without its fault by its own clock, us."""
    machine, count = run(step)
    machine.utilization(SECOND // 6)
    fixed, _count = run(step, "fault", count)
    return explain(machine.finished().evidence()), fixed.length / count


def first(report: Report) -> Finding:
    """What is reported first, which is what the first line names."""
    assert report.findings[0].title in report.verdict
    return report.findings[0]


def within(report: Report, left_us: float) -> bool:
    """Whether what is told to be left of a step without the first cause holds the truth, to 2 % of it."""
    fix = report.what_if[0]
    return abs(min(max(left_us * 1000, fix.least_ns), fix.after_ns) - left_us * 1000) < 0.02 * fix.before_ns


@pytest.mark.parametrize("wait", [[], [Deed("read")], [Deed("sync")], [Deed("send", size=2_048)]])
def test_a_collection_each_step_is_other_work_whatever_wait_lies_before_it(wait: list[Deed]) -> None:
    """Fifteen milliseconds behind an ``.item()`` of a GPU that worked for one are not the wait's."""
    report, left = told([*launches([250] * 4), *wait, Deed("host", 15_000, cause="fault")])
    finding = first(report)
    assert (finding.cause, report.diagnosis is not None and report.diagnosis.kind) == ("C28", "host")
    assert finding.per_step_ns == pytest.approx(15_000_000, rel=0.1)
    assert left < 2_000
    assert within(report, left)


@pytest.mark.parametrize(("host", "cause"), [(2_000, "C01"), (6_000, "C01"), (30_000, "C28")])
def test_a_wait_is_blamed_where_its_going_wins_more_than_a_fifth(host: int, cause: str) -> None:
    report, _left = told([*launches([1_000] * 4), Deed("read"), Deed("host", host)])
    assert first(report).cause == cause


def test_all_waits_since_the_last_launch_count() -> None:
    """Two streams: who waited for one of them finds the other one done."""
    report, _left = told([*launches([1_000] * 4), Deed("sync"), Deed("read"), Deed("host", 6_000)])
    assert first(report).cause == "C01"


def test_work_on_what_came_back_stays_with_the_read() -> None:
    """A metric of 4 KiB on the host: nobody computes for long on a scalar, but on a tensor."""
    report, _left = told([*launches([250] * 4), Deed("read", size=4_096), Deed("host", 15_000)])
    assert first(report).cause == "C02"


def test_launching_is_distinguished_from_other_work_of_the_same_thread() -> None:
    overhead = [one for number in range(30) for one in (Deed("launch", 10, number), Deed("host", 80))]
    report, left = told([*overhead, Deed("host", 5_000, cause="fault")])
    found = {one.cause: one for one in report.findings}
    assert (found["C28"].per_step_ns or 0) / 1e6 == pytest.approx(5.0, rel=0.05)
    assert (found["C06"].per_step_ns or 0) / 1e6 == pytest.approx(30 * 0.08, rel=0.15)
    assert "graphs" not in " ".join(found["C28"].advice)
    assert within(report, left), "the launches stay"


@pytest.mark.parametrize(("host", "cause"), [(4_000, "C12"), (300, "C06")])
def test_an_input_is_one_however_small_where_making_it_takes_long(host: int, cause: str) -> None:
    """Tokens of a text: 51,200 bytes that took 4 ms."""
    step = [
        Deed("host", host, cause="fault"),
        Deed("send", size=51_200),
        *[one for number in range(8) for one in (Deed("launch", 30, number), Deed("host", 60))],
    ]
    report, left = told(step)
    assert first(report).cause == cause
    assert cause != "C12" or within(report, left)


def test_who_gets_its_lock_at_once_is_not_woken_and_waits_for_no_cpu() -> None:
    """Another thread holds the lock for 5 ms; after it a CPU is free only a millisecond later."""
    step = [Deed("locked", 5_000, number=1_000, cause="fault"), Deed("host", 100), *launches([50] * 4)]
    report, left = told(step)
    assert first(report).cause == "C29"
    assert left < 300
    assert report.what_if[0].after_ns < 500_000
    assert within(report, left)


def test_one_read_of_each_short_step_is_no_printing() -> None:
    """A hundred steps of 0.4 ms read a hundred scalars in 40 ms, as a printed tensor does."""
    report, _left = told([*launches([100] * 2), Deed("read"), Deed("host", 200)])
    assert first(report).title == "scalar read back every step"


@pytest.mark.slow
def test_a_tensor_that_is_looped_over_is_printing() -> None:
    step = [*launches([300] * 2), *[Deed("read"), Deed("host", 20)] * 120, Deed("host", 500)]
    report, _left = told(step)
    assert first(report).cause == "C07"


def test_many_reads_of_each_tenth_step_are_not_told_to_be_of_every_step() -> None:
    """A checkpoint: forty tensors come to the host each tenth step."""
    plain = [Deed("host", 200), *launches([300] * 3)]
    saved = [Deed("read", size=40_960), Deed("host", 900)] * 40
    report, _left = told([*plain * 10, *saved])
    assert "every 10 steps" in first(report).title
