"""Rules that the stories of the demos rest on: what a step is, whose fault a wait is, what a change wins."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Finding
from probes.schema import Kind
from tests import items
from tests.items import START
from tests.programs import COPY_ASYNC, D2H, EVENT_SYNC, H2D, LAUNCH, MAIN, RECORD, SYNC, US, Program, started

WORKER, OTHER, PIN = 20, 21, 22
STEPS, STEP_US = 30, 10_000


def read_then_send(read_bytes: int) -> Program:
    """Launch, a read, its wait, 6 ms of host work, a copy of 4 MiB to the device."""
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=4 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(COPY_ASYNC, begin + 530, begin + 540, kind=D2H, bytes=read_bytes)
        program.call(SYNC, begin + 550, begin + 4000)
    return program


@pytest.mark.parametrize(("size", "cause"), [(4, "C28"), (16, "C28"), (17, "C02"), (1 << 20, "C02")])
def test_work_between_a_read_scalar_and_a_batch_is_no_input_without_a_loader(size: int, cause: str) -> None:
    report = read_then_send(size).report()
    assert report.findings[0].cause == cause
    won = (STEPS - 1) * 6000 * US
    assert won <= report.findings[0].gain.ns <= 1.5 * won, "a bound, with its margin"


def many_copies(copies: int = 50) -> Program:
    """Small copies, 20 us apart and 30 us long with their waits; then work behind an event."""
    program, now = started(), 0
    for _ in range(STEPS):
        for _ in range(copies):
            program.call(COPY_ASYNC, now, now + 10, kind=H2D, bytes=2048)
            program.call(SYNC, now + 10, now + 30)
            now += 50
        program.call(LAUNCH, now, now + 10)
        program.call(RECORD, now + 10, now + 15)
        program.call(EVENT_SYNC, now + 15, now + 1000)
        now += 1100
    return program


def test_a_loop_of_copies_is_part_of_a_step() -> None:
    report = many_copies().report()
    assert report.steps is not None
    assert abs(report.steps.count - STEPS) <= 1
    assert report.steps.median_ns == (50 * 50 + 1100) * US


def test_copies_that_go_win_their_own_time_too() -> None:
    (finding,) = (one for one in many_copies().report().findings if one.cause == "C05")
    assert finding.loss.lower == pytest.approx(STEPS * 49 * 20 * US, rel=0.1)
    # nothing of them is left if the tensors are made on the device; a bound allows for some more
    won = STEPS * 50 * 50 * US
    assert won <= finding.gain.ns <= 1.5 * won


def starved(*, helps: bool) -> Program:
    """A worker that is ready to run for 4 ms a step, while another process has its CPU."""
    program = started()
    for pid in (WORKER, OTHER):
        program.starts(pid, maker=MAIN)
    program.samples.append(items.names(START, {WORKER: "pt_data_worker"}, pid=WORKER))
    if helps:
        program.samples.append(items.names(START, {OTHER: "pt_data_worker"}, pid=OTHER))
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=4 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(SYNC, begin + 520, begin + 4000)
        program.off(begin + 4010, begin + 9990, waker_pid=WORKER, waker_tid=WORKER)
        program.preempted(begin + 5000, begin + 9000, pid=WORKER, queue_cpu=1)
        running = items.event(
            Kind.OCCUPANT, START + (begin + 9000) * US, pid=OTHER, tid=OTHER, cpu=1, duration=4000 * US
        )
        program.records.append(running)
        if helps:
            asked = {"waker_pid": MAIN, "waker_tid": MAIN}
            program.off(begin + 9100, begin + 9900, pid=OTHER, **asked)
    return program


def idle_findings(program: Program) -> list[Finding]:
    return [finding for finding in program.report().findings if finding.kind == "idle"]


def test_workers_in_each_others_way_are_a_loader_that_computes_too_much() -> None:
    (finding,) = idle_findings(starved(helps=True))
    assert finding.cause == "C08"
    assert finding.loss.lower == pytest.approx(STEPS * 5980 * US, rel=0.05)
    assert any("wait for each other" in text for text in finding.advice)
    assert "was running, or waited while other workers ran" in finding.chain[-1].text


def test_a_child_that_only_burns_the_cpu_is_no_worker() -> None:
    first, second = idle_findings(starved(helps=False))
    assert (first.cause, second.cause) == ("C09", "C08")
    assert first.loss.lower == pytest.approx(STEPS * 4000 * US, rel=0.05)


@pytest.mark.parametrize("every", [3, 10, 24])
def test_how_often_is_by_how_far_apart_the_reads_are(every: int) -> None:
    """The last step ends with a read that no gap follows: of 120 steps there are 11 gaps, not 12."""
    program = started()
    for number, begin in enumerate(range(0, 120 * STEP_US, STEP_US)):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=4 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        if number % every == every - 1:
            program.call(COPY_ASYNC, begin + 530, begin + 540, kind=D2H, bytes=4096)
            program.call(SYNC, begin + 550, begin + 4000)
    report = program.report()
    assert report.steps is not None
    assert report.steps.count == 120
    (finding,) = [one for one in report.findings if one.cause == "C02"]
    assert f"read every {every} steps" in finding.title


def pinned_behind_two_workers() -> Program:
    """Two workers compute by turns; a thread of the trainer waits for their CPU to pin what they made."""
    program = started()
    program.thread(PIN)
    for pid in (WORKER, OTHER):
        program.starts(pid, maker=MAIN)
        program.samples.append(items.names(START, {pid: "pt_data_worker"}, pid=pid))
    for number, begin in enumerate(range(0, STEPS * STEP_US, STEP_US)):
        worker = (WORKER, OTHER)[number % 2]
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=4 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(SYNC, begin + 520, begin + 4000)
        woken = {"waker_pid": worker, "waker_tid": worker, "queue_cpu": 1}
        program.off(begin + 100, begin + 9800, begin + 8500, pid=MAIN, tid=PIN, **woken)
        program.off(begin + 4010, begin + 9900, op=0, waker_pid=MAIN, waker_tid=PIN)
        running = items.event(
            Kind.OCCUPANT, START + (begin + 9800) * US, pid=worker, tid=worker, cpu=1, duration=4800 * US
        )
        program.records.append(running)
        for pid in (WORKER, OTHER):
            program.preempted(begin + 5000, begin + 7000, pid=pid, queue_cpu=1)
            program.off(begin + 8600, begin + 8700, pid=pid, waker_pid=MAIN, waker_tid=MAIN)
    return program


def test_a_thread_that_pins_is_no_worker() -> None:
    (finding,) = [one for one in idle_findings(pinned_behind_two_workers()) if one.cause == "C08"]
    (told,) = [text for text in finding.advice if "share" in text]
    assert told.startswith("2 workers share")
