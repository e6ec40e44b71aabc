"""One step of a program: a step that happened, each of its nanoseconds on one state of the GPU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gputop.analysis.answer.picture import BLOCKED, CALL_WORDS, COLUMNS, QUEUED, RUNNING, OneStep
from gputop.analysis.build import examine
from gputop.analysis.incremental import Fresh, explained
from gputop.analysis.lanes import time_of, typical_steps
from gputop.analysis.window import Window
from gputop.ui.model.answer import why
from tests import each_recording
from tests import told_recordings as recordings
from tests.items import START
from tests.programs import FUTEX, LAUNCH, MAIN, SYNC, US, Program, attached, started

STEP_US = 1_000 * COLUMNS // 8  # so that a column is a whole number of microseconds
SYNC_CALL, LAUNCH_CALL = CALL_WORDS.index("sync"), CALL_WORDS.index("launch")


def loop(steps: int = 20) -> Program:
    """A quarter of each step the host waits for the GPU, computes, waits for a lock, and for a CPU."""
    program = started()
    for begin in range(0, steps * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + STEP_US // 4)
        program.off(begin + STEP_US // 2, begin + STEP_US * 3 // 4, op=FUTEX)
        program.preempted(begin + STEP_US * 3 // 4, begin + STEP_US * 7 // 8)
    program.call(LAUNCH, steps * STEP_US, steps * STEP_US + 10)
    return program


def steps_of(program: Program) -> tuple[OneStep, ...]:
    evidence = program.evidence()
    report, scene, outcome = examine(evidence, None, (START, evidence.end_ns))
    return typical_steps(scene, outcome, report)


def test_a_step_holds_the_calls_and_states_of_its_thread_to_the_nanosecond() -> None:
    (step,) = steps_of(loop())
    assert (step.pid, step.tid, step.median_ns, step.length_ns) == (MAIN, MAIN, STEP_US * US, STEP_US * US)
    assert (step.begin_ns - START) % (STEP_US * US) == STEP_US * US // 4, "the return of a wait"
    (host,) = step.hosts
    assert int(host.calls[LAUNCH_CALL].sum()) == 10 * US
    assert int(host.calls[SYNC_CALL].sum()) == (STEP_US // 4 - 20) * US
    assert (host.counts[LAUNCH_CALL], host.counts[SYNC_CALL]) == (1, 1)
    states = host.states.sum(axis=1)
    assert states[QUEUED] == STEP_US * US // 8
    assert states[BLOCKED:].sum() == STEP_US * US // 4
    assert states[RUNNING] == STEP_US * US * 5 // 8
    column = STEP_US * US // COLUMNS
    assert (host.states[BLOCKED:, COLUMNS // 4 : COLUMNS // 2].sum(axis=0) == column).all()


def test_its_idle_time_is_reported_by_cause_and_what_no_call_waits_for_stays_unknown() -> None:
    (step,) = steps_of(loop())
    (gpu,) = step.gpus
    assert sum(int(one.ns.sum()) for one in gpu.idle) == STEP_US * US * 3 // 4
    assert all(one.proved for one in gpu.idle)
    assert gpu.idle[0].cause == "C03"
    assert not any(one.ns[COLUMNS * 3 // 4 :].any() for one in gpu.idle)
    left = np.diff(step.edges) - gpu.busy - gpu.presumed - sum(one.ns for one in gpu.idle)
    assert (left >= 0).all()
    assert left.sum() < 50 * US, "around the launch and the return of the wait"


def test_what_is_not_proved_is_distinguished() -> None:
    (step,) = steps_of(attached(loop()))
    assert step.gpus[0].idle
    assert not any(one.proved for one in step.gpus[0].idle)


def test_an_uncommon_step_is_not_the_one_that_is_shown() -> None:
    program = started()
    begin = 0
    for number in range(30):
        length = STEP_US * (5 if number % 10 == 9 else 1)
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + STEP_US // 4)
        begin += length
    program.call(LAUNCH, begin, begin + 10)
    (step,) = steps_of(program)
    assert step.length_ns == STEP_US * US


def test_a_program_that_repeats_nothing_has_no_step() -> None:
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 20, 5_000)
    program.call(LAUNCH, 9_000, 9_010)
    assert steps_of(program) == ()


def test_the_time_of_columns_is_what_a_count_of_single_nanoseconds_gives() -> None:
    for seed in range(6):
        chance = np.random.default_rng(seed)
        begin = chance.integers(0, 300, 25)
        end = begin + chance.integers(0, 60, 25)
        edges = 20 + np.sort(chance.choice(280, 12, replace=False))
        inside = np.zeros(400, np.int64)
        for low, high in zip(begin.tolist(), end.tolist(), strict=True):
            inside[low:high] = 1
        wanted = [int(inside[low:high].sum()) for low, high in pairwise(edges.tolist())]
        assert time_of(begin, end, edges).tolist() == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", each_recording.NAMES)
def test_in_a_recording_the_parts_of_a_step_never_exceed_it(name: str) -> None:
    explained = recordings.explained(name)
    assert explained.report is not None
    assert explained.report.steps is not None
    step = explained.steps[0]
    assert (step.pid, step.count) == (explained.report.steps.pid, explained.report.steps.count)
    named = [one.cause for one in why.in_order(explained.report) if (one.pid, one.kind) == (step.pid, "idle")]
    idle = [one.cause for gpu in step.gpus for one in gpu.idle]
    if named:
        assert idle[0] == named[0], "the cause that WHY names first"
    else:
        assert step.length_ns == pytest.approx(explained.report.steps.median_ns, rel=0.25)
    column = np.diff(step.edges)
    for gpu in step.gpus:
        assert (gpu.busy + gpu.presumed + sum(one.ns for one in gpu.idle) <= column).all()
    for host in step.hosts:
        assert (host.states.sum(axis=0) <= column).all()
        assert (host.calls.sum(axis=0) <= column).all()


def test_a_look_at_newer_time_keeps_the_step_that_was_explained_last() -> None:
    reader, last = recordings.reader("numpy-sync"), recordings.place("numpy-sync")
    window, fresh = Window(reader.header), Fresh()
    for item in reader.items_between(-1, last - 2):
        window.feed(item)
    whole = fresh.consume(explained(window))
    for item in reader.items_between(last - 2, last):
        window.feed(item)
    look = fresh.look(window)
    assert look is not None
    assert look.end_ns > whole.end_ns
    assert whole.steps
    assert look.steps == whole.steps
