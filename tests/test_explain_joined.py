"""Lines that differ in figures only are one; what is reported of a program that has ended stays as it is."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.kernel_report import (
    Fitting,
    GraphReport,
    KernelLaunches,
    KernelReport,
    graph_texts,
    kernel_texts,
)
from gputop.engine.calls.stack_table import Line
from tests.programs import LAUNCH, MAIN, SYNC, Program, started

STEP = Line("/app/train.py", 37, "step")


def fitting(launches: int, host_ns: int, line: Line | None = None) -> Fitting:
    return Fitting(7, line, line, launches, 41, 42, host_ns)


def test_runs_of_launches_that_would_fit_a_graph_are_one_line() -> None:
    runs = (fitting(14, 243_000), fitting(16, 251_000), fitting(14, 242_000))
    texts = graph_texts(GraphReport(fitting=runs))
    assert len(texts) == 2
    assert "3 times 14 to 16 launches a step would fit one each" in texts[1]
    assert "in 736us of the host's time together" in texts[1]


def test_runs_at_different_lines_stay_apart() -> None:
    texts = graph_texts(GraphReport(fitting=(fitting(14, 243_000), fitting(14, 251_000, STEP))))
    assert len(texts) == 3
    assert not any("together" in text for text in texts)


def launched(name: str, launches: int, pid: int = 7) -> KernelLaunches:
    return KernelLaunches(pid, name, "/t/libtorch_cuda.so", 1, launches, 0, {STEP: launches}, {}, 0, None)


def test_kernels_that_read_the_same_are_one_line() -> None:
    rows = (
        launched("void at::native::vectorized_elementwise_kernel<4, Add>(int)", 90),
        launched("gemm", 60),
        launched("void at::native::vectorized_elementwise_kernel<4, Gelu>(int)", 50),
    )
    texts = kernel_texts(KernelReport(over_ns=1_000_000_000, steps={}, rows=rows, fill=0))
    assert len(texts) == 3
    assert "140 launches a second" in texts[1]
    assert len({text.split(":")[-1] for text in texts}) == len(texts)


def ended(recorded_us: int) -> Program:
    """A program that gave its GPU work for half a second, and never waited for the last of it."""
    program = started()
    for begin in range(0, 500_000, 5_000):
        program.call(LAUNCH, begin, begin + 10)
        if begin < 400_000:
            program.call(SYNC, begin + 100, begin + 4_000)
    program.ends(520_000, MAIN)
    program.length_us = recorded_us
    return program


@pytest.mark.parametrize("later_s", [1, 30, 600])
def test_the_bounds_of_a_program_that_has_ended_do_not_grow(later_s: int) -> None:
    at_once, later = (ended(us).report() for us in (530_000, later_s * 1_000_000))
    assert later.idle == at_once.idle
    assert later.span_ns == at_once.span_ns
    gains = [[finding.gain.ns for finding in report.findings] for report in (at_once, later)]
    assert gains[0] == gains[1]
