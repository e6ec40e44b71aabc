"""A window explains its time as the whole recording does, whatever was dropped before it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gputop.analysis import window as windows
from gputop.analysis.build import explain
from gputop.analysis.chains.analysis import analyse
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.window import WINDOW_NS, Window
from gputop.engine.fork_state import apart
from probes.schema import Kind, Records
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from tests import items
from tests.items import MS, SECOND, START
from tests.proved_gaps import gaps_of
from tests.random_recording import Program, recording, ticked

RECORDINGS = Path(__file__).parent.parent / "recordings"


# some have many events
SEEDS = [pytest.param(0, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.slow), 1, 3, 4, 5]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
@pytest.mark.mainly("1")
def test_dropping_the_past_changes_no_proof(seed: int) -> None:
    window, whole = Window(items.HEADER), Gatherer(items.HEADER)
    compared = found = 0
    for number, item in enumerate(recording(seed)):
        whole.feed(item)
        if window.feed(item) and window.end_ns > START + 12 * SECOND and number % 7 == 0:
            stretch = (window.end_ns - WINDOW_NS, window.end_ns)
            mine = gaps_of(analyse(window.evidence(), stretch))
            assert mine == gaps_of(analyse(assemble(whole), stretch)), window.end_ns
            compared += 1
            found += len(mine)
    assert compared > 3


def of_file(name: str) -> list[Item]:
    """The items of a recording that ships with the program."""
    reader = SessionReader(RECORDINGS / name)
    found = list(reader.items())
    reader.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dataloader.msgpack", "storm.msgpack"])
def test_a_window_that_holds_all_explains_as_the_command_does(name: str) -> None:
    found = of_file(name)
    header = SessionReader(RECORDINGS / name).header
    window, whole = Window(header), Gatherer(header)
    for item in found:
        window.feed(item)
        whole.feed(item)
    until_the_end = window.begin_ns, window.explained_ns  # of its programs
    assert window.verdict().report == explain(assemble(whole), None, until_the_end)


def steps(seconds: float, *, begin: int = 0) -> list[Records]:
    """A program that waits for its stream and then works for 4 of 10 ms on the host."""
    records = []
    for number in range(int(seconds * 100)):
        time = START + begin + number * 10 * MS
        records.append(items.call(time + 5_000, 5_000, stream=0x5000))
        records.append(items.call(time + 6 * MS, 6 * MS - 10_000, "cudaStreamSynchronize", stream=0x5000))
    return records


def idle_of(records: list[Records]) -> tuple[int, int]:
    """Idle time of the last ten seconds, from a window and from everything."""
    window, whole = Window(items.HEADER), Gatherer(items.HEADER)
    for item in [items.apis(), items.process(10, start_ns=START), *ticked(records)]:
        window.feed(item)
        whole.feed(item)
    verdict = window.verdict()
    stretch = (verdict.end_ns - WINDOW_NS, verdict.end_ns)
    return verdict.report.idle.lower, explain(assemble(whole), None, stretch).idle.lower


def born() -> Records:
    return items.event(Kind.FORK, START + 1, pid=10, tid=10)


def test_a_stream_that_was_never_waited_for_blocks_its_gpu_a_minute_later() -> None:
    old = items.call(START + 500_000, 5_000, stream=0x7000, tid=11)
    assert idle_of([born(), old, *steps(40, begin=MS)]) == (0, 0)


def test_a_stream_that_was_waited_for_once_does_not() -> None:
    old = items.call(START + 500_000, 5_000, stream=0x7000, tid=11)
    wait = items.call(START + 800_000, 100_000, "cudaStreamSynchronize", stream=0x7000, tid=11)
    mine, whole = idle_of([born(), old, wait, *steps(40, begin=MS)])
    assert mine == whole > 3 * SECOND


def test_what_was_lost_counts_within_the_window_only() -> None:
    found = ticked([born(), *steps(30)])
    window = Window(items.HEADER)
    for item in [items.apis(), *found]:
        if isinstance(item, Sample) and item.kind == MARK:
            lost = 7 if item.time_ns > START + 5 * SECOND else 0
            lost += 2 if item.time_ns > START + 25 * SECOND else 0
            item = items.mark(0, item.time_ns, ring=lost)
        window.feed(item)
    assert window.verdict().report.lost_events == 2


def test_where_events_come_too_fast_the_window_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_ROWS", 1_000)
    window = Window(items.HEADER)
    for item in [items.apis(), *ticked([born(), *steps(20)])]:
        window.feed(item)
        assert len(window.evidence().calls) < 1_200
    report = window.verdict().report
    assert 2 * SECOND < report.duration_ns < 6 * SECOND
    assert report.idle.lower > 0.3 * report.span_ns


def test_what_is_carried_does_not_grow() -> None:
    rng = random.Random(4)
    program, records, time = Program(100, rng, seen_from_birth=True), [], START
    while time < START + 90 * SECOND:
        time += 15 * MS
        records += program.act(time)
    window = Window(items.HEADER)
    sizes = [window.carried_rows for item in [items.apis(), *ticked(records)] if window.feed(item)]
    assert max(sizes) < 300
    assert max(sizes[-100:]) < 2 * max(sizes[100:200])


def test_threads_that_have_ended_are_forgotten_and_the_living_are_not() -> None:
    lives = [born()]
    for number in range(60):
        tid, time = 1_000 + number, START + number * SECOND // 2
        lives.append(items.event(Kind.FORK, time + 2, pid=10, tid=tid))
        lives.append(items.event(Kind.EXIT, time + MS, pid=10, tid=tid))
    window = Window(items.HEADER)
    for item in [items.apis(), *ticked([*lives, *steps(30)])]:
        window.feed(item)
    evidence = window.evidence()
    assert 10 in evidence.complete
    assert 10 in evidence.threads.tid
    assert len(evidence.threads.tid) < 35


def test_a_window_is_copied_after_a_process_has_ended() -> None:
    window = Window(items.HEADER)
    over = items.process(11, START + 2 * SECOND, exited_ns=START + SECOND, exit_code=0)
    for item in [
        items.apis(),
        *ticked([born(), *steps(3), items.call(START + MS, 500, pid=11, tid=11)]),
        over,
    ]:
        window.feed(item)
    window.feed(Sample(MARK, START + 5 * SECOND, {}))
    other = window.compact()
    assert other.end_ns == window.end_ns
    assert apart(window).verdict().ended == window.verdict().ended
