"""Ranks of one machine: which calls are one collective, who comes last, and what that costs the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import ledger_of
from gputop.analysis.causes.collective_causes import Use, waited
from gputop.analysis.findings.gap_findings import of_lateness
from gputop.analysis.ledger import merge, report_of
from gputop.documents.fields import document
from gputop.playback.feed import Explained
from gputop.ui.panes.detail_panes import Details
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.items import START
from tests.json_page import assert_valid
from tests.programs import LAUNCH, MAIN, SYNC, US, Program, attached, started
from tests.screen_support import Shown

MS = 1_000_000


def use(work: int, idle: int, device: int = 0) -> Use:
    """Work and idle time in ms."""
    return Use(device, work * MS, idle * MS)


@pytest.mark.parametrize(
    ("apart", "own", "late", "told"),
    [
        (2_000, None, None, (2_000, True)),  # nobody says what the GPUs did
        (3_900, use(1_000, 0), None, (3_900, True)),
        (3_900, use(1_000, 0), use(1_000, 400, device=1), (400, False)),  # the host was ahead of its GPU
        (3_900, use(1_000, 100), use(1_300, 400, device=1), (600, False)),  # the late rank had more work
        (3_900, use(1_000, 500), use(1_000, 400, device=1), (0, False)),
        (300, use(1_000, 0), use(1_000, 400, device=1), (300, True)),
        (2_000, use(1_000, 0), use(1_000, 400), (2_000, True)),  # one GPU for both: nothing follows
    ],
)
def test_a_gpu_waits_for_no_longer_than_it_can(
    apart: int, own: Use | None, late: Use | None, told: tuple[int, bool]
) -> None:
    found = waited(apart * MS, own, late)
    assert (found[0] // MS, found[1]) == told


def test_what_a_late_rank_is_late_by_counts_once_and_for_the_straggler() -> None:
    straggler = why.finding("C23", 400, kind="waste", pid=7)
    prepares, reads = why.finding("C12", 450, pid=7), why.finding("C02", 300, pid=8)
    assert [round(ns / MS) for ns in of_lateness([prepares, straggler, reads])] == [-400, 400, 0]
    less = replace(prepares, loss=why.finding("C12", 100).loss)
    assert [round(ns / MS) for ns in of_lateness([less, straggler, reads])] == [-100, 100, 0]
    assert of_lateness([prepares, reads]) == [0, 0]


# -- who comes last, and when each rank comes ----------------------------------------------------------

RANKS, OTHER, STEP_US, COUNT = "ncclAllReduce", 1000, 12_000, 60


def ranks(late: int, *, each: int = 1, size: int = 1 << 20, waits: bool = True) -> Program:
    """Two ranks on two GPUs; the second comes late to each collective, and both wait for its end."""
    program = started()
    program.starts(OTHER)
    for pid, wait in ((MAIN, 0), (OTHER, late)):
        program.call("cudaSetDevice", 0, 5, pid=pid, aux=int(pid == OTHER))
        for number in range(COUNT):
            begin = 10 + number * STEP_US
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            for place in range(each):
                at = begin + 100 + wait + place * 30
                program.call(RANKS, at, at + 20, pid=pid, bytes=size if pid == MAIN else 1 << 20)
            if waits:
                program.call(SYNC, begin + 900 + wait, begin + STEP_US - 20, pid=pid)
    return program


def straggler(program: Program) -> Finding | None:
    """What is reported of ranks."""
    return next((one for one in program.report().findings if one.cause == "C23"), None)


def found(program: Program) -> Finding:
    """The same where there is something to tell."""
    finding = straggler(program)
    assert finding is not None
    return finding


def test_the_rank_that_comes_last_is_named_with_what_the_others_wait() -> None:
    finding = found(ranks(6_000))
    assert (finding.pid, str(finding.level)) == (OTHER, "proved")
    assert finding.loss.lower == COUNT * 6_000 * US


def test_a_host_that_is_steps_ahead_of_its_gpu_is_a_hint_where_nobody_saw_the_gpu() -> None:
    program = started()
    program.starts(OTHER)
    for pid, pace in ((MAIN, STEP_US // 4), (OTHER, STEP_US)):
        program.call("cudaSetDevice", 0, 5, pid=pid, aux=int(pid == OTHER))
        for number in range(COUNT):
            begin = 10 + number * pace
            program.call(LAUNCH, begin, begin + 10, pid=pid)
            program.call(RANKS, begin + 100, begin + 120, pid=pid, bytes=1 << 20)
    assert str(found(program).level) == "hint"


def test_ranks_that_come_together_wait_for_nobody() -> None:
    assert straggler(ranks(0)) is None
    assert straggler(ranks(20)) is None


def test_several_collectives_of_a_step_are_late_once() -> None:
    finding = found(ranks(6_000, each=10))
    # ten that are 30 us apart, each 6 ms late: the early rank waits for 6.27 ms, not for 60
    assert finding.loss.lower == COUNT * (6_000 + 9 * 30) * US


def test_ranks_that_ran_before_the_recording_are_not_proved() -> None:
    assert str(found(attached(ranks(6_000))).level) == "strong"


def test_processes_whose_collectives_differ_are_not_of_one_job() -> None:
    assert straggler(ranks(6_000, size=4 << 20)) is None


# late enough that a call of the late rank is nearer to the next one of the early rank than to its own
MOSTLY_LATE = 8_000


def between_the_ranks(program: Program, *, after: int = 20) -> Report:
    """Of a stretch that begins when one rank has called the collective of a step and the other has not."""
    low = after * STEP_US + 10 + 100 + 1_000
    return program.report((low, COUNT * STEP_US))


@pytest.mark.parametrize("each", [1, 10])
def test_a_stretch_may_begin_between_the_calls_of_two_ranks(each: int) -> None:
    """By their order the early rank would come 4 ms late; but a collective ends for both at one moment."""
    report = between_the_ranks(ranks(MOSTLY_LATE, each=each))
    assert report.ranks is not None
    late, early = report.ranks.ranks
    assert (late.pid, early.pid) == (OTHER, MAIN)
    seen = (COUNT - 21) * each
    assert (late.collectives, late.last, late.late_ns) == (seen, seen, seen * MOSTLY_LATE * US)
    assert (early.last, early.late_ns, early.ahead_ns) == (0, 0, seen * MOSTLY_LATE * US)
    (finding,) = (one for one in report.findings if one.cause == "C23")
    assert (finding.pid, str(finding.level)) == (OTHER, "proved")


def test_which_calls_are_one_collective_is_not_known_where_nobody_waited_for_them() -> None:
    """Nothing is reported of ranks then, and what their order says is a hint."""
    program = ranks(MOSTLY_LATE, waits=False)
    report = between_the_ranks(program)
    assert report.ranks is None
    assert {str(one.level) for one in report.findings if one.cause == "C23"} <= {"hint"}
    assert program.report().ranks is not None, "counted from the first one on they are known"


def test_healthy_ranks_are_reported_without_a_verdict() -> None:
    report = ranks(20).report()
    assert report.ranks is not None
    assert [one.collectives for one in report.ranks.ranks] == [COUNT, COUNT]
    assert "C23" not in {one.cause for one in report.findings}


def test_one_process_alone_has_no_ranks() -> None:
    program = started()
    program.call(RANKS, 100, 120, bytes=1 << 20)
    program.call(SYNC, 200, 900)
    report = program.report()
    assert report.ranks is None
    assert "ranks" not in document(report)


def test_two_parts_have_together_what_the_whole_has() -> None:
    program = ranks(6_000)
    evidence, half = program.evidence(), START + 30 * STEP_US * US
    parts = [(START, half), (half, evidence.end_ns)]
    both = merge(*(ledger_of(evidence, None, one, part=True)[0] for one in parts))
    joined = report_of(both)
    assert joined.ranks == program.report().ranks
    assert joined.ranks is not None
    assert report_of(both, frozenset({OTHER})).ranks == joined.ranks.of(frozenset({OTHER}))


def test_ranks_are_reported_in_text_and_json() -> None:
    report = ranks(6_000).report()
    told = document(report)
    assert_valid(told)
    assert [(one["pid"], one["last"], one["late_ns"]) for one in told["ranks"]] == [
        (OTHER, COUNT, COUNT * 6_000 * US),
        (MAIN, 0, 0),
    ]
    words = " ".join(report_to_text(report).split())
    assert (
        f"process {OTHER}, thread {OTHER} on device 1: last in 100 % of 60 collectives, "
        "6.0ms after the first rank, 0ns before the last one"
    ) in words


@pytest.mark.slow
def test_the_screen_shows_the_ranks_with_what_makes_one_late() -> None:
    report = replace(ranks(6_000).report(), findings=(why.finding("C12", 100, pid=OTHER),))
    told = dict.fromkeys((MAIN, OTHER), (("rank", 3),))
    rows = [replace(fake.process(0), pid=pid, belongs=belongs) for pid, belongs in told.items()]
    with Shown(replace(fake.frame(), processes=tuple(rows))) as screen:
        assert "Ranks" not in screen.text(120, 40)
        screen.explain(Explained(report))
        for _ in range(12):
            screen.press("tab")
            if screen.app.query_one(Details).shown.id == "ranks":
                break
        shown = [line.strip("│ >") for line in screen.text(120, 40).splitlines()]
    (late,) = (line for line in shown if line.split()[1:2] == [str(OTHER)])
    assert late.split()[:7] == ["3", str(OTHER), "device", "1", "100", "6.0ms", "0ns"]
    assert why.finding("C12", 100, pid=OTHER).title in late
