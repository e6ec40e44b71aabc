"""Files that hold their kernels: every gap goes where the file's own rows say, and a busy GPU has a class."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Report
from tests.traced_programs import COPY, OPERATOR, OVERHEAD, PYTHON, RANGE, Traced

STEPS, STEP, MS = 20, 10_000, 1_000
LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"


def steps(traced: Traced, *, busy: int = 3_000, launch: int = STEP - 60) -> Traced:
    """Each step runs a kernel whose launch comes ``launch`` us after the step's begin."""
    for begin in range(0, STEPS * STEP, STEP):
        at = begin + launch
        traced.gives(at, at + 10, (at + 20, at + 20 + busy))
    return traced


def kind(report: Report) -> str | None:
    """The class that is named."""
    return None if report.diagnosis is None else report.diagnosis.kind


def lost(report: Report, cause: str) -> int:
    """What a cause takes, us."""
    return sum(one.loss.lower // 1000 for one in report.findings if one.cause == cause)


@pytest.mark.parametrize(
    ("what", "name", "cause", "named"),
    [
        (RANGE, LOADER.format("SingleProcess"), "C12", "input"),
        (RANGE, LOADER.format("MultiProcessing"), "C49", "input"),
        (RANGE, "[pl][profile]train_dataloader_next", "C12", "input"),
        (RANGE, "get_next_batch", "C12", "input"),
        (OPERATOR, "aten::item", "C01", "sync"),
        (OPERATOR, "aten::_local_scalar_dense", "C01", "sync"),
        (OPERATOR, "aten::nonzero", "C02", "sync"),
        (OPERATOR, "aten::masked_select", "C02", "sync"),
        (OPERATOR, "aten::linear", "C28", "host"),
        (RANGE, "augment", "C28", "host"),
    ],
)
def test_the_operator_in_which_the_thread_was_names_the_cause(
    what: str, name: str, cause: str, named: str
) -> None:
    traced = steps(Traced())
    for begin in range(0, STEPS * STEP, STEP):
        traced.within(RANGE, f"ProfilerStep#{begin // STEP}", begin, begin + STEP)
        traced.within(what, name, begin + 3_100, begin + STEP - 70)
    report = traced.made().report()
    assert kind(report) == named
    assert report.findings[0].cause == cause
    assert lost(report, cause) == pytest.approx((STEPS - 1) * 7_000, rel=0.03)
    where = f"range `{name}`" if what == RANGE else name
    assert f"the thread was in {where} " in "; ".join(report.findings[0].evidence)
    assert report.steps is not None
    assert (report.steps.count, report.steps.usual_ns) == (STEPS, STEP * 1_000)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("aten::item", "`.item()` every step"),
        ("aten::nonzero", "size of a result read every step (`nonzero`, boolean mask)"),
    ],
)
def test_what_reads_is_called_by_its_operator(name: str, title: str) -> None:
    traced = steps(Traced())
    for begin in range(0, STEPS * STEP, STEP):
        traced.within(RANGE, f"ProfilerStep#{begin // STEP}", begin, begin + STEP)
        traced.within(OPERATOR, name, begin + 3_100, begin + STEP - 70)
    assert traced.made().report().findings[0].title == title


def test_the_innermost_operator_is_named_and_the_own_function_before_the_librarys() -> None:
    traced = steps(Traced())
    for begin in range(0, STEPS * STEP, STEP):
        low, high = begin + 3_100, begin + STEP - 70
        traced.within(PYTHON, "train.py(7): main", begin, begin + STEP)
        traced.within(PYTHON, "train.py(40): mixup", low, high)
        traced.within(
            PYTHON, "/usr/lib/python3/site-packages/torch/nn/functional.py(9): pad", low + 5, high - 5
        )
        traced.within(OPERATOR, "aten::pad", low + 10, high - 10)
        traced.within(OPERATOR, "aten::constant_pad_nd, op_id = 7", low + 20, high - 20)
    (finding,) = [one for one in traced.made().report().findings if one.kind == "idle"]
    assert finding.line is not None
    assert (finding.line.place, finding.line.function) == ("train.py:40", "mixup")
    assert "in aten::constant_pad_nd 9" in "; ".join(finding.evidence)
    assert "op_id" not in "; ".join(finding.evidence)


def test_what_was_launched_in_time_is_not_the_hosts() -> None:
    traced = Traced()
    for begin in range(0, STEPS * STEP, STEP):
        traced.gives(begin, begin + 10, (begin + 20, begin + 2_000))
        traced.gives(begin + 20, begin + 30, (begin + 6_000, begin + 9_980), name="attention", on=13)
    report = traced.made().report()
    assert (kind(report), report.findings[0].cause) == ("queue", "C48")
    assert lost(report, "C48") == STEPS * 4_000
    assert "behind another stream 100 %" in "; ".join(report.findings[0].evidence)
    assert lost(report, "C06") == lost(report, "C28") == 0


def test_a_kernel_that_nothing_in_the_file_held_up_is_reported_as_such() -> None:
    traced = Traced()
    for begin in range(0, STEPS * STEP, STEP):
        traced.gives(begin, begin + 10, (begin + 20, begin + 2_000))
        traced.gives(begin + 20, begin + 30, (begin + 6_000, begin + 9_980), name="attention")
    told = "; ".join(traced.made().report().findings[0].evidence)
    assert "behind work of the same stream, with nothing between them in the file" in told


def test_microseconds_between_queued_kernels_are_the_gpus_own() -> None:
    traced = Traced()
    for number in range(500):
        begin = 2_000 + 23 * number
        traced.gives(4 * number, 4 * number + 3, (begin, begin + 20))
    report = traced.made().report()
    assert (kind(report), [one.cause for one in report.findings]) == ("launch", ["C50"])
    assert lost(report, "C50") == 499 * 3


def test_a_launch_that_comes_late_is_the_hosts_up_to_its_return_and_the_way_to_the_gpu_goes_with_it() -> None:
    traced = Traced()
    for begin in range(0, 400 * 100, 100):
        traced.gives(begin, begin + 6, (begin + 12, begin + 30))
    report = traced.made().report()
    assert (kind(report), [one.cause for one in report.findings]) == ("launch", ["C06"])
    assert lost(report, "C06") == 399 * 82


def test_a_wait_that_drained_the_gpu_has_the_gap_behind_it_unless_far_longer_work_follows() -> None:
    for work, named in ((900, "sync"), (7_000, "host")):
        traced, now = Traced(), 0
        for _ in range(STEPS):
            traced.gives(now, now + 10, (now + 15, now + 1_000))
            traced.call("cudaDeviceSynchronize", now + 12, now + 1_010)
            now += 1_010 + work
        report = traced.made().report()
        assert kind(report) == named
        assert report.idle.lower == (STEPS - 1) * (work + 25) * 1_000


def test_a_read_into_pageable_memory_drains_the_gpu_by_its_own_call() -> None:
    """``loss.item()``: the copy's call returns behind the copy, and only then a synchronisation is made."""
    traced, now = Traced(), 0
    for _ in range(STEPS):
        traced.gives(now, now + 5, (now + 8, now + 1_000))
        traced.gives(
            now + 8, now + 1_010, (now + 1_000, now + 1_002), what=COPY, name="Memcpy DtoH", kind=2, bytes=4
        )
        traced.call("cudaStreamSynchronize", now + 1_012, now + 1_016)
        now += 1_400
    report = traced.made().report()
    assert (kind(report), report.findings[0].cause) == ("sync", "C01")


def test_some_launches_that_are_missing_are_noted() -> None:
    traced = steps(Traced())
    for begin in range(0, 3 * STEP, STEP):
        traced.ran((begin + 6_000, begin + 6_100))
    assert any("the launches that ended it are missing" in note for note in traced.made().report().notes)


def test_every_gpu_that_ran_something_is_there_whatever_calls_are_in_the_file() -> None:
    traced = steps(Traced())
    for begin in range(0, STEPS * STEP, STEP):
        traced.ran((begin, begin + 1_000), device=3)
    report = traced.made().report()
    spans = {one.label: (one.span_ns, one.idle.lower) for one in report.gpus}
    assert spans["GPU 3"] == ((STEPS * STEP - 9_000) * 1_000, (STEPS - 1) * 9_000 * 1_000)
    assert set(spans) == {"GPU 0", "GPU 3"}


def test_without_launches_idle_time_is_exact_and_the_report_says_what_is_missing() -> None:
    traced = Traced()
    traced.call("cudaDeviceSynchronize", 5_000, 5_010)
    for begin in range(0, STEPS * STEP, STEP):
        traced.ran((begin, begin + 1_000))
    report = traced.made().report()
    assert report.idle.lower == report.idle.upper == (STEPS - 1) * 9_000 * 1_000
    assert kind(report) is None
    assert "the reason is not in the file: it holds no launches" in report.verdict
    assert report.findings == ()


def test_first_uses_are_start_up_and_no_finding_of_a_loop() -> None:
    traced, now = Traced(), 0
    for number in range(12):
        traced.call("cudaMalloc", now, now + 20 * MS)
        traced.gives(now + 20 * MS, now + 60 * MS, (now + 60 * MS, now + 61 * MS), name=f"kernel{number}")
        now += 61 * MS
    report = traced.made().report()
    assert (kind(report), report.findings) == ("startup", ())
    assert report.idle.lower == 11 * 60 * MS * 1_000
    assert "cudaLaunchKernel" in report.verdict


def test_memory_that_each_step_takes_is_a_finding_once_its_kernels_have_run() -> None:
    traced, now = Traced(), 0
    for _ in range(STEPS):
        traced.call("cudaMalloc", now, now + 5 * MS)
        traced.gives(now + 5_010, now + 5_020, (now + 5_030, now + 7_000))
        now += 7_010
    report = traced.made().report()
    assert report.findings[0].cause == "C20"


def test_the_profilers_own_work_is_nobodys_fault() -> None:
    traced = steps(Traced())
    for begin in range(0, STEPS * STEP, STEP):
        traced.within(OVERHEAD, "Activity Buffer Request", begin + 3_000, begin + STEP - 70)
    report = traced.made().report()
    assert report.findings == ()
    assert report.idle.lower > 0.6 * report.span_ns


@pytest.mark.parametrize(
    ("kernels", "named"),
    [
        (["ampere_sgemm_128x64_tn", "cudnn::winograd_nonfused"], "compute"),
        (["at::native::vectorized_elementwise_kernel<4>", "softmax_warp_forward"], "memory"),
        (["ncclDevKernel_AllReduce_Sum_f32_RING_LL"], "communication"),
    ],
)
def test_a_busy_gpu_has_the_class_of_its_kernels(kernels: list[str], named: str) -> None:
    traced, now = Traced(), 0
    for number in range(60):
        traced.gives(now, now + 5, (now + 10, now + 1_000), name=kernels[number % len(kernels)])
        now += 990
    assert kind(traced.made().report()) == named


def test_copies_alone_are_copy_bound() -> None:
    traced, now = Traced(), 0
    for number in range(60):
        what, name = (COPY, "Memcpy HtoD (Pinned -> Device)") if number % 6 else ("kernel", "gemm")
        traced.gives(now, now + 5, (now + 10, now + 1_000), what=what, name=name)
        now += 990
    assert kind(traced.made().report()) == "copy"


@pytest.mark.parametrize("length", [1, 10, 1_000])
def test_however_short_a_profile_is_its_class_is_named(length: int) -> None:
    """A step of 80 us, of 0.8 ms and of 80 ms."""
    traced, now = Traced(), 0
    for _ in range(4):
        traced.gives(now + 14 * length, now + 15 * length, (now + 16 * length, now + 20 * length))
        now += 20 * length
    report = traced.made().report()
    assert kind(report) in ("launch", "host")
    assert "no recurring stall" not in report.verdict
    assert report.idle.lower == 3 * 16 * length * 1_000


def test_what_calls_alone_would_suspect_is_not_asked_beside_kernels() -> None:
    """A hundred launches between two short waits is C06 by calls; the GPU was busy all the time."""
    traced, now = Traced(), 0
    for _ in range(10):
        for _ in range(120):
            traced.gives(now, now + 5, (now + 10, now + 25), name="gemm")
            now += 15
        traced.call("cudaDeviceSynchronize", now, now + 10)
        now += 15
    report = traced.made().report()
    assert (kind(report), [one.cause for one in report.findings]) == ("compute", [])
