"""The lanes of the timeline: what each column says, exactly, and never more than is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    COLUMN_NS,
    FAMILIES,
    FINDING,
    GONE,
    LOST,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    UNEXPLAINED,
    WHOLE,
    Lanes,
)
from gputop.analysis.build import examine, ledger_of
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import family_table, in_order
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.lanes import Grid, lanes_of
from gputop.analysis.ledger import report_of
from gputop.api.recording_evidence import evidence_of
from gputop.api.session import Session
from gputop.playback.player import ReplayFeed
from probes import api
from probes.schema import Kind
from replay.reader import SessionReader
from tests import items
from tests.cause_stories import STORIES
from tests.each_recording import FILES as EACH
from tests.items import MS, START
from tests.programs import LAUNCH, MAIN, PREAD, SYNC, US, Program, attached, started
from tests.waiting import wait_until

COLUMN_US = COLUMN_NS // US
SYNC_ROW, LAUNCH_ROW = (
    next(row for row, family in enumerate(FAMILIES) if family.word == word) for word in ("sync", "launches")
)


def loop(steps: int = 20, step_us: int = 100_000) -> Program:
    """Steps of 100 ms: half of each the GPU works and the host waits, half the host computes."""
    program = started()
    for begin in range(0, steps * step_us, step_us):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + step_us // 2)
    program.call(LAUNCH, steps * step_us, steps * step_us + 10)
    return program


def lanes(program: Program, dropped: list[int] | None = None) -> Lanes:
    """The lanes of all of a program's time."""
    evidence = program.evidence(dropped)
    report, scene, outcome = examine(evidence, None, (START, evidence.end_ns))
    return lanes_of(scene, outcome, report, START)


def test_a_gpu_is_busy_then_provably_idle_by_cause_column_by_column() -> None:
    found = lanes(loop())
    assert (found.first, found.columns) == (START // COLUMN_NS, 40)
    (gpu,) = found.gpus
    assert gpu.label == "GPU 0"
    assert (gpu.shares[BUSY, 0::2] >= WHOLE - 2).all()
    assert (gpu.shares[PROVED + SYNC_ROW, 1::2] == WHOLE).all()
    assert not gpu.shares[PROVED + SYNC_ROW, 0::2].any()
    assert not gpu.shares[ASSUMED:].any()


def test_what_is_not_proved_is_distinguished() -> None:
    (gpu,) = lanes(attached(loop())).gpus
    assert not gpu.shares[PROVED:ASSUMED].any()
    assert (gpu.shares[ASSUMED + SYNC_ROW, 1::2] == WHOLE).all()


def test_time_between_a_launch_and_nothing_that_waits_stays_unknown() -> None:
    program = started()
    for begin in range(0, 1_000_000, 10_000):
        program.call(LAUNCH, begin, begin + 10)
    (gpu,) = lanes(program).gpus
    assert not gpu.shares.any()


def seen_by_nvml(busy_percent: int, launches: int = 1) -> Program:
    """Three seconds of steps of 100 ms that never wait; NVML tells for how much of the time a kernel ran."""
    program = started()
    for begin in range(0, 3_000_000, 100_000):
        for number in range(launches):
            program.call(LAUNCH, begin + 20 * number, begin + 20 * number + 10)
    program.samples += [items.gpus(START + at * 100 * MS, busy_percent) for at in range(30)]
    return program


def test_estimated_idle_time_is_distinguished_and_the_rest_is_presumably_work() -> None:
    (gpu,) = lanes(seen_by_nvml(30)).gpus
    whole = gpu.shares[:, 4:-4].sum(axis=1, dtype=np.int64) / (WHOLE * (gpu.shares.shape[1] - 8))
    assert whole[PRESUMED] == pytest.approx(0.3, abs=0.05)
    assert whole[ASSUMED:PRESUMED].sum() == pytest.approx(0.7, abs=0.05)
    assert not whole[BUSY]
    assert not whole[PROVED:ASSUMED].any()


def test_with_an_estimate_no_column_holds_unknown_time() -> None:
    for program in (seen_by_nvml(30), seen_by_nvml(90), seen_by_nvml(2, launches=400)):
        (gpu,) = lanes(program).gpus
        told = gpu.shares[:, 1:-2].sum(axis=0, dtype=np.int64)
        rows = np.count_nonzero(gpu.shares[:, 1:-2], axis=0)  # each may lose one part by rounding
        assert (told <= WHOLE).all()
        assert (told + rows >= WHOLE).all()


@pytest.mark.slow
def test_gaps_too_short_to_follow_have_the_family_of_what_ends_them() -> None:
    program = seen_by_nvml(2, launches=2_000)  # 40 ms of launches, 20 us apart
    (gpu,) = lanes(program).gpus
    by_family = gpu.shares[ASSUMED:PRESUMED, 1:-2].sum(axis=1, dtype=np.int64)
    assert by_family[LAUNCH_ROW] > 0.3 * by_family.sum()


def test_shares_never_exceed_a_column_and_sum_up_to_the_report() -> None:
    program = loop(steps=37, step_us=7_000)
    evidence = program.evidence()
    report, scene, outcome = examine(evidence, None, (START, evidence.end_ns))
    (gpu,) = lanes_of(scene, outcome, report, START).gpus
    assert (gpu.shares.sum(axis=0, dtype=np.int64) <= WHOLE).all()
    told = int(gpu.shares[PROVED:ASSUMED].sum()) * COLUMN_NS / WHOLE
    tail = COLUMN_NS  # the last column is not whole, so it is left out
    assert report.idle.lower - tail - 40 * COLUMN_NS // WHOLE <= told <= report.idle.lower


def test_a_thread_runs_waits_for_a_cpu_sleeps_and_ends() -> None:
    program = loop(steps=2, step_us=500_000)
    program.thread(11, at=100_000)
    program.off(200_000, 400_000, queued=300_000, tid=11, pid=MAIN, op=PREAD)
    program.records.append(items.event(Kind.EXIT, START + 500_000 * US, pid=MAIN, tid=11))
    found = lanes(program)
    (worker,) = [lane for lane in found.threads if lane.tid == 11]
    rows = (
        (None, 0, 2),
        (RUNNING, 2, 4),
        (BLOCKED + Wait.DISK, 4, 6),
        (QUEUED, 6, 8),
        (RUNNING, 8, 10),
        (GONE, 10, found.columns),
    )
    for row, first, end in rows:
        part = worker.states[:, first:end]
        assert part.sum() == (0 if row is None else WHOLE * (end - first)), row
        assert row is None or (part[row] == WHOLE).all(), row


def test_a_thread_is_in_the_calls_that_it_makes_those_not_returned_too() -> None:
    program = loop(steps=4, step_us=200_000)
    program.opened = [{"tid": MAIN, "op": api.OP_OF[SYNC], "call_since": START + 900_000 * US}]
    program.length_us = 1_200_000
    (main,) = lanes(program).threads
    sync = CALL_WORDS.index("sync")
    assert (main.calls[sync, 0:2] >= WHOLE - 1).all()
    assert not main.calls[:, 2:4].any()
    assert (main.calls[sync, 18:24] == WHOLE).all()


def test_threads_that_call_cuda_come_first_and_there_are_not_too_many() -> None:
    program = loop(steps=2)
    for tid in range(100, 300):
        program.off(50_000, 60_000, tid=tid, pid=MAIN)
    found = lanes(program).threads
    assert len(found) == 64
    assert found[0].tid == MAIN


def test_lost_records_and_the_worst_moments_of_findings_are_marked() -> None:
    marks = lanes(loop()).marks
    assert not marks[LOST].any()
    assert set(np.flatnonzero(marks[FINDING]) % 2) == {1}, "where the gaps begin"
    # the fourth record is lost: the launch of the second step
    torn = lanes(loop(), dropped=[3])
    assert torn.marks[LOST].any()
    assert not torn.gpus[0].shares[PROVED:ASSUMED, 1].any(), "a gap with a loss in it is not told"


def test_every_cause_has_a_family_and_every_group_of_calls_a_row() -> None:
    table = family_table()
    assert len(table) == len(CATALOGUE) + 1
    assert UNEXPLAINED not in table[:-1]
    assert table[-1] == UNEXPLAINED
    letters = [family.letter for family in FAMILIES]
    assert len(set(letters)) == len(letters)
    assert max(Group) < 32


INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-80, 400), st.integers(0, 300)), min_size=0, max_size=30
)


@settings(max_examples=100, deadline=None)
@given(intervals=INTERVALS, first=st.integers(0, 3), columns=st.integers(0, 5))
def test_the_time_of_columns_is_that_of_counting_each_millisecond(
    intervals: list[tuple[int, int, int]], first: int, columns: int
) -> None:
    grid = Grid(first, columns)
    row, begin, end = (np.array(part, np.int64) for part in zip(*intervals, strict=True)) if intervals else (
        np.zeros(0, np.int64) for _ in range(3)
    )  # fmt: skip
    end = begin + end
    counted = np.zeros((3, columns), np.int64)
    for one, low, high in zip(row.tolist(), begin.tolist(), end.tolist(), strict=True):
        for millisecond in range(low, high):
            column = millisecond // (COLUMN_NS // MS) - first
            if 0 <= column < columns:
                counted[one, column] += 1
    assert (grid.time(3, row, begin * MS, end * MS) == counted * MS).all()


def test_lanes_are_equal_when_they_say_the_same() -> None:
    assert lanes(loop()) == lanes(loop())
    assert lanes(loop()) != lanes(loop(steps=19))


def test_a_replay_hands_the_lanes_to_the_screen() -> None:
    reader = SessionReader(Path(__file__).parent.parent / "recordings" / "numpy-sync.msgpack")
    feed = ReplayFeed(reader, len(reader.marks) - 4, playing=False)
    feed.start()
    wait_until(lambda: feed.explained().report is not None, "the explanation")
    found = feed.explained().lanes
    feed.close()
    assert found is not None
    sync = found.gpus[0].shares[PROVED + SYNC_ROW].sum() / WHOLE
    assert sync > 0.5 * found.columns, "three quarters of the time a tensor is read"


def add_up(evidence: Evidence) -> None:
    """Compares the lanes of all whole columns with the report and the ledger of the same time.

    A column holds each row to half of 1/255 of its length, and two edges of a row are rounded.
    """
    start = int(evidence.header.get("start_ns", evidence.start_ns))
    stretch = -(-start // COLUMN_NS) * COLUMN_NS, evidence.end_ns // COLUMN_NS * COLUMN_NS
    ledger, scene, outcome = ledger_of(evidence, None, stretch)
    report = report_of(ledger)
    drawn = lanes_of(scene, outcome, report, start)
    rounding = drawn.columns * COLUMN_NS / WHOLE + COLUMN_NS / WHOLE
    lanes_ns = {
        lane.label: lane.shares.astype(np.int64).sum(axis=1) * (COLUMN_NS / WHOLE) for lane in drawn.gpus
    }
    assert {gpu.label for gpu in report.gpus} <= set(lanes_ns)
    for gpu in report.gpus:
        rows, account = lanes_ns[gpu.label], gpu.account
        assert rows[PROVED:ASSUMED].sum() == pytest.approx(account.proved_ns, abs=rounding)
        assert rows[BUSY] + rows[PRESUMED] == pytest.approx(account.busy_ns, abs=rounding)
        estimated = rows[
            ASSUMED:PRESUMED
        ].sum()  # start-up counts as estimated idle, and has a row of its own
        assert account.estimated_ns - account.outside_ns - rounding <= estimated
        assert estimated <= account.estimated_ns + rounding
    family = dict(zip((cause.number for cause in in_order()), family_table(), strict=False))
    by_family = np.zeros(len(FAMILIES))
    for one in outcome.judged:
        by_family[family[one.cause.number]] += one.total_ns
    idle = sum(
        (rows[PROVED:ASSUMED] + rows[ASSUMED:PRESUMED] for rows in lanes_ns.values()), np.zeros(len(FAMILIES))
    )
    several = max(len(lanes_ns), 1)
    assert idle[:UNEXPLAINED] == pytest.approx(by_family[:UNEXPLAINED], abs=2 * several * rounding)


@pytest.mark.parametrize("file", EACH)
def test_lanes_of_a_recording_add_up_to_its_report_by_cause(file: Path) -> None:
    with Session(file) as session:
        add_up(evidence_of(session))


@pytest.mark.parametrize("cause", sorted(STORIES))
def test_lanes_of_a_made_up_program_add_up_to_its_report_by_cause(cause: str) -> None:
    add_up(STORIES[cause]().evidence())
