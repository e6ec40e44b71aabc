"""gputop's own recordings with kernels (``--inside``): causes and class as without, idle time exact."""

from __future__ import annotations

from gputop.analysis.answer.report import Report
from gputop.analysis.build import explain
from tests.programs import MAIN, Program
from tests.traced_programs import COPY, Traced


def own(traced: Traced) -> Report:
    """The report of such a program as gputop itself would have recorded it: states of threads are known."""
    made = traced.made()
    for key in ("source", "states"):
        del made.header[key]
    made.header["inside"] = True
    seen = Program(header=made.header, length_us=made.length_us)
    seen.starts()
    seen.records += made.records
    seen.samples += made.samples
    return explain(seen.evidence())


def idle_of(report: Report) -> dict[str, int]:
    return {one.cause: one.loss.lower for one in report.findings if one.kind == "idle"}


def test_staging_of_a_copy_from_pageable_memory_is_the_copys() -> None:
    traced = Traced()
    for step in range(100):
        at = 1_000 * step
        traced.gives(at, at + 400, (at + 390, at + 420), COPY, "Memcpy HtoD", bytes=8 << 20, kind=1)
        traced.gives(at + 402, at + 405, (at + 421, at + 990), name="gemm")
    report = own(traced)
    assert report.findings[0].cause == "C04"
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "copy"


def test_the_way_from_a_launch_to_the_gpu_goes_with_the_cause_of_the_rest() -> None:
    traced = Traced()
    for step in range(300):
        at = 100 * step
        traced.gives(at, at + 20, (at + 35, at + 60), name="small")
    report = own(traced)
    idle = idle_of(report)
    assert "C50" not in idle
    assert max(idle, key=lambda cause: idle[cause]) == "C06"
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "launch"


def test_kernels_that_were_queued_in_time_are_still_the_gpus_own_gaps() -> None:
    traced = Traced()
    for number in range(400):
        traced.gives(2 * number, 2 * number + 1, (1_000 + 30 * number, 1_020 + 30 * number), name="queued")
    traced.call("cudaDeviceSynchronize", 801, 13_100, tid=MAIN)
    assert set(idle_of(own(traced))) <= {"C50"}
