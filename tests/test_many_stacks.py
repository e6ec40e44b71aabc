"""A machine on which processes come and go makes more stacks than are kept: what lives keeps its lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gputop.engine import facts as facts_of_engine
from gputop.engine.calls import stack_table
from gputop.engine.calls.stack_table import Stacks
from gputop.engine.facts import Facts
from probes.samples import FramesData
from probes.source import FRAMES, PROCESS, Sample
from probes.stacks.stack_samples import kernel_number
from replay import state_snapshot
from replay.state_snapshot import FactBook
from tests import items
from tests.items import START

MANY = 40
JOB_STACKS = 10
LONG_LIVED = 7


def frames(pid: int, *numbers: int) -> FramesData:
    return {
        "pid": [pid] * len(numbers),
        "stack": list(numbers),
        "frames": [[(f"/app/{pid}.py", number, "step")] for number in numbers],
    }


def known(stacks: Stacks, *numbers: int) -> list[bool]:
    return [bool(stacks.frames(number)) for number in numbers]


def numbers_of(pid: int) -> range:
    return range(1000 * pid, 1000 * pid + JOB_STACKS)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_table, "MANY_STACKS", MANY)
    monkeypatch.setattr(state_snapshot, "MOST_STACKS", MANY)
    monkeypatch.setattr(facts_of_engine, "SWEEP_AFTER", 1)


def jobs(take: Callable[[Sample], None], ended: Callable[[int], None], number: int) -> None:
    """A program that goes on, then jobs with stacks of their own, one after the other."""
    take(items.process(LONG_LIVED))
    take(Sample(FRAMES, START, dict(frames(LONG_LIVED, 1))))
    for pid in range(100, 100 + number):
        at = START + (pid - 100) * 60_000_000_000
        take(items.process(pid))
        take(Sample(FRAMES, at, dict(frames(pid, *numbers_of(pid)))))
        take(Sample(PROCESS, at, {"pid": pid, "exited_ns": at}))
        ended(at)


@pytest.mark.usefixtures("few")
def test_live_the_newest_and_what_lives_have_their_lines_and_the_oldest_go() -> None:
    facts = Facts()
    jobs(facts.consume, lambda at: facts.forget(at + 30_000_000_000), 200)
    assert known(facts.stacks, 1, *numbers_of(299)) == [True] * (1 + JOB_STACKS)
    assert known(facts.stacks, *numbers_of(100)) == [False] * JOB_STACKS
    # those that are listed as ended have theirs
    assert sum(known(facts.stacks, *(n for pid in range(100, 300) for n in numbers_of(pid)))) <= (
        MANY + facts_of_engine.EXITED_SHOWN * JOB_STACKS + JOB_STACKS
    )
    assert len(facts.stacks.known) <= 2 * MANY + facts_of_engine.EXITED_SHOWN * JOB_STACKS + 1


@pytest.mark.usefixtures("few")
def test_what_is_reported_in_the_middle_of_a_session_has_them_too() -> None:
    book = FactBook()
    jobs(book.consume, lambda _at: None, 200)
    later = FactBook()
    later.absorb(book)
    for one in (book, later):
        told = Stacks()
        for sample in one.samples(START):
            if sample.kind == FRAMES:
                told.consume(sample.data)  # type: ignore[arg-type]
        assert known(told, 1, *numbers_of(299)) == [True] * (1 + JOB_STACKS)
        assert known(told, *numbers_of(100)) == [False] * JOB_STACKS
        assert MANY - JOB_STACKS < sum(known(told, *range(1_000_000))) <= MANY


def test_few_stacks_are_all_kept() -> None:
    facts, book = Facts(), FactBook()
    jobs(facts.consume, lambda at: facts.forget(at + 30_000_000_000), 50)
    jobs(book.consume, lambda _at: None, 50)
    assert all(known(facts.stacks, 1, *(n for pid in range(100, 150) for n in numbers_of(pid))))
    assert sum(len(one.data["stack"]) for one in book.samples(START) if one.kind == FRAMES) == 501


@pytest.mark.usefixtures("few")
def test_a_number_that_the_next_process_of_the_pid_has_again_stays() -> None:
    """That of a kernel is made of the pid and an address, which is the same in each run of a program."""
    stacks, again = Stacks(), kernel_number(5, 0x401000)
    stacks.consume(frames(5, again, 2))
    stacks.forget([5])
    stacks.consume(frames(5, again))
    stacks.consume(frames(6, *range(100, 100 + MANY)))
    stacks.forget([8])
    assert known(stacks, again, 2) == [True, False]


@pytest.mark.usefixtures("few")
def test_stacks_that_are_reported_after_the_end_of_their_process_count_as_those_before() -> None:
    book = FactBook()
    book.consume(items.process(5))
    book.consume(Sample(FRAMES, START, dict(frames(5, *range(100, 100 + MANY)))))
    book.consume(Sample(PROCESS, START, {"pid": 5, "exited_ns": START}))
    for late in (range(200, 200 + MANY), range(300, 300 + MANY // 2)):
        book.consume(Sample(FRAMES, START, dict(frames(5, *late))))
    for pid, first in ((6, 1000), (7, 2000)):
        book.consume(Sample(FRAMES, START, dict(frames(pid, *range(first, first + MANY // 2)))))
    told = [number for one in book.samples(START) if one.kind == FRAMES for number in one.data["stack"]]
    assert told == [*range(1000, 1000 + MANY // 2), *range(2000, 2000 + MANY // 2)]


@pytest.mark.usefixtures("few")
def test_a_pid_that_lives_again_keeps_its_stacks_in_the_middle_of_a_session() -> None:
    book = FactBook()
    book.consume(items.process(5))
    book.consume(Sample(FRAMES, START, dict(frames(5, 1))))
    book.consume(Sample(PROCESS, START, {"pid": 5, "exited_ns": START}))
    book.consume(Sample(PROCESS, START, {"pid": 5, "exited_ns": None}))
    book.consume(Sample(FRAMES, START, dict(frames(6, *range(100, 100 + 2 * MANY)))))
    told = [number for one in book.samples(START) if one.kind == FRAMES for number in one.data["stack"]]
    assert told == [1, *range(100, 100 + MANY - 1)], "of those that live none goes for another"
