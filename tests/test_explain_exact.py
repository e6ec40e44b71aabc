"""What GPUs did by their own clock: queue delays, what is exposed, kernels by line and in comparisons."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.kernel_report import ExactGpu, ExactKernel, ExactReport, delay_text, exact_texts
from gputop.analysis.build import explain, ledger_of
from gputop.analysis.compare import kernel_changes
from gputop.analysis.compare_output import diff_to_text
from gputop.analysis.compare_parts import compare
from gputop.analysis.ledger import merge, report_of
from gputop.documents.fields import document
from gputop.ui.model.look import UNICODE
from gputop.ui.model.process.reported import exact_lines
from tests.programs import MAIN, US, Program
from tests.traced_programs import COPY, Traced

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def exact_of(traced: Traced) -> ExactReport:
    report = explain(traced.made().evidence())
    assert report.exact is not None
    return report.exact


def test_copies_and_communication_are_exposed_where_nothing_else_runs() -> None:
    traced = Traced()
    for step in range(30):
        at = 1_000 * step
        traced.gives(at, at + 5, (at + 10, at + 300), name="gemm")
        traced.gives(at + 6, at + 8, (at + 200, at + 400), what=COPY, name="Memcpy HtoD", on=8)
        traced.gives(at + 9, at + 12, (at + 380, at + 600), name=NCCL, on=9)
    (gpu,) = exact_of(traced).gpus
    # the copy is alone from 300 to 380, the collective from 400 on
    assert gpu == ExactGpu(gpu.label, *(30 * US * one for one in (590, 200, 80, 220, 200)))


@pytest.mark.parametrize(
    ("lag", "ahead", "said"),
    [(600, 1.0, "the host is ahead of the GPU"), (2, 0.0, "the host does not get ahead")],
)
def test_queue_delay_shows_a_head_start_from_starvation(lag: int, ahead: float, said: str) -> None:
    traced = Traced()
    traced.gives(0, 1, (2, 990), name="first")
    for step in range(1, 41):
        at = 1_000 * step
        traced.gives(at - lag, at - lag + 1, (at, at + (990 if lag > 100 else 100)), name="gemm")
    exact = exact_of(traced)
    (gemm,) = (one for one in exact.kernels if one.name == "gemm")
    assert (gemm.runs, gemm.linked, gemm.ahead) == (40, 40, 40 * ahead)
    assert gemm.delay_ns == 40 * lag * US
    assert gemm.longest_delay_ns == lag * US
    assert said in delay_text(exact.kernels)
    assert any(said in line for line in exact_texts(exact))


def test_runs_without_their_launch_have_no_delay() -> None:
    traced = Traced()
    traced.gives(0, 1, (2, 100))
    for step in range(1, 30):
        traced.ran((200 * step, 200 * step + 50), name="orphan")
    exact = exact_of(traced)
    (orphan,) = (one for one in exact.kernels if one.name == "orphan")
    assert (orphan.runs, orphan.linked, orphan.usual_delay_ns) == (29, 0, None)
    assert delay_text(exact.kernels) == ""


def test_two_parts_come_to_what_the_whole_does() -> None:
    traced = Traced()
    for step in range(40):
        at = 500 * step
        traced.gives(at, at + 5, (at + 10, at + 300), name="gemm" if step % 3 else "relu")
        traced.gives(at + 6, at + 8, (at + 310, at + 350), what=COPY, name="Memcpy HtoD", on=8)
    evidence = traced.made().evidence()
    start, end = int(evidence.header.get("start_ns", evidence.start_ns)), evidence.end_ns
    middle = start + 20 * 500 * US
    parts = [ledger_of(evidence, stretch=one, part=True)[0] for one in ((start, middle), (middle, end))]
    joined, whole = report_of(merge(*parts)).exact, explain(evidence).exact
    assert joined is not None
    assert whole is not None
    assert joined.kernels == whole.kernels
    assert joined.gpus == whole.gpus


def test_a_recording_without_kernels_has_no_such_report() -> None:
    program = Program()
    program.call("cudaLaunchKernel", 0, 5)
    program.call("cudaDeviceSynchronize", 6, 50)
    assert explain(program.evidence()).exact is None


def stepped(kernels: dict[str, int], period: int = 1_000) -> Traced:
    """Forty equal steps: an input, then each kernel for so many microseconds."""
    traced = Traced()
    for step in range(40):
        at = period * step
        traced.gives(at, at + 4, (at + 5, at + 20), what=COPY, name="Memcpy HtoD", bytes=1 << 20)
        until = at + 30
        for place, (name, took) in enumerate(kernels.items()):
            traced.gives(at + 5 + 2 * place, at + 6 + 2 * place, (until, until + took), name=name)
            until += took + 2
    return traced


def test_diff_names_kernels_that_are_new_gone_or_slower_by_equal_work() -> None:
    before = stepped({"gemm": 300, "relu": 50, "copy_kernel": 100}).made().evidence()
    after = stepped({"gemm": 300, "relu": 90, "fused": 60}, period=1_500).made().evidence()
    diff = compare(before, after)
    rows = {row.name: row for row in diff.kernels}
    assert {name: row.change for name, row in rows.items()} == {
        "gemm": "same", "relu": "slower", "copy_kernel": "gone", "fused": "new",
    }  # fmt: skip
    relu = rows["relu"]
    assert relu.before is not None
    assert relu.after is not None
    assert (relu.before.run_ns, relu.after.run_ns) == (50 * US, 90 * US)
    assert relu.after.runs == pytest.approx(relu.before.runs, rel=0.06)
    text = diff_to_text(diff)
    assert "KERNEL, A " in text
    assert "gemm" not in text.split("KERNEL, A ")[1]
    made = document(diff)["kernels"]
    assert [row["name"] for row in made][:1] == ["copy_kernel"]
    assert made[0]["after"] is None


def test_more_runs_of_the_same_length_are_no_slower_kernel() -> None:
    before, after = ExactReport({}, (kernel(40, 4_000),)), ExactReport({}, (kernel(80, 8_000),))
    (row,) = kernel_changes(before, after, (40.0, 40.0))
    assert (row.change, row.moved_ns) == ("more", 100.0)


def kernel(runs: int, ns: int) -> ExactKernel:
    return ExactKernel(1, "gemm", runs, ns, 100, runs, 0, 0, 0, {})


def test_the_kernels_tab_has_the_gpus_own_times_and_the_delay() -> None:
    traced = Traced()
    for step in range(40):
        at = 1_000 * step
        traced.gives(at, at + 5, (at + 10, at + 510), name="void gemm<8>(float*)")
    report = explain(traced.made().evidence())
    head, row, *rest = ["".join(text for text, _ in line) for line in exact_lines(report, MAIN, 120, UNICODE)]
    assert head.split()[:5] == ["RUNS", "GPU%", "LONGEST", "DELAY", "AHEAD%"]
    assert row.split() == ["40", "51", "500us", "10.0us", "0", "gemm<…>"]
    assert any("the host does not get ahead" in line for line in rest)
    assert exact_lines(report, MAIN + 1, 120, UNICODE) == []
    assert exact_lines(None, MAIN, 120, UNICODE) == []


def test_a_finding_about_launches_says_whether_the_host_is_ahead() -> None:
    traced = Traced()
    for step in range(200):
        at = 100 * step
        traced.gives(at, at + 5, (at + 10, at + 30), name="small")
    findings = [one for one in explain(traced.made().evidence()).findings if one.cause == "C06"]
    assert findings
    assert any("the host does not get ahead" in said for one in findings for said in one.evidence)
