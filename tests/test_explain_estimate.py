"""How long a GPU was idle although nobody waited: by NVML, by work learned from waits, and by both."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Level
from gputop.analysis.build import explain
from gputop.analysis.chains.analysis import Analysis
from probes.source import GPUS, Sample
from tests import programs as p
from tests.estimated import SPAN_S, only, seen_by_nvml
from tests.items import SECOND, START
from tests.programs import COPY_ASYNC, H2D, LAUNCH, MAIN, SYNC, US, Program, started
from tests.simulated import Deed, Machine

STEP = 20_000  # us of a step
KERNELS, LAUNCH_US = 10, 20


def fed(*, waits_every: int = 0, kernel_us: int = 200) -> Program:
    """Steps of 20 ms that launch ten kernels in 0.2 ms, copy the next input first and wait for none of them.

    The copies are from pageable memory, so each proves the stream empty: just before the launches.
    """
    program = started()
    for step in range(SPAN_S * 1_000_000 // STEP):
        at = step * STEP
        program.call(COPY_ASYNC, at, at + 500, kind=H2D, bytes=1 << 20, aux=1 << 40)
        program.call(SYNC, at + 510, at + 520)
        for number in range(KERNELS):
            begin = at + 600 + number * LAUNCH_US
            program.call(LAUNCH, begin, begin + 10, aux=p.KERNEL + number)
        if waits_every and step % waits_every == waits_every - 1:
            program.call(SYNC, at + 830, at + 613 + KERNELS * kernel_us)
    program.length_us = SPAN_S * 1_000_000
    return program


def share(analysis: Analysis) -> float:
    """Idle share of the span, proved and estimated."""
    (span,) = analysis.gpu.spans
    return (span.empty_ns + only(analysis).idle_ns) / span.span_ns


def test_nvml_says_what_no_call_proves() -> None:
    program = fed()
    (span,) = program.analysis().gpu.spans
    assert span.empty_ns < 0.01 * span.span_ns, "the copies prove the GPU empty just before the launches"
    assert program.analysis().estimates == (), "and nobody says how long the kernels take"
    seen_by_nvml(program, 0.1)
    estimate = only(program.analysis())
    assert estimate.source == "nvml"
    assert share(program.analysis()) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("busy", [0.02, 0.3, 0.6, 0.9])
def test_the_estimate_follows_what_nvml_saw(busy: float) -> None:
    program = fed()
    seen_by_nvml(program, busy)
    # copies of 1 MiB take less than a millisecond of each step, in which no kernel runs
    assert share(program.analysis()) == pytest.approx(1 - busy, abs=0.04)


def test_its_gaps_lie_between_the_last_work_and_the_next() -> None:
    program = fed()
    seen_by_nvml(program, 0.1)
    analysis = program.analysis()
    gaps = analysis.gaps
    long = gaps.estimated & (gaps.end - gaps.begin > 5_000 * US)
    begin, end = (gaps.begin[long] - START) // US % STEP, (gaps.end[long] - START) // US % STEP
    # two milliseconds of work a step, from the first launch on; the next copy is staged for half a one
    assert ((begin > 2_000) & (begin < 3_000)).all()
    assert (end < 600).all()
    assert not gaps.proved[long].any()


def test_work_is_learned_where_the_program_waits_now_and_then() -> None:
    program = fed(waits_every=10, kernel_us=1_000)
    analysis = program.analysis()
    estimate = only(analysis)
    assert (estimate.source, estimate.agrees) == ("learned", True)
    # ten kernels of a millisecond each in every step of twenty
    assert share(analysis) == pytest.approx(0.5, abs=0.03)
    assert estimate.error_ns < 0.1 * analysis.gpu.spans[0].span_ns


def test_what_runs_ahead_is_idle_from_the_end_of_its_queue_on() -> None:
    """Two steps ahead, each of which waits for an event; its kernels are slower than those that taught."""
    program, steps, kernel = started(), 60, 1_000
    for number in range(12):
        program.call(LAUNCH, number * kernel, number * kernel + 10)
        program.call(SYNC, number * kernel + 20, number * kernel + 900)
    begin = 12 * kernel
    for step in range(steps):
        at = begin + (step - 1) * kernel if step > 1 else begin + 20 * step
        if step > 1:
            program.call(p.EVENT_SYNC, at - kernel + 60, at, aux=0x9000 + (step - 2) % 3)
        program.call(LAUNCH, at + 10, at + 20)
        program.call(p.RECORD, at + 30, at + 35, aux=0x9000 + step % 3)
    ends = begin + steps * kernel
    program.call(LAUNCH, ends + 20_000, ends + 20_010)
    program.call(SYNC, ends + 20_020, ends + 20_900)
    gaps = only(program.analysis()).gaps
    longest = int((gaps.end - gaps.begin).argmax())
    assert (gaps.begin[longest] - START) / US == pytest.approx(ends, abs=250), "two kernels, a tenth of each"
    (event,) = program.report().events
    assert event.level == Level.STRONG, "no call proves when it began"
    assert " (strong) at " in event.text()


def test_both_agree_or_it_is_reported_that_they_do_not() -> None:
    program = fed(waits_every=10, kernel_us=1_000)
    seen_by_nvml(program, 0.5)
    assert only(program.analysis()).agrees
    other = fed(waits_every=10, kernel_us=1_000)
    seen_by_nvml(other, 0.95)
    analysis = other.analysis()
    assert not only(analysis).agrees
    report = explain(analysis.evidence)
    assert any("disagree" in note for note in report.notes)
    assert all(finding.level == "hint" for finding in report.findings if not finding.loss.lower)


def test_where_they_disagree_the_idle_time_is_what_nvml_saw() -> None:
    """The kernels that are waited for are short; a long one beside them is never waited for."""
    program = fed(waits_every=5, kernel_us=100)
    seen_by_nvml(program, 0.6)
    analysis = program.analysis()
    assert not only(analysis).agrees
    assert share(analysis) == pytest.approx(0.4, abs=0.03)


def test_waits_that_did_not_wait_teach_nothing() -> None:
    program = fed()
    for step in range(20):
        program.call("cudaMalloc", step * STEP + 15_000, step * STEP + 15_001)
        program.call(SYNC, step * STEP + 16_000, step * STEP + 16_004)
    assert program.analysis().estimates == ()


def test_a_short_stretch_or_few_samples_are_no_witness() -> None:
    program = fed()
    seen_by_nvml(program, 0.1, begin_s=5.0)
    assert program.analysis().estimates, "five samples over one second"
    few = fed()
    seen_by_nvml(few, 0.1, begin_s=5.9)
    assert few.analysis().estimates == ()


def test_gpm_and_nvmls_own_samples_are_believed_before_the_utilisation() -> None:
    program = fed()
    for number in range(4 * SPAN_S):
        at = START + number * SECOND // 4 + SECOND // 8
        row = {"index": 0, "uuid": "u", "name": "GPU", "utilization_percent": 99}
        row["graphics_active_percent"] = 20.0
        program.samples.append(Sample(GPUS, at, {"gpus": [row]}))
    assert share(program.analysis()) == pytest.approx(0.8, abs=0.03)
    other = fed()
    samples = [[START + number * SECOND // 10, 40] for number in range(10 * SPAN_S)]
    row = {"index": 0, "uuid": "u", "name": "GPU", "utilization_percent": 99, "utilization_samples": samples}
    other.samples.append(Sample(GPUS, START + SPAN_S * SECOND, {"gpus": [row]}))
    assert share(other.analysis()) == pytest.approx(0.6, abs=0.03)


def test_the_parts_of_the_span_add_up_to_the_nanosecond() -> None:
    for busy in (0.0, 0.37, 1.0):
        program = fed(waits_every=7)
        seen_by_nvml(program, busy)
        (gpu,) = program.report().gpus
        told = gpu.account
        parts = (told.proved_ns, told.estimated_ns, told.busy_ns, told.unknown_ns)
        assert sum(parts) == told.span_ns == gpu.span_ns
        assert min(parts) >= 0
        assert gpu.idle.lower <= (gpu.idle.estimate or 0) <= gpu.idle.upper


def test_an_estimated_loss_is_strong_and_has_its_cause_and_its_thread() -> None:
    program = fed()
    seen_by_nvml(program, 0.1)
    report = program.report()
    first = report.findings[0]
    assert (first.cause, str(first.level), first.pid) == ("C12", "strong", MAIN)
    assert first.loss.lower < 0.01 * report.span_ns
    assert first.loss.estimate == pytest.approx(0.85 * report.span_ns, rel=0.1)
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "input"
    assert report.verdict.startswith("Input-bound: ")
    assert "90 %" in report.verdict


def test_a_busy_gpu_that_nobody_waits_for_is_not_called_idle() -> None:
    program = fed()
    seen_by_nvml(program, 0.97)
    report = program.report()
    assert report.findings == ()
    assert report.diagnosis is not None
    assert report.diagnosis.kind in ("compute", None)


def test_the_estimate_does_not_hang_on_the_names_of_kernels() -> None:
    """Handles differ from run to run: what is learned is by identity alone."""
    program = fed(waits_every=10, kernel_us=1_000)
    other = fed(waits_every=10, kernel_us=1_000)
    for record in other.records:
        if record["op"][0] == p.items.api.OP_OF[LAUNCH]:
            record["aux"] = record["aux"] * 7919
    one, two = only(program.analysis()), only(other.analysis())
    assert (one.idle_ns, one.error_ns) == (two.idle_ns, two.error_ns)


@pytest.mark.parametrize("ends_s", [SPAN_S + 1, SPAN_S * 2])
def test_a_gpu_is_idle_after_its_last_work_until_its_program_ends(ends_s: int) -> None:
    program = fed()
    seen_by_nvml(program, 0.3)
    seen_by_nvml(program, 0, SPAN_S + 0.25, ends_s)
    program.length_us = ends_s * 1_000_000
    program.ends(ends_s * 1_000_000 - 1)
    report = explain(program.evidence())
    told = report.gpus[0].account
    assert told.span_ns == pytest.approx(ends_s * SECOND, rel=0.01)
    busy = 0.3 * SPAN_S * SECOND
    assert told.busy_ns == pytest.approx(busy, rel=0.1), "what came after the last work was none"
    after = (ends_s - SPAN_S) * SECOND
    assert told.outside_ns == pytest.approx(after, rel=0.05), "and it is no loss of the loop"
    assert report.outside_ns == pytest.approx(after, rel=0.05)
    assert "start-up and end" in report.verdict


def test_waits_that_hardly_waited_teach_nothing_of_kernels_behind_a_slow_host() -> None:
    """A thousand launches of 2 us, one each 13, then a wait of 60: the GPU may have been idle or not."""
    machine, tight = Machine(), [Deed("launch", 2), Deed("host", 7)] * 1_000
    for _ in range(50):
        machine.run([*tight, Deed("launch", 60, 1), Deed("sync")])
    report = explain(machine.finished().evidence())
    (gpu,) = report.gpus
    assert gpu.idle.estimate is None
    assert gpu.idle.upper > 0.8 * gpu.span_ns, "as it was"
    assert report.findings[0].cause == "C06"
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "launch", "it was called compute-bound, since the fit had begun there"
