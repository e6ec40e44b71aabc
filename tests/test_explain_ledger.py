"""One ledger, one report: whole, in parts and live the same data gives the same causes and shares."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.analysis.answer.report import Account, Finding, Gain, Range, Report, joined, settled
from gputop.analysis.answer.wording import ends_of
from gputop.analysis.build import explain, ledger_of
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.findings.gap_findings import gathered, lonely, sizes_of
from gputop.analysis.findings.step_findings import Loops
from gputop.analysis.ledger import LEFT, Ledger, merge, report_of, shared_out
from gputop.analysis.window import Window
from gputop.api.recording_evidence import evidence_of
from gputop.api.session import Session
from replay.reader import SessionReader
from tests import each_recording, fake_reports
from tests.cause_stories import STORIES, report_of_cause
from tests.each_recording import FILES as EACH
from tests.programs import LAUNCH, START, SYNC, US, Program, started

MS = 1_000 * US
S = 1_000 * MS
MILLION = 1_000_000
WORTH = 0.05  # of the time: a loss near the limit of a finding may be one in one way only


def in_parts(evidence: Evidence, count: int, low: int | None = None, high: int | None = None) -> Ledger:
    """The ledger of so many parts of the same evidence."""
    low = START if low is None else low
    edges = np.linspace(low, evidence.end_ns if high is None else high, count + 1).astype(np.int64).tolist()
    return reduce(merge, (ledger_of(evidence, None, part, part=True)[0] for part in pairwise(edges)))


def shares(report: Report) -> dict[tuple[str, str, int], tuple[float, float]]:
    """(cause, kind, process) -> the share of the time as it is told: its ends, 0 to 1."""
    span = max(report.span_ns, 1)
    return {
        (one.cause, one.kind, one.pid): tuple(ns / span for ns in ends_of(one.loss))  # type: ignore[misc]
        for one in report.findings
    }


def same(one: Report, other: Report, within: float) -> None:
    """The same causes in the same order, shares within so much of the time."""
    mine, its = shares(one), shares(other)
    for key in {*mine, *its}:
        low, high = mine.get(key, (0.0, 0.0))
        low_, high_ = its.get(key, (0.0, 0.0))
        if key in mine and key in its:
            assert low <= high_ + within, (key, mine[key], its[key])
            assert low_ <= high + within, (key, mine[key], its[key])
        else:
            assert max(high, high_) < WORTH + within, (key, mine, its)
    large = [key for key, (_low, high) in mine.items() if high > WORTH + within and key in its]
    order = {key: place for place, key in enumerate(its)}
    for first, second in pairwise(large):
        close = mine[first][1] - mine[second][1] <= 2 * within
        assert close or order[first] < order[second], (mine, its)
    if one.findings and other.findings and large:
        rest = (high for key, (_low, high) in mine.items() if key != large[0])
        apart = mine[large[0]][1] - max(rest, default=0)
        if apart > 2 * within:
            assert one.findings[0].cause == other.findings[0].cause
            assert (one.diagnosis and one.diagnosis.kind) == (other.diagnosis and other.diagnosis.kind)


@pytest.mark.slow
@pytest.mark.parametrize("file", EACH, ids=lambda one: one.stem)
@pytest.mark.mainly("numpy-sync", "redundant-to-device")
def test_a_recording_is_explained_the_same_whole_in_parts_and_live(file: object) -> None:
    reader = SessionReader(file)  # type: ignore[arg-type]
    window = Window(reader.header, length_ns=1 << 62)
    for item in reader.items_between(-1, len(reader.marks) - 1):
        window.feed(item)
    with Session(file) as session:  # type: ignore[arg-type]
        evidence = evidence_of(session)
    low, high = window.begin_ns, window.explained_ns
    whole, live = explain(evidence, None, (low, high)), window.verdict().report
    parts = report_of(in_parts(evidence, 3, low, high))
    assert {gpu.label: gpu.account.bounds for gpu in parts.gpus} == {
        gpu.label: gpu.account.bounds for gpu in whole.gpus
    }
    same(whole, live, 0.03)
    same(whole, parts, 0.06)
    for report in (whole, live, parts):
        assert saved(report) <= most_saved(report)


def saved(report: Report) -> int:
    """What all findings promise together."""
    return sum(one.gain.ns for one in report.findings)


def most_saved(report: Report) -> int:
    """The idle time, with what the changes make of the GPU's work, at most all time."""
    idle = max(report.idle.upper, report.idle.estimate or 0)
    more = sum(one.gain.work_ns if one.kind == "idle" else one.gain.ns for one in report.findings)
    return min(idle + more, report.span_ns)


@each_recording.REPORTS
@pytest.mark.parametrize("file", EACH, ids=lambda one: one.stem)
@pytest.mark.mainly("numpy-sync", "redundant-to-device")
def test_savings_of_a_recording_are_no_more_than_its_idle_time(file: Path) -> None:
    report = each_recording.report_of(file)
    assert saved(report) <= most_saved(report)


@each_recording.REPORTS
@pytest.mark.parametrize("cause", sorted(STORIES))
def test_savings_of_a_made_up_program_are_no_more_than_its_idle_time(cause: str) -> None:
    report = report_of_cause(cause)
    assert saved(report) <= max(most_saved(report), 1) or not report.gpus


def test_each_finding_saves_what_those_before_it_leave() -> None:
    promised = [(3, 6, "more"), (2, 7, "more"), (1, 1, "")]
    findings = [
        fake_reports.finding(f"C{place:02}", loss, gain=Gain(gain * MILLION, why))
        for place, (loss, gain, why) in enumerate(promised, 1)
    ]
    told = shared_out(findings, {0: (10 * MILLION, 10 * MILLION)})
    assert [one.gain.ns for one in told] == [6 * MILLION, 4 * MILLION, 0]
    assert [one.gain.because for one in told] == ["more", LEFT, LEFT]
    assert shared_out(findings, {0: (20 * MILLION, 20 * MILLION)}) == findings
    assert shared_out(findings, {}) == findings, "without a GPU's time there is nothing to share"


PROMISED = st.lists(
    st.tuples(
        st.sampled_from(["idle", "waste"]),
        st.integers(0, 10**10),
        st.integers(0, 10**10),
        st.sampled_from([((0, 1.0),), ((1, 1.0),), ((0, 0.5), (1, 0.5)), ()]),
        st.integers(1, 3),
    ),
    max_size=8,
)
TIMES = st.tuples(st.integers(1, 10**10), st.floats(0, 1)).map(lambda one: (one[0], int(one[0] * one[1])))


@settings(max_examples=300, deadline=None)
@given(promised=PROMISED, first=TIMES, second=TIMES)
def test_savings_are_never_more_than_the_idle_time_and_the_work_that_goes(
    promised: list[tuple[str, int, int, tuple[tuple[int, float], ...], int]],
    first: tuple[int, int],
    second: tuple[int, int],
) -> None:
    findings = [
        replace(
            fake_reports.finding(f"C{place:02}"), kind=kind, gain=Gain(ns, "", work), gpu_shares=on, pid=pid
        )
        for place, (kind, ns, work, on, pid) in enumerate(promised, 1)
    ]
    gpus = {0: first, 1: second}
    told = shared_out(findings, gpus)
    assert all(0 <= one.gain.ns <= before.gain.ns for one, before in zip(told, findings, strict=True))

    def fits(some: list[Finding], span: int, idle: int) -> None:
        assert sum(one.gain.ns for one in some) <= span
        of_idle = [one.gain for one in some if one.kind == "idle"]
        assert sum(max(gain.ns - gain.work_ns, 0) for gain in of_idle) <= idle

    fits(told, first[0] + second[0], first[1] + second[1])
    for pid in {one.pid for one in told}:
        mine = [one for one in told if one.pid == pid]
        on = {index for one in mine for index, _share in one.gpu_shares}
        if on:  # the time of a process passes once, however many GPUs it has
            fits(mine, max(gpus[one][0] for one in on), max(gpus[one][1] for one in on))
    if sum(one.gain.ns for one in findings) <= min(*first, *second):
        assert told == findings, "nothing is limited that fits"


def test_savings_are_the_same_of_all_processes_and_of_one() -> None:
    report = report_of_cause("C23")
    for finding in report.findings:
        alone = explain(STORIES["C23"]().evidence(), frozenset({finding.pid}))
        mine = [one.gain.ns for one in report.findings if one.pid == finding.pid]
        assert [one.gain.ns for one in alone.findings] == mine


@pytest.mark.slow
@pytest.mark.parametrize("cause", sorted(STORIES))
def test_a_program_of_each_cause_is_explained_the_same_whole_and_in_parts(cause: str) -> None:
    evidence = STORIES[cause]().evidence()
    whole = explain(evidence)
    for count in (2, 3):
        parts = report_of(in_parts(evidence, count))
        assert [gpu.account.bounds for gpu in parts.gpus] == [gpu.account.bounds for gpu in whole.gpus]
        same(whole, parts, 0.08)
        assert saved(parts) <= max(parts.span_ns, 1)


@each_recording.REPORTS
@pytest.mark.parametrize("cause", sorted(STORIES))
def test_the_largest_loss_decides_the_class_of_a_program(cause: str) -> None:
    """A program that lost 58 % of its time to page faults was called sync-bound, by 8 % of it."""
    report = report_of_cause(cause)
    lead = report.diagnosis.lead if report.diagnosis is not None else None
    if lead is not None:
        most = max(one.loss.middle for one in report.findings if one.cause != "C24")
        assert report.findings[lead].loss.middle > 0.5 * most


def loop(number: int) -> Program:
    """A loop of a few kinds of work and waits, by its number."""
    rng = random.Random(number)
    program, now = started(), 0
    launches, host = rng.randint(1, 6), rng.choice([50, 400, 3_000])
    kernel, reads = rng.choice([200, 1_500, 6_000]), rng.random() < 0.7
    blocked = rng.choice([0, 0, 2_000, 9_000])
    for _step in range(rng.randint(40, 120)):
        for _launch in range(launches):
            program.call(LAUNCH, now, now + 8)
            now += 10
        if reads:
            program.call(SYNC, now, now + kernel)
            now += kernel
        if blocked:
            program.off(now + 10, now + blocked)
            now += blocked + 10
        now += host
    program.length_us = now
    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (40, 80, 120, 160))]
)
def test_random_ledgers_say_the_same_whole_and_in_parts(first: int) -> None:
    for place in range(first, first + 40):
        evidence = loop(place).evidence()
        whole = explain(evidence)
        parts = report_of(in_parts(evidence, 2 + place % 4))
        bounds = [[gpu.account.bounds for gpu in report.gpus] for report in (whole, parts)]
        assert bounds[0] == bounds[1], place
        for report in (whole, parts):
            for gpu in report.gpus:
                account = gpu.account
                told = account.proved_ns + account.estimated_ns + account.busy_ns + account.unknown_ns
                assert told == account.span_ns, place
        same(whole, parts, 0.08)


def checkpoints(every: int = 40, steps: int = 400) -> Program:
    """A loop with a pause of 60 ms in each fortieth step."""
    program, now = started(), 0
    for step in range(steps):
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 10, now + 2_000)
        now += 2_400
        if step % every == every - 1:
            program.off(now, now + 60_000)
            now += 60_000
    program.length_us = now
    return program


def test_what_is_rare_in_each_part_is_a_finding_of_all_of_them() -> None:
    """Ten parts hold one pause each, which is an event there, and no event of the whole."""
    evidence = checkpoints().evidence()
    whole, parts = explain(evidence), report_of(in_parts(evidence, 10))
    assert any(one.gaps >= 9 for one in whole.findings)
    same(whole, parts, 0.03)
    assert len(parts.events) == len(whole.events)


def growing() -> Program:
    """Steps that take four times as long in the end."""
    program, now = started(), 0
    for step in range(400):
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 10, now + 600)
        program.off(now + 700, now + 1_000 + 10 * step)
        now += 1_100 + 10 * step
    program.length_us = now
    return program


def test_steps_that_grow_do_so_in_parts_too() -> None:
    evidence = growing().evidence()
    whole, parts = explain(evidence), report_of(in_parts(evidence, 5))
    assert whole.steps is not None
    assert whole.steps.growth is not None
    assert parts.steps is not None
    assert parts.steps.growth is not None
    one, other = whole.steps.growth, parts.steps.growth
    assert other.first_ns == pytest.approx(one.first_ns, rel=0.05)
    assert other.last_ns == pytest.approx(one.last_ns, rel=0.05)
    assert other.part == one.part
    assert "Its steps grow from" in parts.verdict


def uneven() -> Program:
    program, now = started(), 0
    for step in range(300):
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 10, now + 500)
        pause = 400_000 if step in (70, 150, 290) else 100
        program.off(now + 600, now + 600 + pause)
        now += 700 + pause
    program.length_us = now
    return program


def test_long_steps_and_one_offs_are_reported_in_parts_too() -> None:
    evidence = uneven().evidence()
    whole, parts = explain(evidence), report_of(in_parts(evidence, 4))
    assert whole.steps is not None
    assert whole.steps.long is not None
    assert parts.steps is not None
    assert parts.steps.long is not None
    assert parts.steps.long.longest == whole.steps.long.longest
    assert parts.steps.long.count == whole.steps.long.count
    assert parts.verdict.partition(".")[0] == whole.verdict.partition(".")[0]


def account(span_ns: int, source: str | None) -> Account:
    """A fifth is proved idle, three tenths are estimated where there is a source, else not known."""
    fifth, open_ns = span_ns // 5, span_ns * 3 // 10
    estimated, unknown = (open_ns, 0) if source else (0, open_ns)
    busy = span_ns - fifth - estimated - unknown
    error = span_ns // 100 if source else None
    return Account(
        span_ns, fifth, estimated, busy, unknown, 0, error, source, True, None, Range(fifth, fifth + open_ns)
    )


def test_an_estimate_of_most_of_the_time_is_kept_and_what_it_lacks_is_its_error() -> None:
    """Every second part without a source took the estimate of the others away."""
    both = settled(reduce(joined, (account(S, "nvml"), account(S, None), account(S, "nvml"))))
    assert both.source == "nvml"
    assert both.proved_ns + both.estimated_ns + both.busy_ns + both.unknown_ns == both.span_ns
    assert both.idle.estimate is not None
    assert both.bounds.lower <= both.idle.estimate <= both.bounds.upper
    assert both.error_ns is not None
    assert both.error_ns > 3 * S // 100
    little = settled(reduce(joined, (account(S, None), account(S, None), account(S // 2, "nvml"))))
    assert little.source is None or little.unknown_ns == 0


def test_sizes_of_gaps_stay_bounded_and_the_same_ones_stand_alone() -> None:
    rng = np.random.default_rng(7)
    ns = rng.integers(500 * US, 2 * MS, 100_000)
    ns[[5, 50_000]] = 900 * MS
    rows = sizes_of(np.arange(len(ns)) * 3 * MS, ns, np.ones(len(ns), np.bool_))
    parts = reduce(gathered, np.array_split(rows, 25))
    assert len(parts) < 400
    assert parts["count"].sum() == len(ns)
    assert sorted(parts["begin"][lonely(parts)].tolist()) == sorted(rows["begin"][lonely(rows)].tolist())


def test_rows_of_steps_stay_bounded() -> None:
    found = ledger_of(uneven().evidence(), part=True)[0].loops
    one: Loops = next(iter(found.values()))
    many = one
    for _ in range(400):
        many = many.joined(one)
    assert len(many.rows) <= 1 << 16
    assert many.rows["count"].sum() == 401 * one.rows["count"].sum()
    assert many.rows["ns"].sum() == 401 * one.rows["ns"].sum()


def test_a_ledger_does_not_depend_on_which_neighbours_are_joined_first() -> None:
    evidence = checkpoints().evidence()
    edges = np.linspace(START, evidence.end_ns, 4).astype(np.int64).tolist()
    one, two, three = (ledger_of(evidence, None, part, part=True)[0] for part in pairwise(edges))
    left, right = report_of(merge(merge(one, two), three)), report_of(merge(one, merge(two, three)))
    assert shares(left) == shares(right)
    assert replace(left, findings=()) == replace(right, findings=())


def test_the_way_from_a_probe_to_a_sentence_is_at_most_twenty_files_long() -> None:
    root = Path(__file__).resolve().parents[1]
    page = (root / "docs" / "design.md").read_text(encoding="utf-8")
    way = page.partition("### From a probe to a sentence")[2].partition("\n## ")[0].partition("\n### ")[0]
    steps = re.findall(r"^\d+\. `([\w/.]+)`", way, re.MULTILINE)
    assert 10 < len(steps) <= 20
    assert [one for one in steps if not (root / one).is_file()] == []
