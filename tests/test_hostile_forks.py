"""A program that forks hundreds of times a second takes neither memory for ever nor much time."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from gputop.analysis.window import Window
from gputop.engine.engine import Engine
from gputop.engine.facts import EXITED_SHOWN, Facts
from gputop.engine.tally import FileSums
from probes import schema
from probes.files.mmap_events import Mapped
from probes.observe import scanner
from probes.proc import procfs
from probes.proc.roster import Roster
from probes.process.realtime import Latch
from probes.schema import ALIASED, ExitFlag, Kind, Records
from probes.source import MARK, NAMES, PROCESS, Sample
from replay.state_snapshot import FactBook

SECOND = 10**9
SHELL = os.getpid()
FORKS = 240  # a second


def storm(seconds: int, take: Callable[[Sample], object]) -> None:
    """What is reported of a shell that forks for so long."""
    take(Sample(PROCESS, 1, {"pid": SHELL, "watched": True, "name": "sh", "seen_ns": 1, "exited_ns": None}))
    pid = 100_000
    for second in range(1, seconds + 1):
        for number in range(FORKS):
            pid, at = pid + 1, second * SECOND + number * SECOND // FORKS
            born = {"pid": pid, "watched": True, "name": "true", "command": f"true {pid}", "seen_ns": at}
            take(Sample(PROCESS, at, {**born, "exited_ns": None}))
            take(Sample(NAMES, at, {"tid": [pid], "pid": [pid], "name": ["true"]}))
            ended = {"pid": pid, "watched": True, "exited_ns": at + 10**6, "exit_code": 0, "called": False}
            take(Sample(PROCESS, at + 10**6, ended))
        take(Sample(MARK, (second + 1) * SECOND, {"number": second, "lost": {}}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        lambda: Engine({}).feed,
        lambda: Window({}).feed,
        lambda: FactBook().consume,
        lambda: FileSums().consume,
    ],
)
@pytest.mark.mainly("<lambda>2")
def test_facts_of_ended_processes_are_not_kept_for_ever(
    made: Callable[[], Callable[[Sample], object]],
) -> None:
    take = made()
    gc.collect()
    tracemalloc.start()
    try:
        storm(120, take)
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.long
def test_sums_for_the_end_of_a_file_are_given_up_when_they_would_not_fit_there() -> None:
    sums, first = FileSums(), 4_000_000
    gc.collect()
    tracemalloc.start()
    try:
        for born in range(first, first + 200_000, 2_000):
            for kind in (Kind.FORK, Kind.EXIT):
                sums.consume(lives(range(born, born + 2_000), kind))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert sums.payload() is None


def test_what_is_shown_is_the_same_with_facts_forgotten() -> None:
    forgetful, faithful = Facts(), Facts()

    def take(sample: Sample) -> None:
        for facts in (forgetful, faithful):
            facts.consume(sample)
        if sample.kind == MARK:
            forgetful.forget(sample.time_ns)
            assert forgetful.watched() == faithful.watched()

    for pid in range(1, 60):  # more than are listed, and they made calls
        take(Sample(PROCESS, pid, {"pid": pid, "watched": True, "seen_ns": pid, "exited_ns": None}))
        take(Sample(PROCESS, pid, {"pid": pid, "watched": True, "exited_ns": pid + 1, "called": True}))
    storm(20, take)
    assert len(forgetful.processes) < len(faithful.processes)
    assert len(forgetful.watched()) == EXITED_SHOWN + 1


@pytest.mark.slow
def test_notes_problems_and_names_are_bounded() -> None:
    facts, book = Facts(), FactBook()
    for number in range(2000):
        book.consume(Sample("problem", number, {"text": f"problem {number}"}))
        facts.consume(Sample("note", number, {"text": f"note {number}"}))
        facts.consume(Sample("problem", number, {"text": f"problem {number}"}))
    for first in range(0, 300_000, 10_000):
        tids = list(range(first, first + 10_000))
        facts.consume(Sample(NAMES, first, {"tid": tids, "pid": tids, "name": ["x"] * 10_000}))
    said = [sample.data["text"] for sample in book.samples(1)]
    assert len(said) < 600
    assert said[0] == "problem 0"
    assert said[-1] == "problem 1999"
    assert facts.notes()[-1] == "note 1999"
    assert len(facts.problems(None)) < 500
    assert facts.problems(None)[0] == "problem 0"
    assert facts.problems(None)[-1] == "problem 1999"
    assert facts.thread_name(299_999) == "x"
    assert facts.thread_name(1) == "1"


def lives(pids: range, kind: Kind) -> Records:
    made = schema.empty(len(pids))
    made["kind"], made["pid"], made["tid"], made["t_end"] = kind, pids, pids, time.monotonic_ns()
    rows = made.view(ALIASED)
    if kind == Kind.EXIT:
        made["flags"] = ExitFlag.GROUP_DEAD
    else:
        rows["next_pid"], rows["comm"] = SHELL, b"sh"
    return made


@pytest.mark.slow
def test_of_forked_processes_little_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    roster, read = Roster(), []
    whole = procfs.process_facts
    monkeypatch.setattr(procfs, "process_facts", lambda pid: read.append(pid) or whole(pid))
    (shell,) = roster.notice(lives(range(SHELL, SHELL + 1), Kind.JOIN))
    assert SHELL in read
    read.clear()
    (child,) = roster.notice(lives(range(4_000_000, 4_000_001), Kind.FORK))
    assert read == []
    assert child.data["parent_pid"] == SHELL
    for same in ("command", "user", "uid", "container"):
        assert child.data[same] == shell.data[same]
    assert roster.notice(lives(range(4_000_000, 4_000_001), Kind.EXEC))
    nobody = np.zeros(0, schema.THREAD_STATE_DTYPE)
    for first in range(3_000_000, 3_040_000, 10_000):
        pids = range(first, first + 10_000)
        list(roster.notice(lives(pids, Kind.FORK)))
        list(roster.notice(lives(pids, Kind.EXIT)))
        list(roster.facts(nobody, first))
    assert len(roster.alive()) <= 2


@pytest.mark.slow
def test_names_of_threads_that_are_not_watched_are_bounded() -> None:
    roster = Roster()
    for first in range(1, 200_001, 10_000):
        list(roster.notice(lives(range(first, first + 10_000), Kind.NAME)))
        list(roster.facts(np.zeros(0, schema.THREAD_STATE_DTYPE), first))
    assert len(roster.names) <= 32_768


def test_what_begins_and_ends_between_two_looks_is_reported_once() -> None:
    roster = Roster()
    list(roster.notice(lives(range(SHELL, SHELL + 1), Kind.JOIN)))
    helpers = range(4_000_000, 4_000_050)
    batch = np.concatenate([lives(helpers, Kind.FORK), lives(helpers, Kind.EXIT)])
    said = list(roster.notice(batch))
    assert [sample.data["pid"] for sample in said] == [*helpers]
    assert all(sample.data["parent_pid"] == SHELL and sample.data["exited_ns"] for sample in said)
    assert len({sample.data["seen_ns"] for sample in said}) == 1


def test_a_number_that_goes_to_a_new_process_between_two_looks_is_two_processes() -> None:
    roster, one = Roster(), range(4_000_000, 4_000_001)
    kinds = (Kind.FORK, Kind.EXIT, Kind.FORK)
    said = list(roster.notice(np.concatenate([lives(one, kind) for kind in kinds])))
    assert [sample.data["exited_ns"] is None for sample in said] == [False, True]


def test_a_process_that_becomes_another_program_at_once_is_known_since_its_birth() -> None:
    roster, one = Roster(), range(4_000_000, 4_000_001)
    batch = np.concatenate([lives(one, Kind.FORK), lives(one, Kind.EXEC)])
    (said,) = roster.notice(batch)
    assert said.data["seen_ns"] == int(batch["t_end"][0])


def test_a_program_that_ended_before_anybody_looked_has_its_makers_user_and_not_his_command_line() -> None:
    roster, one = Roster(), range(4_000_000, 4_000_001)
    (shell,) = roster.notice(lives(range(SHELL, SHELL + 1), Kind.JOIN))
    kinds = (Kind.FORK, Kind.EXEC, Kind.EXIT)
    (said,) = roster.notice(np.concatenate([lives(one, kind) for kind in kinds]))
    assert shell.data["command"]
    assert said.data["command"] == ""
    assert (said.data["parent_pid"], said.data["uid"]) == (SHELL, os.getuid())


class Waking:
    """The kernel's records while something wakes us without end, and says nothing."""

    woken = 0

    def wait(self, _seconds: float) -> tuple[list[Mapped], bool]:
        self.woken += 1
        return [], False

    def close(self) -> None:
        """Nothing is open."""


def test_forks_by_anybody_wake_the_search_for_libraries_some_tens_of_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some come as they are, and behind them a pause follows each."""
    events, stop = Waking(), Latch()
    monkeypatch.setattr(scanner, "MmapEvents", lambda _cpus, _lines: events)
    one = scanner.Scanner(
        SimpleNamespace(refusals=[], put_off=set(), attach=lambda _targets: []),  # type: ignore[arg-type]
        None,
        lambda _pid: False,
        lambda: (),
        lambda _sample: None,
        everyone=False,
        pages=SimpleNamespace(close=lambda: None),  # type: ignore[arg-type]
    )
    one.begin(1, (), None)
    begun = time.monotonic()
    threading.Timer(0.5, stop.set).start()
    one.run(stop)
    free, paused = scanner.EMPTY_WAKES / scanner.EMPTY_WITHIN_S, 1 / scanner.PAUSE_S
    assert events.woken > scanner.EMPTY_WAKES
    assert events.woken <= scanner.EMPTY_WAKES + (time.monotonic() - begun) * (free + paused)
