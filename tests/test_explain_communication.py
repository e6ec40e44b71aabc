"""GPUs that are at work in collectives only: how much of the time, at which line, and what a change wins."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import DiagnosisKind, Level
from gputop.analysis.causes.collective_causes import SMS
from probes.source import GPUS, Sample
from tests.cause_stories import reduced
from tests.items import START
from tests.programs import US, Program


def seen(program: Program, active: float) -> Program:
    """The same with so many percent of the SMs active."""
    for sample in program.samples:
        for row in sample.data.get("gpus", ()) if sample.kind == GPUS else ():
            row["sm_active_percent"] = active
    return program


def told(program: Program) -> list[str]:
    return [finding.cause for finding in program.report().findings]


@pytest.mark.parametrize("active", [30.0, 45.0, 59.0, 75.0])
def test_what_the_sms_leave_is_time_in_collectives(active: float) -> None:
    report = seen(reduced(), active).report()
    (finding,) = (one for one in report.findings if one.cause == "C47")
    alone = (100 - active) / 100 / (1 - SMS)  # kernels of these grids keep all of them active
    assert report.steps is not None
    assert finding.loss.estimate is not None
    assert finding.loss.estimate / (report.steps.count * report.steps.usual_ns) == pytest.approx(
        alone, abs=0.05
    )
    assert finding.loss.lower == 0, "none of it is proved"
    assert finding.level == Level.STRONG
    assert report.diagnosis is not None
    assert report.diagnosis.kind is DiagnosisKind.COMMUNICATION


def test_gradients_reduced_for_every_micro_batch_want_no_sync() -> None:
    report = reduced().report()
    finding = next(one for one in report.findings if one.cause == "C47")
    assert "no_sync()" in finding.advice[0]
    assert "4 times" in finding.advice[0]
    assert finding.gain.ns == pytest.approx(1.3 * 0.75 * finding.loss.upper, rel=0.02)


@pytest.mark.parametrize("active", [86.0, 95.0, 100.0])
def test_kernels_that_hide_their_collectives_are_not_blamed(active: float) -> None:
    assert "C47" not in told(seen(reduced(), active))


def test_without_gpm_nothing_is_reported() -> None:
    program = reduced()
    program.samples = [sample for sample in program.samples if sample.kind != GPUS]
    assert "C47" not in told(program)


def test_small_grids_are_no_collectives() -> None:
    """Kernels of a few blocks leave SMs idle, too."""
    program = reduced()
    for sample in program.samples:
        if "sizes" in sample.data:
            sample.data["sizes"] = [[66, 1, 1, 256, 1, 1, 0]]
    assert "C47" not in told(seen(program, 49.0))


def test_a_gpu_that_seldom_runs_says_nothing_of_its_collectives() -> None:
    program = reduced()
    row = {"index": 0, "uuid": "u", "name": "GPU", "multiprocessors": 132}
    low = {"graphics_active_percent": 20.0, "sm_active_percent": 5.0}
    times = [sample.time_ns for sample in program.samples if sample.kind == GPUS]
    program.samples = [sample for sample in program.samples if sample.kind != GPUS]
    program.samples += [Sample(GPUS, at, {"gpus": [row | low]}) for at in times]
    assert times[0] > START + 10 * US
    assert "C47" not in told(program)
