"""gputop's own recordings with kernels (``--inside``): causes and class as without, idle time exact."""

from __future__ import annotations

from gputop.analysis.answer.report import Report
from gputop.analysis.build import explain
from probes.source import PROCESS, Sample
from tests.items import MS, START
from tests.programs import MAIN, Program
from tests.traced_programs import COPY, Traced


def own(traced: Traced, *more: Sample, reports: bool = True) -> Report:
    """The report of such a program as gputop itself would have recorded it: states of threads are known.

    Without ``reports`` the library within the program is silent.
    """
    made = traced.made()
    for key in ("source", "states"):
        del made.header[key]
    made.header["inside"] = True
    seen = Program(header=made.header, length_us=made.length_us)
    seen.starts()
    seen.records += made.records
    seen.samples += [*made.samples, *more]
    if reports:
        seen.samples.append(Sample(PROCESS, START, {"pid": MAIN, "inside_from_ns": START}))
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


def test_where_a_process_reports_nothing_no_idle_time_is_exact() -> None:
    """Rows of others say nothing of its work."""
    traced = Traced()
    for step in range(100):
        at = 1_000 * step
        traced.gives(at, at + 20, (at + 35, at + 500), name="mine")
        traced.call("cudaDeviceSynchronize", at + 30, at + 510, tid=MAIN)
    assert own(traced).exact is not None
    assert own(traced, reports=False).exact is None


def test_where_a_process_that_is_not_watched_uses_the_gpu_no_idle_time_is_proved() -> None:
    """Its kernels are missing: what looks idle may be its time on the GPU."""
    traced = Traced()
    for step in range(300):
        at = 10_000 * step
        traced.gives(at, at + 20, (at + 35, at + 5_000), name="mine")
        traced.call("cudaDeviceSynchronize", at + 30, at + 5_010, tid=MAIN)
    stranger = 99
    for busy, exact in ((0, True), (60, False)):
        seen = [
            Sample("gpus", START + at * 200 * MS, {"gpus": [
                {"index": 0, "utilization_percent": 50, "processes": [[MAIN, 1 << 30], [stranger, 1 << 30]],
                 "process_utilization": {"pid": [MAIN, stranger], "sm_percent": [40, busy]}},
            ]})
            for at in range(1, 14)
        ]  # fmt: skip
        report = own(traced, *seen)
        assert (report.exact is not None) is exact
        assert (report.gpus[0].account.proved_ns > 0) is exact
        assert any("nothing is called proved" in note for note in report.notes) is not exact


def test_what_happened_once_is_no_class_of_a_loop_that_keeps_the_gpu_at_work() -> None:
    """A step that imports modules for most of a second, then a loop that is healthy."""
    traced = Traced()
    traced.gives(0, 5, (20, 900), name="sm90_xmma_gemm")
    for step in range(200):
        at = 800_000 + 10_000 * step
        for part, name in enumerate(("sm90_xmma_gemm", "vectorized_elementwise_kernel")):
            traced.gives(
                at + 10 * part,
                at + 10 * part + 5,
                (at + 40 + 5_000 * part, at + 4_990 + 5_000 * part),
                name=name,
            )
    report = own(traced)
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "compute"
    assert report.findings == ()
    (once,) = report.events
    assert once.ns > 790 * MS
    said = " ".join(report.diagnosis.evidence)
    assert "in the loop a kernel ran for about 99 % of the time" in said
    assert "by their names the kernels' time is 50 % matrix products" in said


def test_of_names_that_show_nothing_one_short_sentence_says_so() -> None:
    traced = Traced()
    for step in range(200):
        traced.gives(
            10_000 * step, 10_000 * step + 5, (10_000 * step + 40, 10_000 * step + 9_990), name="mine"
        )
    report = own(traced)
    assert report.diagnosis is not None
    (said,) = report.diagnosis.evidence
    assert said.endswith("; the names of its kernels do not tell whether they compute or move memory")


def _drained(steps: int, *, work_us: int, gap_us: int) -> Report:
    """Each step eight short kernels, launched one by one on an empty queue, a long one, a wait for all."""
    traced, length = Traced(), 8 * (20 + gap_us) + work_us + 60
    for step in range(steps):
        at = step * length
        for kernel in range(8):
            begin = at + kernel * (20 + gap_us)
            traced.gives(begin, begin + 5, (begin + 8, begin + 28), name="small")
        last = at + 8 * (20 + gap_us)
        traced.gives(last, last + 5, (last + 8, last + 8 + work_us), name="gemm")
        traced.call("cudaDeviceSynchronize", last + 10, last + 12 + work_us, tid=MAIN)
    return own(traced)


def test_short_gaps_after_a_drain_belong_to_the_wait_that_took_the_lead() -> None:
    """Without the wait launches would lie in the queue: of 1,540 us a step the GPU works for 1,160."""
    report = _drained(200, work_us=1_000, gap_us=40)
    idle = idle_of(report)
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "sync"
    assert "C06" not in idle
    assert idle["C03"] > 200 * 8 * 40_000 * 0.9
    wins = 200 * (1_540 - 1_160) * 1_000  # the GPU alone is the limit then
    assert 0.95 * wins < report.findings[0].gain.ns < 1.4 * wins


def test_gaps_of_a_host_that_is_slower_than_the_gpu_stay_its_own_whatever_waits() -> None:
    """The host needs 2,200 us a step, the GPU 660: a wait of 500 us is no reason."""
    report = _drained(200, work_us=500, gap_us=250)
    idle = idle_of(report)
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "launch"
    assert idle["C06"] > 200 * 7 * 250_000 * 0.9
