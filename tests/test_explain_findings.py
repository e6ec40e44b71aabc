"""What becomes a finding, an event or nothing; its level; the order; what storms cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.analysis.answer.report import Finding, Level, Report
from gputop.analysis.answer.report_output import report_to_text
from gputop.api.functions import explain
from gputop.documents.fields import document
from gputop.format import format_ns
from tests import items
from tests import programs as p
from tests.programs import D2H, DEVICE_SYNC, LAUNCH, MAIN, SYNC, US, Program, attached, started

STEP, BUSY = 20_000, 10_000
RECORDINGS = Path(__file__).resolve().parent.parent / "recordings"


def loop(steps: int = 20, *, host: int = 5000, sync: str = SYNC) -> Program:
    """Steps that launch, wait 10 ms for the GPU and compute for ``host`` us on the thread itself."""
    program = started()
    now = 0
    for _ in range(steps):
        program.call(LAUNCH, now, now + 10)
        program.call(sync, now + 20, now + BUSY)
        now += BUSY + host
    program.call(LAUNCH, now, now + 10)
    return program


def only(report: Report) -> Finding:
    """The single finding."""
    (finding,) = report.findings
    return finding


def test_a_loop_that_waits_and_computes() -> None:
    finding = only(loop().report())
    assert (finding.cause, finding.kind, finding.level) == ("C03", "idle", Level.PROVED)
    assert finding.loss.lower == 20 * 5000 * US
    assert finding.loss.upper <= 1.01 * finding.loss.lower
    assert (finding.pid, finding.tid, finding.api, finding.gaps) == (MAIN, MAIN, SYNC, 20)
    assert finding.per_step_ns == pytest.approx(5000 * US, rel=0.06)
    assert [link.layer for link in finding.chain] == ["gpu", "cuda", "host"]
    # min(H, K): the host's work is the shorter; for a moment after each launch the GPU may have been idle
    assert 20 * 5000 * US <= finding.gain.ns <= 1.01 * 20 * 5000 * US


def test_removing_a_wait_wins_no_more_than_the_wait() -> None:
    program = started()
    for begin in range(0, 200_000, STEP):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 6020)
    program.call(LAUNCH, 200_000, 200_010)
    finding = only(program.report())
    assert finding.loss.lower == 10 * 13_980 * US
    assert 10 * 6000 * US <= finding.gain.ns <= 1.05 * 10 * 6000 * US


@pytest.mark.parametrize(("size", "cause"), [(4, "C01"), (16, "C01"), (17, "C02"), (8 << 20, "C02")])
def test_what_is_read_decides(size: int, cause: str) -> None:
    program = started()
    for begin in range(0, 400_000, STEP):
        program.call(LAUNCH, begin, begin + 10)
        program.call(p.COPY_ASYNC, begin + 20, begin + 9000, kind=D2H, bytes=size)
        program.call(SYNC, begin + 9050, begin + 10_000)
    program.call(LAUNCH, 400_000, 400_010)
    assert only(program.report()).cause == cause


def test_the_evidence_says_which_of_a_findings_gaps_it_covers() -> None:
    """Many short ones are among its gaps, and add up to little."""
    program, now = loop(20), 20 * (BUSY + 5000)
    for _ in range(60):
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 20, now + BUSY)
        now += BUSY + 20
    program.call(LAUNCH, now, now + 10)
    finding = only(program.report())
    assert finding.gaps >= 80, "estimated ones beside those of the waits"
    assert finding.chain[0].events == finding.gaps
    assert finding.evidence[0].startswith(f"20 of {finding.gaps} gaps account for 95 % of it: median 5.0ms")
    assert only(loop(10).report()).evidence[0].startswith("10 gaps: median 5.0ms")


@pytest.mark.slow
def test_the_evidence_adds_up_to_the_loss_where_short_gaps_are_part_of_it() -> None:
    finding = explain(RECORDINGS / "redundant-to-device.msgpack").findings[0]
    assert finding.per_step_ns is not None
    told = "; ".join(finding.evidence)
    assert f", {format_ns(finding.per_step_ns)} lost in each" in told
    followed, short = re.findall(r"of the (\S+) in the longest gaps|the other (\S+) lie in shorter", told)
    assert followed[0] == format_ns(finding.chain[0].ns)
    assert short[1] == format_ns(finding.loss.middle - finding.chain[0].ns)


def test_two_gaps_do_not_repeat() -> None:
    report = loop(2).report()
    assert report.findings == ()
    assert [(event.cause, event.ns) for event in report.events] == [("C03", 5000 * US)] * 2
    assert only(loop(3).report()).gaps == 3


def test_a_single_long_gap_is_an_event_and_no_finding() -> None:
    program = loop(40, host=100)  # 1 % idle: nothing
    begin = 40 * (BUSY + 100)
    program.call(SYNC, begin + 20, begin + BUSY)
    program.call(LAUNCH, begin + BUSY + 300_000, begin + BUSY + 300_010)
    report = program.report()
    assert report.findings == ()
    (event,) = report.events
    assert (event.ns, event.time_ns, event.pid) == (300_000 * US, (begin + BUSY) * US, MAIN)
    assert event.level == Level.PROVED
    assert event.text().startswith("300ms (proved) at ")
    assert report.verdict.startswith("No loop loses this: host work")
    assert ", 300ms. " in report.verdict


def test_a_long_gap_among_usual_ones_is_distinguished() -> None:
    program = loop(20)
    begin = 20 * (BUSY + 5000)
    program.call(SYNC, begin + 20, begin + BUSY)
    program.call(LAUNCH, begin + BUSY + 200_000, begin + BUSY + 200_010)
    report = program.report()
    assert only(report).loss.lower == 20 * 5000 * US
    assert [event.ns for event in report.events] == [200_000 * US]


@pytest.mark.parametrize(("host", "told"), [(100, False), (190, False), (230, True), (300, True)])
def test_two_percent_of_the_span_are_worth_a_word(host: int, told: bool) -> None:
    report = loop(200, host=host).report()
    assert bool(report.findings) == told
    short = report.idle.estimate - report.idle.lower  # from a launch to the begin of its kernel
    assert short < 200 * 20 * US
    taken = short + 200 * host * US
    # what a wait drained is lost until the queue is full again: the launches after it are its doing
    assert [finding.loss.estimate for finding in report.findings] == ([taken] if told else [])
    assert report.small_ns == (0 if told else taken)


def test_on_many_gpus_each_may_lose_its_own() -> None:
    program = Program()
    for rank in range(8):
        pid = 1000 + rank
        program.starts(pid)
        program.call("cudaSetDevice", 1, 2, pid=pid, aux=rank)
        for begin in range(10, 1_000_000, 10_000):
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            program.call(SYNC, begin + 20, begin + 9500, pid=pid)
    assert [finding.loss.lower for finding in program.report().findings] == [99 * 500 * US] * 8


def test_five_milliseconds_are_the_least() -> None:
    assert loop(9, host=550).report().findings == ()
    assert only(loop(10, host=550).report()).loss.lower == 10 * 550 * US


def test_most_time_lost_first() -> None:
    program = started()
    now = 0
    for number in range(60):
        program.call(LAUNCH, now, now + 10)
        size = 4 if number % 3 else 1 << 20
        program.call(p.COPY, now + 20, now + BUSY, kind=D2H, bytes=size)
        now += BUSY + (2000 if number % 3 else 9000)
    program.call(LAUNCH, now, now + 10)
    report = program.report()
    assert [finding.cause for finding in report.findings] == ["C02", "C01"]
    assert [finding.loss.lower for finding in report.findings] == [20 * 9000 * US, 40 * 2000 * US]
    assert "C02" in report.verdict


def test_after_an_attach_nothing_is_proved_until_a_device_sync() -> None:
    finding = only(attached(loop()).report())
    assert finding.level == Level.STRONG
    assert any("ran before the recording" in note for note in attached(loop()).report().notes)


def test_after_a_device_sync_it_is_proved_and_the_bound_is_what_came_after() -> None:
    program = loop(20)
    program.records = [
        one for one in program.records if one["t_end"][0] != p.START + (3 * 15_000 + BUSY) * US
    ]
    program.call(p.DEVICE_SYNC, 3 * 15_000 + 20, 3 * 15_000 + BUSY)
    finding = only(attached(program).report())
    assert finding.level == Level.PROVED
    assert finding.loss.lower == 17 * 5000 * US
    assert finding.loss.upper >= 20 * 5000 * US


def test_a_gpu_that_nvml_saw_busy_proves_nothing() -> None:
    program = loop(400, host=10_000)
    program.length_us = 8_000_000
    program.samples += [items.gpus(p.START + number * 500_000 * US, 100) for number in range(3, 15)]
    report = program.report()
    assert report.coverage is False
    assert only(report).level == Level.STRONG
    agreeing = loop(400, host=10_000)
    agreeing.samples += [items.gpus(p.START + number * 500_000 * US, 50) for number in range(3, 15)]
    assert agreeing.report().coverage is True
    assert only(agreeing.report()).level == Level.PROVED


def test_phases_of_less_than_a_second_do_not_contradict_nvml() -> None:
    program = started()
    now = 0
    for _ in range(12):  # half a second each of work and of nothing
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 20, now + 500_000)
        now += 1_000_000
        # the driver's window was somewhere in the last second or two
        program.samples.append(items.gpus(p.START + (now - 100_000) * US, 100))
    program.call(LAUNCH, now, now + 10)
    assert program.report().coverage is True


def test_only_findings_of_the_asked_processes() -> None:
    program = loop()
    assert p.explain(program.evidence(), frozenset({MAIN})).findings
    assert p.explain(program.evidence(), frozenset({77})).findings == ()


def test_a_stretch_counts_what_lies_in_it() -> None:
    report = loop(20).report((15_000 * 5, 15_000 * 15))
    assert report.duration_ns == 150_000 * US
    assert only(report).loss.lower == 10 * 5000 * US
    assert report.span_ns == 150_000 * US
    assert report.idle.lower == 10 * 5000 * US


def test_a_gap_cut_by_the_stretch_counts_in_part() -> None:
    report = loop(20).report((0, 15_000 * 5 - 2000))
    assert report.idle.lower == (5 * 5000 - 2000) * US


def test_a_storm_that_costs_nothing_costs_nothing() -> None:
    program = loop(100)
    for begin in range(0, 1_500_000, 500):
        program.preempted(begin + 1, begin + 151, tid=33)  # some other thread
    (storm,) = program.report().storms
    assert (storm.tid, storm.gpu_ns) == (33, 0)
    assert storm.switches_per_second == pytest.approx(2000, rel=0.05)
    assert "waited for a CPU: 0 ms" in " ".join(report_to_text(program.report()).split())


def test_a_storm_costs_what_the_gpu_waited_for_it() -> None:
    program = loop(100)
    for begin in range(0, 1_500_000, 500):
        program.preempted(begin + 1, begin + 151)
    (storm,) = program.report().storms
    assert storm.tid == MAIN
    # ten of each thirty lie in the 5 ms of a gap, and some where the kernel has not begun
    assert storm.gpu_ns == pytest.approx(100 * 10 * 150 * US, rel=0.01)


def test_the_parts_add_up_to_the_idle_time() -> None:
    program = loop(30)
    for begin in range(12_000, 400_000, 15_000):
        program.preempted(begin, begin + 1000)
    report = program.report()
    told = sum(finding.loss.estimate for finding in report.findings if finding.kind == "idle")
    told += sum(event.ns for event in report.events)
    assert told + report.small_ns + report.unexplained_ns == report.idle.estimate
    assert report.idle.lower == 30 * 5000 * US


def test_nothing_seen_is_reported() -> None:
    assert "No CUDA call" in started().report().verdict
    program = started()
    program.call("cudaMalloc", 0, 10)
    assert "No call enqueued GPU work" in program.report().verdict


def test_a_busy_gpu_is_healthy() -> None:
    program = started()
    for begin in range(0, 1_000_000, 50_000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 49_900)
    program.call(LAUNCH, 1_000_000, 1_000_010)
    report = program.report()
    assert report.findings == ()
    assert report.idle.upper < 0.01 * report.span_ns


def test_the_json_has_what_is_promised() -> None:
    told = document(loop().report())
    assert told["schema"] == "gputop.explain/1"
    assert set(told["gpu_idle_ns"]) == {"lower", "upper", "estimate", "source"}
    (gpu,) = told["gpus"]
    assert sum(gpu["account_ns"].values()) == gpu["span_ns"]
    assert set(told["steps"]) >= {"count", "median_ns"}
    assert told["lost"] == {"events": 0}
    promised = (
        "cause kind title level idle_level name_level loss_ns pid tid api chain advice max_gain_ns moments_ns"
    )
    (finding,) = told["findings"]
    assert set(promised.split()) <= set(finding)
    assert set(finding["chain"][0]) == {"layer", "pid", "tid", "text", "ns", "events", "role", "line"}
    assert len(finding["moments_ns"]) == 3


def test_a_loss_is_found_however_short_the_recording_is() -> None:
    """Twelve steps of 0.4 ms, three quarters of which the GPU waits for the host: 3 ms are lost."""
    program = started()
    for begin in range(0, 12 * 400, 400):
        program.call(LAUNCH, begin, begin + 5)
        program.call(DEVICE_SYNC, begin + 6, begin + 100)
    program.call(LAUNCH, 12 * 400, 12 * 400 + 5)
    report = program.report()
    assert [one.cause for one in report.findings] == ["C03"]
    assert "no recurring stall" not in report.verdict
