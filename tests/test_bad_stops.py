"""A program that is stopped by a signal or a debugger waits for nothing of its own: no fault of it."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.answer.picture import BLOCKED, STATE_ROWS, WHOLE
from gputop.analysis.evidence.blocking import Wait
from gputop.ui.model.look import UNICODE
from gputop.ui.model.time.blocklanes import Look, state_signs
from probes.schema import NO_SYSCALL
from tests.programs import FUTEX, LAUNCH, SYNC, Program, started

STEP_US, STEPS = 12_000, 100
INTERRUPTIBLE, UNINTERRUPTIBLE, STOPPED, TRACED = 1, 2, 4, 8  # states of a task: include/linux/sched.h


def pausing(state: int, syscall: int) -> Program:
    """A program that works for 4 ms of each 12; then it is off its CPU, in a state of the kernel's."""
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4_000)
        program.off(begin + 4_010, begin + STEP_US - 10, op=syscall, ret=state)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


@pytest.mark.parametrize("syscall", [NO_SYSCALL, FUTEX, 0, 16])
@pytest.mark.parametrize("state", [STOPPED, TRACED])
def test_the_time_in_which_a_program_is_stopped_is_nobodys_fault(state: int, syscall: int) -> None:
    report = pausing(state, syscall).report()
    assert report.findings == ()
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "no-requests"


def test_a_program_that_waits_for_a_page_is_told_to() -> None:
    """The same stays, in the state of who waits."""
    (finding, *_) = pausing(UNINTERRUPTIBLE, NO_SYSCALL).report().findings
    assert finding.cause == "C17"


@pytest.mark.parametrize("wait", list(Wait))
def test_every_kind_of_wait_has_its_sign_in_the_timeline(wait: Wait) -> None:
    shares = np.zeros((STATE_ROWS, 1), np.int64)
    shares[BLOCKED + wait] = WHOLE
    (sign,) = state_signs(shares, np.ones(1, np.int64), Look(UNICODE))
    assert sign.glyph.strip()
    assert sign.word
